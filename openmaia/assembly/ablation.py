"""Derives the configs of an ablation of tools from one config."""

from collections.abc import Sequence

from openmaia.agent.tasks.task import load as load_task
from openmaia.config.loading import differing_keys, load, refuse_unused_by, to_dict
from openmaia.config.schema import Config
from openmaia.core.components import of_config
from openmaia.core.errors import UsageError
from openmaia.core.tools import BANK
from openmaia.core.units import Scope
from openmaia.evaluation.analysis.ablation import FULL, OF_BANK, OTHER, SETS, WITHOUT_BANK


def ablation_configs(sources: Sequence[str], other: Sequence[str], sets: str) -> dict[str, Config]:
    """Returns a config for each set of tools of an ablation, by the name of the set.

    Args:
        sources: The YAML files and key=value overrides that all sets share.
        other: The sources that select another generator, for the set `other-generator`. Empty if this set is not run.
        sets: The names of the sets, separated by commas. If it is empty, all are run, but `other-generator` only if
            `other` is not empty, and those of the bank only if the config has one.

    Raises:
        UsageError: The task or the backbone of the config does not allow an ablation, or the config leaves out tools
            itself. Or a set is unknown or named twice, or needs a bank that the config has not, or the full set is missing. Or only one of `other` and the set
            `other-generator` is given. Or `other` does not change the generator, or changes something besides the
            generator and the editor.
    """
    base = load(sources)
    refuse_unused_by("openmaia study ablate", sources)
    _check_base(base)
    wanted = [name.strip() for name in sets.split(",") if name.strip()]
    available = [name for name in SETS if base.bank.images or name not in OF_BANK]
    wanted = wanted or [name for name in available if name != OTHER or other]
    for name in wanted:
        if name not in SETS or wanted.count(name) > 1:
            raise UsageError(f"--sets={sets}: {name!r} is unknown or named twice; expected some of {', '.join(SETS)}")
    if lacking := [name for name in wanted if name not in available]:
        raise UsageError(
            f"--sets={sets}: {', '.join(lacking)}: the config has no bank; give bank.images=1000, for example"
        )
    if FULL not in wanted:
        raise UsageError(f"--sets={sets}: the other tool sets are compared with {FULL!r}; name it, too")
    if (OTHER in wanted) != bool(other):
        raise UsageError(f"the tool set {OTHER!r} and --other, which says what the other generator is, go together")
    configs: dict[str, Config] = {}
    for name in sorted(wanted, key=list(SETS).index):
        withheld = [*SETS[name], *([BANK] if base.bank.images and name in WITHOUT_BANK else [])]
        own = [f"name={base.name}-ablation-{name}", f"without=[{','.join(withheld)}]"]
        if "text2image" in SETS[name]:  # nothing can be generated, so nothing is demanded
            own += ["task.evidence.experiments=0", "task.evidence.labels=0"]
        configs[name] = load([*sources, *(other if name == OTHER else ()), *own])
    if other:
        _check_other(configs[FULL], configs[OTHER], other)
    return configs


def _check_base(base: Config) -> None:
    if of_config(base.backbone).is_recorded:
        raise UsageError(
            f"backbone.kind={base.backbone.kind} gives the same replies whatever the tools; give a backbone that answers anew"
        )
    if base.without:
        raise UsageError(f"without={base.without}: an ablation leaves tools out itself; leave this key out")
    if base.shared.look_up:
        raise UsageError("shared.look_up=true: every tool set would have what other agents drew; leave this key out")
    task = load_task(base.task.name)
    if task.scope is not Scope.UNIT or task.answer.choices:
        raise UsageError(
            f"task.name={base.task.name}: its answers are not tested by images, so that tool sets cannot be compared; "
            "give a task about a unit, such as description"
        )


def _check_other(full: Config, other: Config, given: Sequence[str]) -> None:
    changed = [key for key in differing_keys(to_dict(full), to_dict(other)) if key not in ("name", "without")]
    foreign = [key for key in changed if not key.startswith(("generator.", "editor."))]
    if foreign or not any(key.startswith("generator.") for key in changed):
        raise UsageError(
            f"--other={' '.join(given)}: expected another generator and nothing else, and it changes "
            f"{', '.join(foreign or changed) or 'nothing'}"
        )
