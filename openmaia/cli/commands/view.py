"""`openmaia view`: the experiment browser as a local server."""

from typing import Annotated

import typer

from openmaia.cli.commands.common import EmbeddingOption, RunPaths, text_embedding


def view(
    runs: RunPaths,
    port: Annotated[
        int, typer.Option(help="The port on this machine; 0 for any that is free.", min=0, max=65535)
    ] = 8764,
    embedding: EmbeddingOption = "",
) -> None:
    """Shows runs in the browser by a server on this machine. It follows running sweeps and writes nothing.

    Other users of the machine can reach the port. So the address that is printed holds a token, without which nothing is
    shown.

    Example: openmaia view runs/demo
    """
    import secrets
    import socket

    import uvicorn

    from openmaia.core.errors import UsageError
    from openmaia.reporting.browser.serve import application
    from openmaia.runs.run import Run

    token = secrets.token_urlsafe(24)
    served = application([Run.open(path) for path in runs], text_embedding(embedding), token)
    with socket.socket() as listener:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            listener.bind(("127.0.0.1", port))
        except OSError as error:
            raise UsageError(
                f"port {port} cannot be used ({error.strerror}); give another one (--port 0 takes a free one)"
            ) from error
        print(f"view: http://127.0.0.1:{listener.getsockname()[1]}/?token={token} (Ctrl-C ends it)", flush=True)
        uvicorn.Server(uvicorn.Config(served, log_level="warning", access_log=False, ws="none")).run(sockets=[listener])
