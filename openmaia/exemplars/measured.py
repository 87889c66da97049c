"""Measures what imported exemplars lack, over images that the user names.

Published exemplars are the images with the highest activations and nothing else. How high an activation is among other images
is unknown until the target is run on some. The ordinary computation does that, in a store of its own beside the imported one.
Its statistics, and its exemplars of the other kinds, then join the imported ones.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from typing import Any

from openmaia.config.schema import Config
from openmaia.core.errors import UsageError
from openmaia.core.services import UnitExemplars
from openmaia.core.units import Unit
from openmaia.exemplars.store import ExemplarStore
from openmaia.runs.files import Files

SUFFIX = "-measured"
"""Ends the name of the dataset of the store with the measurements, which is deleted when they have joined the imported ones."""


def measure_imported(config: Config, compute: Callable[[Config], ExemplarStore]) -> tuple[ExemplarStore, list[str]]:
    """Measures the imported exemplars of a target on the images of a config.

    The imported images, activations and thresholds stay. Percentiles, means and deviations are those on the images of the
    config, and so are the exemplars of the kinds `bottom`, `random` and `ladder`. An earlier measurement is replaced.

    Args:
        config: Names the target, its imported exemplars (`exemplars.dataset`) and the images.
        compute: Computes the exemplars of the layers of a config, and returns their store.

    Returns:
        The store with the imported exemplars, and the names of its layers that were measured.

    Raises:
        UsageError: The exemplars were not imported, or the target lacks one of their layers or units.
    """
    name = config.exemplars.dataset or config.pictures.kind
    store = ExemplarStore.at(config.paths.exemplars, config.target.name, name)
    manifest = store.manifest() or {}
    if not manifest.get("imported"):
        raise UsageError(
            f"{store.files.root} holds no imported exemplars; import some with openmaia import-maia, and name them by target.name "
            "and exemplars.dataset. Exemplars that OpenMAIA computed are measured already"
        )
    measured = compute(replace(config, exemplars=replace(config.exemplars, dataset=f"{name}{SUFFIX}")))
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
        store.write(layer, _joined(store, measured, config.target.name, layer), f"{layer}{SUFFIX}")
    _note(store, manifest, measured)
    folder, _, measured_name = measured.files.root.rpartition("/")
    Files(folder).delete_folder(measured_name)
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
    store.files.delete("manifest.json")
    store.claim({**facts, "measured_on": images})
