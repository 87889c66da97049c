"""Writes the descriptions of a run as explanations for programs that study features of language models.

neuronpedia: <to>/<target>/<layer>/explanations/batch-<n>.jsonl.gz, one explanation per line, as Neuronpedia's own export
delphi:      <to>/explanations/<layer>_latent<index>.txt, one description as JSON, as delphi writes them

Both keep examples as texts of tokens, which images are not: exemplars and scores are left out.
"""

import gzip
import json
from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator
from pathlib import Path
from typing import Any

from openmaia.core.errors import UsageError
from openmaia.runs.files import safe
from openmaia.runs.records import Record, Stop

# Of Neuronpedia's export. Its import reads files of any size.
_BATCH = 1024

_METHOD = "openmaia"
"""Name of the kind of explanations, which a server has to know."""


def write_neuronpedia(records: Iterable[Record], to: Path) -> list[str]:
    """Writes all descriptions, those of replicates as well. Returns lines for the user.

    Raises:
        UsageError: There is no description, or the folder of a layer exists.
    """
    by_layer: defaultdict[tuple[str, str], list[dict[str, Any]]] = defaultdict(list)
    for record in _described(records):
        unit = record.unit
        by_layer[unit.target, unit.layer].append(_row(record, _plain(unit.layer)))
    lines: list[str] = []
    _check_some(by_layer)
    for (target, layer), rows in by_layer.items():
        folder = _new(to / safe(target) / _plain(layer) / "explanations")
        for number, first in enumerate(range(0, len(rows), _BATCH)):
            text = "".join(json.dumps(row) + "\n" for row in rows[first : first + _BATCH])
            # Without a time in the file, equal runs give equal files.
            (folder / f"batch-{number}.jsonl.gz").write_bytes(gzip.compress(text.encode(), mtime=0))
        lines.append(f"{target}/{layer}: {len(rows)} explanations -> {folder}")
    return lines


def write_delphi(records: Iterable[Record], to: Path) -> list[str]:
    """Writes one description per unit, that of its first replicate that has one. Returns lines for the user.

    Raises:
        UsageError: There is no description, the run has several targets, or the folder exists.
    """
    texts: dict[str, str] = {}
    targets: set[str] = set()
    for record in _described(records):
        targets.add(record.unit.target)
        texts.setdefault(f"{_plain(record.unit.layer)}_latent{record.unit.index}", record.description)
    if len(targets) > 1:
        raise UsageError(f"the run has the targets {', '.join(sorted(targets))}; delphi keeps one model in a folder")
    _check_some(texts)
    folder = _new(to / "explanations")
    for name, text in texts.items():
        (folder / f"{name}.txt").write_text(json.dumps(text, ensure_ascii=False), encoding="utf-8")
    return [f"{len(texts)} explanations -> {folder}"]


def _described(records: Iterable[Record]) -> Iterator[Record]:
    return (record for record in records if record.stop is Stop.ANSWER and record.description)


def _check_some(found: Collection[Any]) -> None:
    if not found:
        raise UsageError("the run holds no description")


def _new(folder: Path) -> Path:
    try:
        folder.mkdir(parents=True)
    except FileExistsError as error:
        raise UsageError(f"{folder} exists already; give another folder, or remove it") from error
    except OSError as error:
        raise UsageError(f"{folder} cannot be written: {error.strerror or error}") from error
    return folder


def _plain(layer: str) -> str:
    """Returns the name of a layer as both programs use it in the names of files and in URLs."""
    return safe(layer.replace("/", "--"))


def _row(record: Record, layer: str) -> dict[str, Any]:
    unit = record.unit
    return {
        "id": f"{_METHOD}-{unit.target}-{layer}-{unit.index}-{record.replicate}",
        "modelId": unit.target,
        "layer": layer,
        "index": str(unit.index),
        "authorId": "",
        "description": record.description,
        "embedding": None,
        "typeName": _METHOD,
        "explanationModelName": record.backbone,
        "umap_x": 0,
        "umap_y": 0,
        "umap_cluster": 0,
        "umap_log_feature_sparsity": 0,
    }
