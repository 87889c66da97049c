"""`openmaia ablate`."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated

import typer

from openmaia.commands.common import Config, stoppable
from openmaia.errors import UsageError

if TYPE_CHECKING:
    from openmaia.schema import Config as Settings

Other = Annotated[
    list[str] | None,
    typer.Option(
        help="YAML file or key=value that makes the other generator, such as configs/models/sd15.yaml; repeat it"
    ),
]
Sets = Annotated[str, typer.Option(help="tool sets, with commas between them; empty: all that can be run")]


def ablate(config: Config, other: Other = None, sets: Sets = "") -> None:
    """What each instrument adds: the same units with exemplars only, generation only, no editing, another generator. A run
    directory for each tool set; resumes by itself."""
    from openmaia.evaluate.ablation import rows
    from openmaia.figures.papers.ablations import as_csv
    from openmaia.remote.ablation import ablation
    from openmaia.store.files import Files
    from openmaia.terminal.ablation import show_ablation
    from openmaia.terminal.progress import Terminal

    planned = plans(config, other or [], sets)
    base = next(iter(planned.values()))
    with stoppable(), Terminal() as terminal:
        runs = ablation(planned, terminal)
    found = rows(runs, base.evaluate.bootstrap)
    name = base.name.rsplit("-ablation-", 1)[0]
    show_ablation(name, found, base.generator.diffusion.model or base.generator.kind)
    place = Files(base.paths.runs)
    place.write(f"{name}-ablation.csv", as_csv(found, base.target.name))
    print(f"table: {place.path(f'{name}-ablation.csv')}")
    failed = {name: count for name, run in runs.items() if (count := len(run.failures()))}
    if failed:
        print("failed: " + ", ".join(f"{count} units of {name}" for name, count in failed.items()))
        raise SystemExit(1)


def plans(sources: Sequence[str], other: Sequence[str], sets: str) -> "dict[str, Settings]":
    """A config for each tool set. Raises UsageError for one that makes no sense."""
    from openmaia.config import load
    from openmaia.evaluate.ablation import FULL, OTHER, SETS

    base = load(sources)
    _refuse(base)
    wanted = [name.strip() for name in sets.split(",") if name.strip()]
    wanted = wanted or [name for name in SETS if name != OTHER or other]
    for name in wanted:
        if name not in SETS or wanted.count(name) > 1:
            raise UsageError(f"--sets={sets}: {name!r} is unknown or named twice; expected some of {', '.join(SETS)}")
    if FULL not in wanted:
        raise UsageError(f"--sets={sets}: the other tool sets are compared with {FULL!r}; name it, too")
    if (OTHER in wanted) != bool(other):
        raise UsageError(f"the tool set {OTHER!r} and --other, which says what the other generator is, go together")
    made = {
        name: load(
            [*sources, *(other if name == OTHER else ()), f"name={base.name}-ablation-{name}", _without(SETS[name])]
        )
        for name in sorted(wanted, key=list(SETS).index)
    }
    if other:
        _refuse_same(made[FULL], made[OTHER], other)
    return made


def _without(names: Sequence[str]) -> str:
    return f"without=[{','.join(names)}]"


def _refuse(base: "Settings") -> None:
    from openmaia.tasks.task import load
    from openmaia.units import Scope

    if base.backbone.kind == "replay":
        raise UsageError(
            "backbone.kind=replay says the same whatever instruments there are; ablate with a backbone that thinks anew"
        )
    if base.without:
        raise UsageError(f"without={base.without}: an ablation leaves instruments out itself; leave this key out")
    task = load(base.task.name)
    if task.scope is not Scope.UNIT or task.answer.choices:
        raise UsageError(
            f"task.name={base.task.name}: its answers are not tested by images, so that tool sets cannot be compared; "
            "give a task about a unit, such as description"
        )


def _refuse_same(full: "Settings", other: "Settings", given: Sequence[str]) -> None:
    from openmaia.config import differing_keys, to_dict

    changed = [key for key in differing_keys(to_dict(full), to_dict(other)) if key not in ("name", "without")]
    foreign = [key for key in changed if not key.startswith(("generator.", "editor."))]
    if foreign or not any(key.startswith("generator.") for key in changed):
        raise UsageError(
            f"--other={' '.join(given)}: expected another generator and nothing else, and it changes "
            f"{', '.join(foreign or changed) or 'nothing'}"
        )
