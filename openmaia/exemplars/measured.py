"""Measures imported exemplars on images of the user.

Other projects publish only the top exemplars of each unit, and not how high their activations are beside those of other
images. The ordinary computation stores its results beside the imported ones, from where they are copied.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from typing import Any
from uuid import uuid4

from openmaia.config.schema import Config
from openmaia.core.errors import UsageError
from openmaia.core.services import UnitExemplars
from openmaia.core.units import Unit
from openmaia.exemplars.store import ExemplarStore
from openmaia.runs.files import safe

_SUFFIX = "-measured"
"""Suffix of the dataset's name in the path of the temporary store."""


def measure_imported(config: Config, compute: Callable[[Config], ExemplarStore]) -> tuple[ExemplarStore, list[str]]:
    """Adds statistics on images of the user to imported exemplars.

    The imported exemplars, their activations and mask thresholds stay unchanged. Percentiles, means, standard deviations
    and the exemplars of the kinds `bottom`, `random` and `ladder` replace those of an earlier measurement.

    Args:
        config: Names the target, its layers, its imported exemplars (`exemplars.dataset`) and the user's images.
        compute: Computes the exemplars of a config, and returns their store.

    Returns:
        The store with the imported exemplars, and the names of its layers that were measured.

    Raises:
        UsageError: The exemplars were not imported, the config names none of their layers, or the target lacks a unit
            that has imported exemplars.
    """
    name = config.exemplars.dataset or config.pictures.kind
    store = ExemplarStore.at(config.paths.exemplars, config.target.name, name)
    manifest = store.manifest() or {}
    if not manifest.get("imported"):
        raise UsageError(
            f"{store.files.root} holds no imported exemplars; import some with openmaia import, and name them by target.name "
            "and exemplars.dataset. Exemplars that OpenMAIA computed are measured already"
        )
    measured = compute(replace(config, exemplars=replace(config.exemplars, dataset=f"{name}{_SUFFIX}")))
    layers = [layer for layer in store.layers() if measured.units(layer)]
    if not layers:
        raise UsageError(
            f"{store.files.root} holds exemplars of {', '.join(store.layers())}, and target.layers reads "
            f"{', '.join(measured.layers())}; name the same layers"
        )
    for layer in layers:
        if unknown := store.units(layer) - measured.units(layer):
            raise UsageError(
                f"{store.files.root} holds exemplars of unit {min(unknown)} of {layer}, which {config.target.name} lacks; give "
                "the network that they were published for"
            )
        # A new name, because the present rows need the present images until they are replaced.
        earlier = [
            name
            for name in store.files.names("")
            if name.startswith(safe(layer + _SUFFIX)) and name.endswith(".pictures.arrow")
        ]
        store.write(layer, _joined(store, measured, config.target.name, layer), f"{layer}{_SUFFIX}-{uuid4().hex[:12]}")
        for name in earlier:
            store.files.delete(name)
    _note(store, manifest, measured)
    measured.files.above(1).delete_folder(measured.files.name)
    return store, layers


def _joined(store: ExemplarStore, measured: ExemplarStore, target: str, layer: str) -> Iterator[UnitExemplars]:
    for index in sorted(store.units(layer)):
        unit = Unit(target=target, layer=layer, index=index)
        imported, found = store.read(unit), measured.read(unit)
        own = (*imported.of_kind("top"), *(exemplar for exemplar in found.exemplars if exemplar.kind != "top"))
        yield replace(found, threshold=imported.threshold, exemplars=own)


def _note(store: ExemplarStore, manifest: Mapping[str, Any], measured: ExemplarStore) -> None:
    facts = {key: value for key, value in manifest.items() if key != "version"}
    images = (measured.manifest() or {}).get("pictures", "")
    store.write_manifest({**facts, "measured_on": images})
