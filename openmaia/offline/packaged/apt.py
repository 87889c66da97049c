"""Downloads and unpacks Debian packages without root and without changing the package lists of the system."""

import os
import re
import shutil
import subprocess
from collections.abc import Callable, Sequence
from pathlib import Path

from openmaia.core.errors import ServiceError

_UPDATE_SECONDS, _DOWNLOAD_SECONDS, _UNPACK_SECONDS = 300, 1800, 300

_ABSENT = re.compile(r"Unable to locate package|no installation candidate|has no candidate")


def fetch(packages: Sequence[str], work: Path, progress: Callable[[str], None]) -> dict[str, Path]:
    """Downloads and unpacks packages.

    Args:
        work: An empty folder for the downloads and the unpacked packages.

    Returns:
        By package name, the folder with its unpacked files. Packages that are not in the archive of this system are
            left out.

    Raises:
        ServiceError: apt is not installed or cannot reach an archive.
    """
    if shutil.which("apt-get") is None or shutil.which("dpkg-deb") is None:
        raise ServiceError("apt-get and dpkg-deb are not installed")
    options = _private(work / "apt")
    progress("reading the package lists of the archive")
    # The exit code is ignored: one broken third-party source is enough to fail the update.
    _run(["apt-get", *options, "update"], work, _UPDATE_SECONDS)
    trees: dict[str, Path] = {}
    for package in packages:
        progress(f"downloading {package}")
        archive = _download(package, options, work)
        if archive is None:
            progress(f"{package} is not in the archive of this system")
            continue
        trees[package] = _unpack(archive, work / "trees" / package)
        archive.unlink()
    return trees


def version(tree: Path) -> str:
    """Returns the version of the package that `fetch` unpacked into `tree`."""
    return (tree / "VERSION").read_text(encoding="utf-8")


def _private(root: Path) -> list[str]:
    # The sources and keys are still the system's.
    for folder in ("lists/partial", "cache/archives/partial"):
        (root / folder).mkdir(parents=True, exist_ok=True)
    settings = {
        "Dir::State::lists": root / "lists",
        "Dir::Cache": root / "cache",
        "Acquire::Languages": "none",
        "Acquire::Retries": "2",
        "Acquire::http::Timeout": "30",
        # As root, apt would switch to the user _apt, who may not enter our cache.
        "APT::Sandbox::User": "root",
    }
    return [part for name, value in settings.items() for part in ("-o", f"{name}={value}")]


def _download(package: str, options: list[str], work: Path) -> Path | None:
    # Separate package lists first, then those of the system. None if neither contain the package.
    outputs: list[str] = []
    for lists in (options, []):
        outputs.append(_run(["apt-get", *lists, "download", package], work, _DOWNLOAD_SECONDS))
        archives = sorted(work.glob(f"{package}_*.deb"))
        if archives:
            return archives[-1]
    if all(_ABSENT.search(output) for output in outputs) and any((work / "apt" / "lists").glob("*_Packages*")):
        return None
    raise ServiceError(f"apt-get could not download {package}", detail="\n".join(outputs))


def _unpack(archive: Path, tree: Path) -> Path:
    tree.mkdir(parents=True)
    output = _run(["dpkg-deb", "-x", str(archive), str(tree)], tree, _UNPACK_SECONDS)
    if not (tree / "usr").is_dir():
        raise ServiceError(f"dpkg-deb could not unpack {archive.name}", detail=output)
    (tree / "VERSION").write_text(archive.name.split("_")[1], encoding="utf-8")
    return tree


def _run(command: list[str], folder: Path, seconds: int) -> str:
    # Callers check the resulting files instead of the exit code.
    environment = {**os.environ, "LC_ALL": "C", "DEBIAN_FRONTEND": "noninteractive"}
    try:
        done = subprocess.run(
            command, cwd=folder, env=environment, stdin=subprocess.DEVNULL, capture_output=True, text=True,
            errors="replace", timeout=seconds, check=False,
        )  # fmt: skip
    except (OSError, subprocess.TimeoutExpired) as error:
        raise ServiceError(f"{command[0]} did not finish: {error}") from error
    return done.stdout + done.stderr
