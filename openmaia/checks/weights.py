"""Checks the weights that a config names, and the disk space for them.

The weights can be on this machine, have to be downloaded, be unavailable, or be damaged.
"""

import math
import shutil
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from huggingface_hub import DryRunFileInfo, HfApi, constants, hf_hub_download
from huggingface_hub.errors import HFValidationError
from huggingface_hub.file_download import repo_folder_name
from rich.filesize import decimal
from safetensors import SafetensorError, safe_open

from openmaia.config.schema import Config
from openmaia.config.sections import find_components
from openmaia.core.checks import Check, missing, note, ok
from openmaia.core.errors import UsageError
from openmaia.core.paths import nearest_existing
from openmaia.models.hub import hub_errors, located
from openmaia.models.weights import WeightSource

_SECONDS = 3.0
"""Seconds within which the hub must answer."""

_THREADS = 8

_ITEMSIZES = {"F64": 8, "F32": 4, "F16": 2, "BF16": 2}
"""Bytes per element of the floating-point types. Loading converts weights of these types to the requested type. Weights
of other types, such as quantized ones, are not converted."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WeightReport:
    """The result of checking a source of weights without loading them."""

    role: str
    """The pool whose replicas load the weights."""
    result: Check
    """Says whether the weights are usable, where they are, and how to get them if they are missing."""
    loaded: Mapping[str, float] = field(default_factory=dict[str, float])
    """Bytes of the loaded weights in memory, by part of a diffusers pipeline; empty if they are not known."""
    to_fetch: int = 0
    """Bytes that the run would download."""
    is_offloaded: bool = False
    """Whether only the largest part is on the GPU at a time."""


def weight_sources(config: Config) -> Iterator[WeightSource]:
    """Yields the weights that the config names by a folder or an id on the Hugging Face hub."""
    for component, settings, site in find_components(config):
        yield from component.weights(settings, site)


def inspect(sources: Iterable[WeightSource]) -> list[WeightReport]:
    """Checks the weight files of each source in its folder, or on the Hugging Face hub and in the hub's cache."""
    with ThreadPoolExecutor(_THREADS) as threads:
        return list(threads.map(_inspect, sources))


def inspect_network(network: str, answer: Mapping[str, Any]) -> WeightReport:
    """Checks whether the weights of a network of torchvision or timm are on this machine.

    Args:
        network: The name of the network in the config.
        answer: What `openmaia.models.probe.checkpoint` returned; empty if it did not return in time.
    """
    name, near = f"target.network={network}", ", ".join(answer.get("nearest", ()))
    if "hub" in answer:
        return _inspect(WeightSource(role="target", key="target.network", given=answer["hub"]))
    if "url" not in answer:
        result = (
            missing(f"{name} is not known; the nearest are {near}") if near else note(f"{name}: not looked up in time")
        )
        return WeightReport(role="target", result=result)
    path, count = Path(answer["path"]), int(answer["bytes"])
    to_fetch = 0 if path.is_file() else count  # torch.hub gives a download this name once it is whole.
    command = f"curl -L --create-dirs -o {path} {answer['url']}"
    result = ok(f"{name}: {decimal(count)} in {path.parent}")
    if to_fetch:
        result = note(f"{name}: {decimal(count)} to be fetched; the run does it, or before that: {command}")
    return WeightReport(role="target", result=result, loaded={"": count}, to_fetch=to_fetch)


def disk_space(reports: Iterable[WeightReport]) -> list[Check]:
    """Compares the size of the necessary downloads with the free disk space for the Hugging Face cache.

    Returns:
        A list with one check result, which says whether the space suffices. Empty if nothing has to be downloaded.
    """
    wanted, cache = sum(report.to_fetch for report in reports), Path(constants.HF_HUB_CACHE)
    free = shutil.disk_usage(nearest_existing(cache)).free
    text = f"disk: {decimal(wanted)} to be fetched, and {decimal(free)} are free in {cache}"
    if not wanted:
        return []
    return [ok(text) if wanted <= free else missing(f"{text}; set HF_HOME to another disk")]


def cached(source: WeightSource) -> Path | None:
    """Returns the folder in the Hugging Face cache that holds the weights of a repository on the hub.

    Returns None if the cache holds no weights of it, or if `source.given` cannot be the id of a repository.
    """
    try:
        root = Path(constants.HF_HUB_CACHE) / repo_folder_name(repo_id=source.given, repo_type="model")
    except HFValidationError:
        return None
    revision = source.revision or constants.DEFAULT_REVISION
    reference = root / "refs" / revision
    folder = root / "snapshots" / (reference.read_text().strip() if reference.is_file() else revision)
    names = [path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file()]
    return folder if source.files(names) else None


