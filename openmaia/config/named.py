"""The configs that come with the program, and the file that a config source means."""

from functools import cache
from itertools import takewhile
from pathlib import Path

from openmaia.config.suggestions import suggest
from openmaia.core.errors import UsageError
from openmaia.core.shipped import shipped

_SUFFIX = ".yaml"
_PRICES = "prices"  # a table in the same folder, no config


@cache
def shipped_configs() -> dict[str, Path]:
    """Returns the path of each config that comes with the program, by its name: that of its file without the suffix.

    Whole configs come before those of models and of machines.
    """
    folder = shipped("configs")
    found = (path for pattern in ("*", "*/*") for path in sorted(folder.glob(f"{pattern}{_SUFFIX}")))
    return {path.stem: path for path in found if path.stem != _PRICES}


def summarize(path: Path) -> str:
    """Returns the first sentence of the comment at the head of a shipped config, without the colon or full stop at its end."""
    lines = takewhile(lambda line: line.startswith("#"), path.read_text("utf-8").splitlines())
    text = " ".join(line.removeprefix("#").strip() for line in lines)
    return text.partition(". ")[0].rstrip(".:")


def shipped_config(name: str) -> Path | None:
    """Returns the file of the shipped config of this name, which may be written with its suffix; None if there is none."""
    return shipped_configs().get(name.removesuffix(_SUFFIX))


def find_shipped(name: str) -> Path:
    """Returns what `shipped_config` finds. Raises UsageError if it finds nothing."""
    if (path := shipped_config(name)) is None:
        raise UsageError(f"{name!r} is no config that comes with the program: {what_to_give(name)}")
    return path


def find_config(source: str) -> Path | None:
    """Returns the file that a source of a config means: that at this path, or else the shipped config of this name.

    None for `key=value`, and for what is neither.
    """
    path = Path(source)
    try:
        found = path.is_file()
    except OSError:  # a long list of units, for example, is too long for the name of a file
        found = False
    return path if found else shipped_config(source)


def what_to_give(source: str) -> str:
    """Returns advice for a source that is neither a config nor `key=value`."""
    name = Path(source).name.removesuffix(_SUFFIX)
    if name in shipped_configs():
        return f"a config of this name comes with the program: {name}"
    near = " or ".join(suggest(name, shipped_configs()))
    return f"did you mean {near}? `openmaia configs` lists those that come with the program"
