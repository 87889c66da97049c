"""A model that writes test prompts, judges images and compares descriptions, without looking."""

import json
import re
from collections.abc import Mapping
from pathlib import Path

from openmaia.agent.loop import investigate_and_publish
from openmaia.agent.tasks.task import load as load_task
from openmaia.assembly import exemplars, investigations, targets
from openmaia.config.loading import load
from openmaia.config.schema import Config
from openmaia.core.selection import select
from openmaia.runs.run import Run
from tests.helpers.sweeping import sources

COLOURS = ("red", "blue", "green", "yellow", "white", "black", "orange", "purple")
SHAPES = ("square", "circle", "star", "stripe", "cross", "dot", "ring", "line")
UNITS = "mono=0,1,2"


def write(question: str) -> str:
    """The answer to a question of openmaia/evaluation/questions."""
    if found := re.search(r"exactly (\d+) (pairs|prompts)", question):
        count, is_pair = int(found[1]), found[2] == "pairs"
        things = [f"a {colour} {shape}" for shape in SHAPES for colour in COLOURS][: 2 * count]
        lines = zip(things[::2], things[1::2], strict=True) if is_pair else ((each,) for each in things[:count])
        return "\n".join(f"{number}. {' | '.join(line)}" for number, line in enumerate(lines, start=1))
    if labels := re.search(r"does the picture show it\?\n\n(.*?)\n\n", question, re.DOTALL):
        return "\n".join(f"{number}: yes" for number, _ in enumerate(labels[1].splitlines(), start=1))
    return "none" if "separated by commas" in question else "yes"


def described(folder: Path, url: str, writer: Mapping[str, object], **settings: object) -> tuple[Config, Run]:
    """Returns a run in which three units are described and none is tested. The model of a server writes its prompts."""
    own = {"kind": "openai", "model": "some-writer", "base_url": url, "input_price": 10, "output_price": 100, **writer}
    file = folder / "writer.yaml"
    folder.mkdir(parents=True, exist_ok=True)
    file.write_text(
        json.dumps({"evaluate": {"writer": own, "random_words": 0}, "name": "described", "units": UNITS, **settings})
    )
    config = load([*sources(folder), str(file)])
    target, run = targets.target(config), Run.create(config)
    run.set_plan(select(config.units, target.info()).units, config.replicates)
    store = exemplars.make(config, sorted({each.unit.layer for each in run.plan()}))
    options, task = investigations.options(config), load_task("description")
    for investigation in run.pending():
        services = investigations.services(config, store, measured=target)
        assert investigate_and_publish(investigation, task, services, options, run).summary is not None
    return config, run
