"""A language model describes units of EfficientNet-Lite0; its descriptions are compared with those of simpler methods.

    python -m measure.language_model [url=http://127.0.0.1:8000/v1 model=NAME] [sees=images] [each=8] [skip=8] [ablation=2]
        [runs=FOLDER]

Without a URL, a model of 1.5 billion parameters is fetched and served on this machine (see model.py). A run that was
stopped goes on. Writes results.json, units.csv and RESULTS.md beside this file. Two cores take about an hour. Units are those
that `random:` draws, without the first `skip` of each layer, on which prompt and loop were developed.
`ablation=2`, afterwards, runs the first two of those development units of each layer as shipped, with other forms of a turn,
without a viewer, and with the published prompt, and adds a section to RESULTS.md.
`vllm=1` instead investigates one unit of each layer with the same weights through vLLM, and adds a section, too.
"""

import subprocess
import sys
from contextlib import nullcontext
from pathlib import Path

from measure.language_model import results
from measure.language_model.model import NAME, converted, served
from openmaia.assembly.targets import target
from openmaia.config.loading import load
from openmaia.core.selection import select
from tests.conftest import REPOSITORY
from tests.prepare import CACHE

CONFIGS = [str(REPOSITORY / "configs/efficientnet-lite0.yaml"), str(REPOSITORY / "configs/models/local-cpu.yaml")]
LAYERS = ("_blocks.2", "_blocks.10", "_conv_head")
VARIANTS = {
    "agent": [],
    # The model sees the exemplars, and answers without an experiment.
    "exemplars": [
        "without=[text2image,edit_images]", "task.evidence.experiments=0", "task.evidence.labels=0",
        "limits.soft_turns=1", "limits.turns=3",
    ],
}  # fmt: skip
# All methods are tested together, in results.py.
UNTESTED = ("evaluate.n=2", "evaluate.detect=0", "evaluate.pictures=0", "evaluate.random_words=0")
ABLATION = {
    "as-shipped": [],
    "text": ["backbone.protocol=text"],
    "tools": ["backbone.protocol=tools"],
    "no-viewer": ["viewer.kind=none"],
    # The prompt alone: the rule about evidence stays.
    "published-prompt": ["task.name=published", "task.evidence.experiments=2", "task.evidence.labels=1"],
}
ASKED = {
    "url": "",
    "model": NAME,
    "sees": "text",
    "each": "8",
    "skip": "8",
    "ablation": "0",
    "vllm": "0",
    "runs": str(CACHE / "language_model" / "runs"),
}


def main() -> None:
    given = dict(argument.partition("=")[::2] for argument in sys.argv[1:])
    if unknown := given.keys() - ASKED.keys():
        sys.exit(f"unknown: {', '.join(sorted(unknown))}; expected {', '.join(f'{name}=…' for name in ASKED)}")
    asked = ASKED | given
    runs = Path(asked["runs"])
    if int(asked["vllm"]):
        # Processors without arithmetic in bfloat16 emulate it, several times slower.
        engine = ("backbone.eager=true", "backbone.dtype=float32")
        vllm = ["backbone.kind=vllm", f"backbone.model={converted()}", *engine]
        sweep("vllm", asked, selection(asked["vllm"], asked["skip"]), vllm)
        results.write_vllm(runs / "vllm")
        return
    with nullcontext(asked["url"]) if asked["url"] else served() as url:
        served_by = [f"backbone.model={asked['model']}", f"backbone.base_url={url}"]
        units = selection(asked["ablation"], "0") if int(asked["ablation"]) else selection(asked["each"], asked["skip"])
        variants = ABLATION if int(asked["ablation"]) else VARIANTS
        for name, overrides in variants.items():
            sweep(name, asked, units, [*served_by, *overrides])
    if int(asked["ablation"]):
        results.write_ablation({name: runs / name for name in ABLATION})
    else:
        results.write(runs, list(VARIANTS), units, asked["model"])


def selection(each: str, skip: str) -> str:
    """The units of each layer that `random:` draws after the first `skip`."""
    info = target(load([CONFIGS[0], "units=all", f"target.layers=[{','.join(LAYERS)}]"])).info()

    def drawn(count: int) -> list[int]:
        return [unit.index for unit in select(f"{layer}=random:{count}", info).units] if count else []

    parts: list[str] = []
    for layer in LAYERS:
        known = drawn(int(skip))
        chosen = [index for index in drawn(int(skip) + int(each)) if index not in known]
        parts.append(f"{layer}={','.join(map(str, chosen))}")
    return ":".join(parts)


def sweep(name: str, asked: dict[str, str], units: str, overrides: list[str]) -> None:
    """Runs a sweep, or continues it."""
    settings = [f"name={name}", f"units={units}", f"paths.runs={asked['runs']}", f"paths.cache={CACHE}"]
    settings += ["ray.investigations=1", f"backbone.sees={asked['sees']}", *UNTESTED, *overrides]
    done = subprocess.run(
        [sys.executable, "-m", "openmaia.cli.main", "run", *CONFIGS, *settings], cwd=REPOSITORY, check=False
    )
    if done.returncode not in (0, 1):
        sys.exit(done.returncode)


if __name__ == "__main__":
    main()
