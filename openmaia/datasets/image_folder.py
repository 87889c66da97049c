"""Lists the files of an image folder whose subfolders may be splits, as `imagefolder` of Hugging Face datasets has them.

The library itself leaves out the images that a metadata file does not list, and those that are in no split if the names
of others look like splits.
"""

from pathlib import Path, PurePosixPath

from openmaia.core.errors import UsageError
from openmaia.core.paths import user_path
from openmaia.datasets import metadata, remote
from openmaia.datasets.folder import FileSource, ImageFolder
from openmaia.datasets.reading import SkipReason, UnusableSource
from openmaia.datasets.remote import RemoteFile, is_folder, is_url
from openmaia.datasets.scanning import ImageSource

_FOLDERS = {
    "train": ("train", "training"),
    "validation": ("validation", "valid", "val", "dev"),
    "test": ("test", "testing", "eval", "evaluation"),
}
"""Names of the folders that hold the splits."""


def list_files(place: str, split: str) -> list[ImageSource]:
    """Returns the files of one split, and those that a metadata file lists and that do not exist.

    Args:
        place: A folder, a file or a pattern: a path or a URL.
        split: Empty if there is only one.

    Raises:
        UsageError: There are no files, there is no such split, or a split has to be chosen. The message continues a
            sentence that begins with the name of the dataset.
    """
    root = place if is_url(place) else str(user_path(place).absolute())
    found = _found(place)
    by_split: dict[str, list[ImageSource]] = {}
    for source in found:
        by_split.setdefault(_split_of(source.name.removeprefix(remote.shown(root))), []).append(source)
    names = [name for name in by_split if name]
    if split and split not in (names or ["train"]):
        has = f"it has {', '.join(names)}" if names else "no folder has the name of a split"
        raise UsageError(f'cannot be loaded: Unknown split "{split}"; {has}')
    if len(names) > 1 and not split:
        raise UsageError(f"has the splits {', '.join(names)}; choose one with pictures.split")
    return by_split[split] if split and names else found


def _found(place: str) -> list[ImageSource]:
    if not is_url(place) and user_path(place).is_dir():
        return list(ImageFolder(user_path(place).absolute()).sources())
    paths = remote.find(place)
    missing = metadata.find_missing(paths, remote.read) if is_folder(place) else []
    images = (path for path in paths if PurePosixPath(path).name not in metadata.METADATA_FILES)
    return [
        *(RemoteFile(path) if is_url(path) else FileSource(Path(path)) for path in images),
        *(UnusableSource(path, SkipReason.MISSING) for path in missing),
    ]


def _split_of(path: str) -> str:
    """Returns the split whose folder is the first one of a path. Empty if there is none."""
    parts = PurePosixPath(path.lstrip("/")).parts
    return next((split for split, names in _FOLDERS.items() if len(parts) > 1 and parts[0].lower() in names), "")