def _inspect(source: WeightSource) -> WeightReport:
    folder = Path(located(source.given))
    try:
        return _in_folder(source, folder, "in that folder") if folder.is_dir() else _on_hub(source)
    except UsageError as error:
        return WeightReport(role=source.role, result=missing(error.message))


def _on_hub(source: WeightSource) -> WeightReport:
    """Checks which files of a source are on the hub, and which of them are in the hub's cache on this machine.

    Raises UsageError if neither the hub nor the cache has weights of the model.
    """
    try:
        with hub_errors(source.key, source.given):
            files, types = _published(source)
    except UsageError:
        if folder := cached(source):
            return _in_folder(source, folder, "in the cache")
        raise
    if not files:
        raise UsageError(f"{source.key}={source.given!r} holds no weights; give another repository")
    sizes = {part: sum(file.file_size or 0 for file in group) for part, group in files.items()}
    to_fetch = sum(file.file_size or 0 for group in files.values() for file in group if file.will_download)
    text = f"{source.key}={source.given}: {decimal(sum(sizes.values()))}"
    result = ok(f"{text} in the cache")
    if to_fetch:
        text = f"{text}, of which {decimal(to_fetch)} are to be fetched into {constants.HF_HUB_CACHE}"
        result = note(f"{text}; the run does it, or before that: hf download {source.given}")
    loaded = {part: _loaded(source, count, types) for part, count in sizes.items()}
    return WeightReport(
        role=source.role, result=result, loaded=loaded, to_fetch=to_fetch, is_offloaded=source.is_offloaded
    )


def _published(source: WeightSource) -> tuple[dict[str, list[DryRunFileInfo]], Mapping[str, int]]:
    """Returns the files that are loaded by part of the pipeline, and the number of weights of each data type.

    The numbers of weights come from the hub. They are empty if the hub does not know them.
    """
    info = HfApi().model_info(source.given, revision=source.revision, timeout=_SECONDS)

    def look(name: str) -> DryRunFileInfo:
        return hf_hub_download(source.given, name, revision=info.sha, etag_timeout=_SECONDS, dry_run=True)

    parts = source.files(sibling.rfilename for sibling in info.siblings or [])
    with ThreadPoolExecutor(_THREADS) as threads:
        files = {part: list(threads.map(look, names)) for part, names in parts.items()}
    return files, info.safetensors.parameters if info.safetensors else {}


def _in_folder(source: WeightSource, folder: Path, place: str) -> WeightReport:
    """Checks the weights in a folder. Raises UsageError if there are none or if one is damaged."""
    name = f"{source.key}={source.given}"
    parts = source.files(path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file())
    if not parts:
        raise UsageError(f"{name} holds no weights {place}; download them again")
    loaded: dict[str, float] = {}
    total = 0
    for part, names in parts.items():
        types: Counter[str] = Counter()
        stored = sum((folder / file).stat().st_size for file in names)
        for file in names:
            try:
                types += _types(folder / file)
            except (SafetensorError, OSError) as error:
                raise UsageError(f"{name}: {file} is truncated or damaged ({error}); download it again") from error
        loaded[part] = _loaded(source, stored, types)
        total += stored
    result = ok(f"{name}: {decimal(total)} {place}")
    return WeightReport(role=source.role, result=result, loaded=loaded, is_offloaded=source.is_offloaded)


def _types(path: Path) -> Counter[str]:
    """Counts the weights of each data type in a safetensors file, by its header. Returns an empty count for files in
    other formats."""
    if path.suffix != ".safetensors":
        return Counter()
    with safe_open(path, framework="np") as opened:
        slices = [opened.get_slice(name) for name in opened.keys()]  # noqa: SIM118 (it is no mapping)
        return sum((Counter({each.get_dtype(): math.prod(each.get_shape())}) for each in slices), Counter[str]())


def _loaded(source: WeightSource, stored: int, types: Mapping[str, int]) -> float:
    """Estimates the bytes that weights take in memory.

    Args:
        source: The source of the weights.
        stored: Their bytes on disk.
        types: The number of weights of each data type; if it is empty, 16 bits per weight are assumed.
    """
    commonest = max(types, key=lambda name: types[name], default="BF16")
    return stored * source.itemsize / _ITEMSIZES[commonest] if commonest in _ITEMSIZES else stored
