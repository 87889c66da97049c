"""Further evaluations of a run RUN: RUN/evaluations/NAME tests the descriptions of RUN with another config."""

import copy
from collections.abc import Mapping
from typing import Any

from openmaia.config.loading import differing_keys, to_dict, to_yaml
from openmaia.config.schema import Config
from openmaia.core.errors import UsageError
from openmaia.runs.files import safe
from openmaia.runs.results import EVALUATIONS
from openmaia.runs.run import EXTENSIBLE, TEST_FOLDERS, Run


def further_evaluation(run: Run, name: str) -> Run:
    """Returns a further evaluation of a run, whose directory need not exist.

    Raises UsageError if the name cannot be the name of a folder, or the run is a further evaluation itself.
    """
    if run.source is not None:
        raise UsageError(
            f"{run.files.root} is a further evaluation; give the run itself ({run.source.root}) with --as {name}"
        )
    if not name.strip() or safe(name) != name:
        raise UsageError(f"--as {name!r}: expected a name of letters, digits, - and _, such as --as n60")
    return Run(run.files.inside(f"{EVALUATIONS}/{name}"), run.files)


def further_evaluations(run: Run) -> list[Run]:
    """Returns the further evaluations of a run, sorted by name; none if the run is one itself."""
    if run.source is not None:
        return []
    further = [further_evaluation(run, name) for name in run.files.folders(EVALUATIONS) if safe(name) == name]
    return [each for each in further if each.files.exists("config.yaml")]


def extended(config: dict[str, Any], source: Mapping[str, Any]) -> dict[str, Any]:
    """Returns a copy of `config` in which the keys in EXTENSIBLE have the values of `source`.

    These keys may be changed to add investigations to a run. A config that was stored earlier gets the current values.
    """
    changed = copy.deepcopy(config)
    for key in EXTENSIBLE:
        *sections, name = key.split(".")
        into, of = changed, source
        for section in sections:
            into, of = into[section], of[section]
        if name in of:  # a target need not have layers that a config chooses
            into[name] = of[name]
    return changed


def configure(further: Run, config: Config) -> None:
    """Saves the config of a further evaluation.

    Raises UsageError, with the keys that differ, if its directory holds results of another config.
    """
    is_new = not further.files.exists("config.yaml")
    changed = [] if is_new else differing_keys(extended(further.config(), to_dict(config)), to_dict(config))
    if changed and any(further.files.names(folder) for folder in TEST_FOLDERS):
        raise UsageError(
            f"{further.files.root} holds an evaluation of another config: {', '.join(changed)} differ. "
            "Give another name (--as NAME), or undo the change"
        )
    further.files.create()
    further.files.write("config.yaml", to_yaml(config).encode())
