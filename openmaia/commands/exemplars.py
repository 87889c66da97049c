"""`openmaia exemplars`."""

from functools import partial

from openmaia.commands.common import Config, stoppable


def exemplars(config: Config) -> None:
    """Exemplars of all units of the layers asked for (target.layers). Resumes by itself."""
    from openmaia.config import load

    settings = load(config)
    from openmaia.build import synthetic_units
    from openmaia.interchange.synthetic import write
    from openmaia.remote import exemplars as maker
    from openmaia.remote.cluster import cluster
    from openmaia.report.sheets import write_sheets
    from openmaia.terminal.progress import Terminal
    from openmaia.terminal.tables import exemplars_table
    from openmaia.units import Unit

    with stoppable(), Terminal() as terminal:
        terminal.say("starting Ray and loading the network")
        with cluster(settings):
            store = maker.make(settings, lambda info: list(info.layers), partial(terminal.progress, "exemplars"))
    exemplars_table(store, settings.target.name)
    print("drawing contact sheets")
    pages = write_sheets(store, settings.target.name, store.layers())
    print("\n".join(f"contact sheet: {page}" for page in pages))
    own, folder = synthetic_units(settings), store.files.local
    if own and folder is not None:
        ((mode, concepts),) = own.items()
        units = [Unit(target=settings.target.name, layer=mode, index=index) for index in range(len(concepts))]
        root = folder / "label-folders"
        labels = write(root, mode, concepts, [store.read(unit) for unit in units])
        print(f"label folders: {root} ({', '.join(labels)})")
