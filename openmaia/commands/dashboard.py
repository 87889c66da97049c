"""`openmaia dashboard`."""

from typing import Annotated

import typer


def dashboard(path: Annotated[str, typer.Argument(metavar="RUN", help="a run directory")]) -> None:
    """Write the run's W&B workspace as code, and save it to W&B where an account is there."""
    from openmaia.store.run import Run
    from openmaia.tracking.workspace import write

    written = write(Run.open(path))
    print(f"workspace: {written.file}")
    if written.url:
        print(f"saved to W&B: {written.url}")
    else:
        print("not saved to W&B: no account; log in (wandb login, or WANDB_API_KEY) and run this again")
