"""`openmaia ask`: answers a question about a run with units and their evidence."""

import json
from typing import Annotated

import typer

from openmaia.cli.commands.common import EmbeddingOption, RunPath, print_damage, text_embedding
from openmaia.core.errors import UsageError


def ask(
    path: RunPath,
    question: Annotated[str, typer.Argument(help="Words, layers and conditions. See the examples.")] = "",
    picture: Annotated[
        list[str] | None,
        typer.Option(metavar="FILE", help="Find units that respond to this image. It loads the network."),
    ] = None,
    why: Annotated[
        str, typer.Option(metavar="FILE", help="Find the units that matter for what is predicted for this image.")
    ] = "",
    of: Annotated[str, typer.Option("--class", metavar="NAME", help="The class that --why is about.")] = "",
    model: Annotated[
        str,
        typer.Option(
            metavar="CONFIG",
            help="Let a language model say it in words and cite units: a config with a backbone, or `run` for that of the run.",
        ),
    ] = "",
    embedding: EmbeddingOption = "",
    top: Annotated[int, typer.Option(help="Units that are shown.", min=1)] = 20,
    as_json: Annotated[bool, typer.Option("--json", help="Print all units for programs.")] = False,
) -> None:
    """Answers a question about a run with units and their evidence.

    It searches labels and descriptions, and the images of the bank if the run has one. Conditions are those of the report's
    search box.

    Examples:

    openmaia ask runs/demo "which units of stage4 respond to boats?"

    openmaia ask runs/demo "boats verdict:supported score>0.8"

    openmaia ask runs/demo --picture boat.png

    openmaia ask runs/demo --why boat.png
    """
    from openmaia.assembly.asking import RunQuestions
    from openmaia.cli.terminal.asking import answer_document, show_answer
    from openmaia.runs.run import Run

    if why and (question or picture):
        raise UsageError("--why asks about one picture alone; leave out the question and --picture")
    if of and not why:
        raise UsageError("--class is the class that --why is about; give the picture with --why FILE")
    if not (question or picture or why):
        raise UsageError('give a question, such as "which units respond to boats?", or --picture FILE or --why FILE')
    run = Run.open(path)
    asked = RunQuestions(run, text_embedding(embedding))
    answer = asked.why(why, of) if why else asked.ask(question, picture or ())
    if model:
        answer = asked.phrase(answer, model)
    if as_json:
        print(json.dumps(answer_document(answer)))
        return
    show_answer(answer, top)
    print_damage(run)
