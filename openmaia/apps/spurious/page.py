"""Table 2 as a page, a figure and a table: ours and the published figures told apart."""

import json
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path

from markupsafe import Markup

from openmaia.apps.spurious.study import Outcome
from openmaia.apps.spurious.table import Row, Table, to_csv
from openmaia.figures.drawing import png, svg
from openmaia.figures.intervals import Given, chart
from openmaia.figures.scene import Scene
from openmaia.report.pages import application_page
from openmaia.schema import Config
from openmaia.store.files import Files

PAPER = "Spawrious O2O-Easy, ResNet-18 (MAIA paper, Table 2)"


def write(files: Files, config: Config, found: Table, outcomes: Sequence[Outcome], backbone: str) -> Path:
    """report/spurious.html, .svg, .png and .csv, and table.json with everything that they show."""
    ours = f"ours: mean, 95 % over {len(outcomes)} classifiers"
    rows = [_given(row) for row in found.rows]
    scene = chart(rows, "Accuracy on test pictures, where the places are exchanged", ours, f"published: {PAPER}")
    files.write("report/spurious.csv", to_csv(found))
    files.write("report/spurious.png", png(scene))
    files.write("report/spurious.svg", svg(scene))
    files.write("table.json", json.dumps(asdict(found)).encode())
    files.write("report/spurious.html", _page(config, found, outcomes, scene, backbone))
    return Path(files.path("report/spurious.html"))


def _page(config: Config, found: Table, outcomes: Sequence[Outcome], scene: Scene, backbone: str) -> bytes:
    asked = config.spurious
    return application_page(
        "openmaia.apps.spurious",
        "spurious.html.j2",
        name=config.name,
        network=config.target.network,
        backbone=backbone,
        is_collage=not asked.folder and config.generator.kind == "collage",
        is_drawn=not asked.folder,
        is_scripted=config.backbone.kind == "scripted",
        layer=config.target.layers[0],
        pairs=list(zip(asked.classes, asked.train_locations, asked.test_locations, strict=True)),
        filler=asked.filler,
        found=found,
        outcomes=outcomes,
        drawn=Markup(svg(scene, is_alone=False).decode()),
        names={row.name: f"{row.selection}{' (balanced)' if row.is_balanced else ''}" for row in found.rows},
        paper=PAPER,
        asked=asked,
    )


def _given(row: Row) -> Given:
    accuracy = row.accuracy
    has_interval = accuracy is not None and accuracy.low is not None and accuracy.high is not None
    return Given(
        label=row.selection,
        note=f"{row.subset}{', balanced validation' if row.is_balanced else ''}"
        + ("" if row.units is None else f", {row.units:g} units"),
        value=None if accuracy is None else accuracy.mean,
        interval=(accuracy.low or 0.0, accuracy.high or 0.0) if accuracy and has_interval else None,
        spread=row.spread,
        published=None if row.published is None else row.published.accuracy,
    )
