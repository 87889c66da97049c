"""`openmaia show`, `view` and `report`: they look at runs and change none."""

import contextlib
import json
from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated

import typer

from openmaia.cli.commands.common import EmbeddingOption, RunPath, RunPaths, print_damage, print_report, text_embedding
from openmaia.core.text import printable

if TYPE_CHECKING:
    from collections.abc import Generator, Sequence

    from starlette.applications import Starlette

    from openmaia.models.text_embedding import TextEmbedding
    from openmaia.runs.run import Run


def show(
    path: RunPath,
    as_json: Annotated[bool, typer.Option("--json", help="Print all units for programs.")] = False,
    watch: Annotated[bool, typer.Option("--watch", help="Repeat until the run ends.")] = False,
    agents: Annotated[
        bool, typer.Option("--agents", help="Show how well the agents follow the protocol, to compare backbones.")
    ] = False,
) -> None:
    """Shows progress, failures and verdicts of a run in the terminal.

    It can be used while the run continues.

    Example: openmaia show runs/demo --watch
    """
    from openmaia.evaluation.metric import columns
    from openmaia.runs.run import InvestigationId, Run
    from openmaia.runs.snapshot import Snapshot
    from openmaia.runs.state import state

    run = Run.open(path)
    if agents:
        from openmaia.agent.tasks.task import load
        from openmaia.analysis.conduct import conduct
        from openmaia.cli.terminal.runs import show_conduct

        counted = conduct(run.records(), load(run.config()["task"]["name"]).answer)
        print(json.dumps(asdict(counted), ensure_ascii=False)) if as_json else show_conduct(run.name, counted)
        return
    if as_json:
        from openmaia.evaluation.analysis.significance import supported_shares
        from openmaia.evaluation.analysis.verdict import run_verdicts

        verdicts = run_verdicts(run)
        document = state(run, ["outcome", *columns()])
        document["units"] = [row | verdicts[InvestigationId.of_row(row)].columns for row in document["units"]]
        document["supported"] = supported_shares(run)
        print(json.dumps(document, ensure_ascii=False))
        return
    from openmaia.cli.terminal import runs

    if watch:
        with contextlib.suppress(KeyboardInterrupt):
            runs.watch(run)
        return
    run = Snapshot.of_run(run)
    runs.show_state(run, run.config()["evaluate"]["bootstrap"])
    if len(run.done()) <= runs.READ_EVALUATIONS:
        print_damage(run)


def report(runs: RunPaths, embedding: EmbeddingOption = "") -> None:
    """Writes an HTML report about one or several runs.

    It shows all experiments, verdicts and figures, and is written to the directory of the first run.

    Examples:

    openmaia report runs/demo

    openmaia report runs/demo --embedding sentence-transformers/all-MiniLM-L6-v2
    """
    from openmaia.runs.run import Run

    print_report(runs, embedding)
    for path in runs:
        print_damage(Run.open(path))


def view(
    runs: RunPaths,
    port: Annotated[
        int, typer.Option(help="The port on this machine; 0 for any that is free.", min=0, max=65535)
    ] = 8764,
    embedding: EmbeddingOption = "",
    live: Annotated[
        bool,
        typer.Option("--live", help="Load the network of the run, for pictures and prompts of yours on its pages."),
    ] = False,
    control: Annotated[
        bool,
        typer.Option(
            "--control", help="Let the pages pause, resume and stop the runs, and repeat units (openmaia ctl)."
        ),
    ] = False,
    votes: Annotated[bool, typer.Option("--votes", help="Let readers vote on descriptions, and correct them.")] = False,
) -> None:
    """Shows runs in the browser, and follows running sweeps.

    It starts a server on this machine and writes nothing, except orders to the runs with --control, and votes with --votes. Other users of the
    machine can reach its port. So the address that is printed holds a token, without which nothing is shown.

    With --live, it loads what the config of one run names, as openmaia run does, with code of the user: the network, and
    the generator if it needs no server and its weights are here. Pools of the run that are kept up are used instead.

    Examples:

    openmaia view runs/demo

    openmaia view runs/demo --live

    openmaia view runs/demo --control

    openmaia view runs/demo --votes
    """
    import secrets
    import socket

    import uvicorn

    from openmaia.core.errors import UsageError
    from openmaia.reporting.browser.pages import CONTROL, VOTES
    from openmaia.reporting.browser.serve import application
    from openmaia.runs.run import Run

    token, opened, embed = secrets.token_urlsafe(24), [Run.open(path) for path in runs], text_embedding(embedding)
    allows = [action for action, is_allowed in ((CONTROL, control), (VOTES, votes)) if is_allowed]
    with contextlib.ExitStack() as models, socket.socket() as listener:
        if live:
            served = models.enter_context(_live(opened, embed, token, allows))
        else:
            served = application(opened, embed, token, allows=allows)
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            listener.bind(("127.0.0.1", port))
        except OSError as error:
            raise UsageError(
                f"port {port} cannot be used ({error.strerror}); give another one (--port 0 takes a free one)"
            ) from error
        print(f"view: http://127.0.0.1:{listener.getsockname()[1]}/?token={token} (Ctrl-C ends it)", flush=True)
        uvicorn.Server(uvicorn.Config(served, log_level="warning", access_log=False, ws="none")).run(sockets=[listener])


@contextlib.contextmanager
def _live(
    runs: "Sequence[Run]", embed: "TextEmbedding | None", token: str, allows: list[str]
) -> "Generator[Starlette]":
    """Context manager that loads the models of a run and yields the application with its boxes for pictures and prompts."""
    from openmaia.core.errors import UsageError
    from openmaia.serving.laboratory import Laboratory
    from openmaia.serving.live import live_application

    if len(runs) != 1:
        raise UsageError(f"--live loads the network of one run, and {len(runs)} were given; give one")
    print("live: loading the models of the run", flush=True)
    with Laboratory.opened(runs[0]) as laboratory:
        print(f"live: {printable(laboratory.said)}", flush=True)
        yield live_application(runs[0], laboratory, embed, token, allows=allows)
