"""What the shell offers for an unfinished argument: config files, folders and config keys, or run directories.

Shells print what a completion script writes, so that names with control characters are left out.
"""

from collections.abc import Iterator
from pathlib import Path


def complete_config(incomplete: str) -> list[str]:
    """Returns YAML files, folders and shipped configs that begin like this, and config keys as `key=`.

    Keys are offered once something is typed, because there are hundreds.
    """
    found = list(_paths(incomplete, ".yaml", ".yml"))
    if incomplete and "/" not in incomplete:
        from openmaia.config.loading import config_keys
        from openmaia.config.named import shipped_configs

        found += [name for name in shipped_configs() if name.startswith(incomplete)]
        found += [f"{key}=" for key in config_keys() if key.startswith(incomplete)]
    return found


def complete_run(incomplete: str) -> list[str]:
    """Returns folders that begin like this; a run directory without the slash at its end."""
    return [
        path.removesuffix("/") if (Path(path).expanduser() / "config.yaml").is_file() else path
        for path in _paths(incomplete)
    ]


def _paths(incomplete: str, *suffixes: str) -> Iterator[str]:
    """Yields folders, with a slash at the end, and files with one of the suffixes, as the user began to write them."""
    folder, slash, start = incomplete.rpartition("/")
    try:
        entries = sorted(Path(folder + slash or ".").expanduser().iterdir())
    except (OSError, RuntimeError):  # It is no folder, or `~name` is nobody's home.
        return
    for entry in entries:
        name = entry.name
        if not name.startswith(start) or not name.isprintable() or (name.startswith(".") and not start):
            continue
        if entry.is_dir():
            yield f"{folder}{slash}{name}/"
        elif name.endswith(suffixes):
            yield f"{folder}{slash}{name}"
