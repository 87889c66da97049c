"""Weights that a config names: on this machine, to be fetched, out of reach or damaged."""

import json
from collections import Counter
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from openmaia.doctor.files import UNTOLD, File, Files, damage, lacking, of_cache, of_folder, stored
from openmaia.doctor.finding import Finding, missing, note, ok, spoken
from openmaia.doctor.hub import Answer, Hub
from openmaia.doctor.sources import Source
from openmaia.generators.diffusion.hub import located

ASKED_AT_ONCE = 8

Parts = dict[str, Counter[str]]
"""Part of a pipeline ('' where there is but one) -> bytes by type."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Weights:
    """What became known of a source. to_fetch: bytes. settings: its config.json. silent: why the hub did not answer."""

    source: Source
    finding: Finding
    parts: Parts = field(default_factory=Parts)
    to_fetch: int = 0
    settings: dict[str, Any] = field(default_factory=dict[str, Any])
    silent: str = ""


def look(sources: Sequence[Source], hub: Hub) -> list[Weights]:
    with ThreadPoolExecutor(ASKED_AT_ONCE) as pool:
        return list(pool.map(lambda source: _look(source, hub), sources))


def silence(looked: Sequence[Weights], hub: Hub) -> list[Finding]:
    """One note for a hub that is away, however many models were asked for."""
    reasons = [weights.silent for weights in looked if weights.silent]
    if not reasons:
        return []
    if hub.offline:
        return [note("HF_HUB_OFFLINE is set: the model hub is not asked, and nothing is fetched")]
    return [note(f"the model hub at {hub.endpoint} cannot be reached ({reasons[0]}): nothing can be fetched from here")]


def _look(source: Source, hub: Hub) -> Weights:
    folder = Path(located(source.given))
    if folder.is_dir():
        return _judged(source, of_folder(folder), Answer(), hub, local=True)
    if folder.exists() or folder.is_absolute() or source.given.startswith((".", "~")) or source.given.count("/") > 1:
        return Weights(source=source, finding=missing(f"{_given(source)} is no folder", f"{source.key}=… or a hub id"))
    answer = hub.ask(source.given, source.revision)
    commit, cached = of_cache(source.given, source.revision, hub.cache)
    return _judged(source, _joined(commit, cached, answer), answer, hub, local=False)


def _joined(commit: str, cached: Files, answer: Answer) -> Files:
    """What the cache has of what the hub lists; a file of an earlier commit counts where it is the same still."""
    if not answer.sizes:
        return cached
    joined = {name: File(size=size, path=None) for name, size in answer.sizes.items()}
    for name, file in cached.items():
        # The cache names large files by their SHA-256.
        same = file.path is not None and (
            commit == answer.commit or file.path.resolve().name == answer.digests.get(name)
        )
        if name in joined and same:
            joined[name] = File(size=file.size, path=file.path, published=answer.sizes[name])
    return joined


def _judged(source: Source, files: Files, answer: Answer, hub: Hub, local: bool) -> Weights:
    parts = source.weights(files)
    weights = {name: files[name] for names in parts.values() for name in names}
    owed = sum(file.size for file in weights.values() if file.path is None)
    wrong = _unusable(source, files, weights, parts, local) if weights else _absent(source, answer, hub, local)
    if owed and answer.refused and not wrong:
        wrong = missing(f"{_given(source)} ({spoken(owed)} to be fetched) {answer.refused[0]}", answer.refused[1])
    return Weights(
        source=source,
        finding=wrong or _found(source, weights.values(), owed, hub, local),
        parts={} if wrong and not owed else _held(files, parts, answer),
        to_fetch=0 if wrong else owed,
        settings={} if wrong and not owed else _settings(source, files, answer, hub),
        silent=answer.silent,
    )


def _found(source: Source, weights: Any, owed: int, hub: Hub, local: bool) -> Finding:
    held = spoken(sum(file.size for file in weights if file.path is not None))
    if not owed:
        return ok(f"{_given(source)}: {held} {'in that folder' if local else 'in the Hugging Face cache'}")
    beside = f" ({held} is there)" if any(file.path for file in weights) else ""
    files = ' --include "*/*" "*.json"' if source.layout == "diffusers" else ""
    return note(
        f"{_given(source)}: {spoken(owed)} to be fetched into {hub.cache}{beside}",
        f"the run fetches it when it starts; before that: hf download {source.given}{files}",
    )


def _absent(source: Source, answer: Answer, hub: Hub, local: bool) -> Finding:
    """There are no weights, neither here nor listed by the hub."""
    if answer.refused:
        return missing(f"{_given(source)} {answer.refused[0]}", answer.refused[1])
    if answer.silent:
        why = "HF_HUB_OFFLINE is set" if hub.offline else "the hub cannot be reached"
        remedy = f"hf download {source.given} where it can, and HF_HOME of that cache; or {source.key}=FOLDER"
        return missing(f"{_given(source)} is not on this machine, and {why}", remedy)
    holder = "that folder" if local else "the repository"
    return missing(f"{_given(source)}: {holder} holds no weights in the layout of {source.layout}", f"{source.key}=…")


def _unusable(source: Source, files: Files, weights: Files, parts: dict[str, list[str]], local: bool) -> Finding | None:
    again = f"copy {source.given} again" if local else f"hf download {source.given} --force-download"
    if absent := lacking(files, parts):
        return missing(f"{_given(source)} lacks {len(absent)} files of weights: {', '.join(absent[:3])}", again)
    if bare := source.bare(files):
        return missing(f"{_given(source)} has no weights for its {', '.join(bare)}", again)
    for name, file in weights.items():
        if why := damage(file):
            return missing(f"{_given(source)}: {name} ({file.size} bytes) is truncated or damaged: {why}", again)
    return None


def _held(files: Files, parts: dict[str, list[str]], answer: Answer) -> Parts:
    commonest = max(answer.dtypes, key=lambda name: answer.dtypes[name], default=UNTOLD)
    held: Parts = {}
    for part, names in parts.items():
        total = sum((stored(files[name]) for name in names), Counter[str]())
        held[part] = Counter({commonest if kind == UNTOLD else kind: size for kind, size in total.items()})
    return held


def _settings(source: Source, files: Files, answer: Answer, hub: Hub) -> dict[str, Any]:
    """Of a language model, whose config tells what a conversation takes."""
    if source.role != "backbone":
        return {}
    name = next((name for name in ("config.json", "params.json") if name in files), "")
    path = files[name].path if name else None
    if path is not None:
        read = json.loads(path.read_text(encoding="utf-8"))
        return read if isinstance(read, dict) else {}
    return hub.json(source.given, source.revision, name) if name and not answer.refused else {}


def _given(source: Source) -> str:
    return f"{source.key}={source.given}"
