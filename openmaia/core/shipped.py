"""Files that come with the program beside its code: the configs, and what jobs on clusters need."""

from pathlib import Path

_INSTALLED = Path(__file__).parents[1] / "shipped"
_CLONE = Path(__file__).parents[2]


def shipped(name: str) -> Path:
    """Returns the folder `configs` or `cluster`, in the installed package or in the clone."""
    return (_INSTALLED if _INSTALLED.is_dir() else _CLONE) / name


def install_command(extras: str) -> str:
    """Returns the command that adds optional dependencies, such as `gpu,quantized`."""
    return f'pip install "openmaia[{extras}]"' if _INSTALLED.is_dir() else f'pip install -e ".[{extras}]" in the clone'
