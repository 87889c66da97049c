"""`openmaia.ask`: a question about a run, answered with units and their evidence."""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from openmaia.api.runs import LoadedRun
from openmaia.core.errors import UsageError
from openmaia.core.secrets import boundary
from openmaia.runs.run import Run

if TYPE_CHECKING:
    from openmaia.assembly.asking import RunAnswer


@boundary()
def ask(
    run: LoadedRun | str | Path,
    question: str = "",
    *,
    pictures: Sequence[str | Path] = (),
    why: str | Path = "",
    named: str = "",
    model: str = "",
    embedding: str = "",
) -> "RunAnswer":
    """Answers a question about a run with units and their evidence, as the command `openmaia ask` does.

    Args:
        run: A run of `openmaia.load` or `openmaia.sweep`, or the path of a run directory.
        question: Words, with the layers that they are about and conditions, such as `"which units of layer4 respond to
            forests?"` or `"forests verdict:supported score>0.8"`.
        pictures: Image files. Units answer that respond to all of them.
        why: An image file. The units are found that matter for what the network predicts for it. It stands alone.
        named: The class that `why` is about. Empty: the predicted one.
        model: A config with a backbone that says the answer in words, or `run` for the run's own. Empty: none does.
        embedding: A model of sentence-transformers that compares texts by meaning. Empty: they are compared by words.

    Returns:
        The answer. `units` holds the units that were found, the best first, each with its `name`, `labels`, `verdict`, `score`
        and `evidence`; `phrased` is the text of the model.

    Raises:
        UsageError: An argument is invalid.

    Example:
        >>> answer = openmaia.ask("runs/demo", "which units of stage4 respond to boats?")
        >>> [(unit.name, unit.labels, unit.verdict, unit.evidence) for unit in answer.units]
    """
    from openmaia.assembly.asking import RunQuestions
    from openmaia.models.text_embedding import load_text_embedding

    if why and (question or pictures):
        raise UsageError("why asks about one picture alone; leave out question and pictures")
    if named and not why:
        raise UsageError("named is the class that why is about; give the picture as why")
    opened = run.run if isinstance(run, LoadedRun) else Run.open(str(run))
    asked = RunQuestions(opened, load_text_embedding(embedding) if embedding else None)
    answer = asked.why(str(why), named) if why else asked.ask(question, [str(each) for each in pictures])
    return asked.phrase(answer, model) if model else answer
