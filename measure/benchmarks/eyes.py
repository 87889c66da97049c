"""From which evidence on the eyes say yes, by word: the threshold that best tells drawn pictures of the word from matched
ones without it, and the balanced accuracy there. `python -m measure.benchmarks.eyes` writes openmaia/offline/evaluation/eyes.json, with
which all scores change: `make science` belongs behind it."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

import openmaia.offline.evaluation
from openmaia.core.services import Generation
from openmaia.datasets.library import ImageDataset
from openmaia.models.targets.networks import classifier
from openmaia.offline.collage import CollageGenerator
from openmaia.offline.evaluation.eyes import RELIABLE
from openmaia.offline.evaluation.prompts import write_pairs
from openmaia.offline.experimenter.eyes import Eyes
from openmaia.offline.packaged.library import fetch
from openmaia.offline.vocabulary.words import WORDS
from tests.prepare import CACHE

SIZE = 224
FILE = Path(openmaia.offline.evaluation.__file__).parent / "eyes.json"


def measure(smoke: bool) -> dict[str, Any]:
    """other: words for which the evaluation uses another threshold."""
    words = [word.name for word in WORDS][: 2 if smoke else None]
    table = thresholds(words, 2 if smoke else 8)
    used = json.loads(FILE.read_text())
    known = sum(accuracy >= RELIABLE for _, accuracy in table.values())
    return {"words": len(table), "reliable": known, "other": sum(list(table[word]) != used.get(word) for word in words)}


def thresholds(words: Sequence[str], count: int) -> dict[str, tuple[float, float]]:
    eyes = Eyes(classifier("efficientnet_lite2"))
    generator = CollageGenerator(ImageDataset.open(fetch(CACHE, print)), SIZE)
    return {word: _threshold(word, eyes, generator, count) for word in words}


def _threshold(word: str, eyes: Eyes, generator: CollageGenerator, count: int) -> tuple[float, float]:
    """(threshold, balanced accuracy). Of the explore split: the test split is for tests."""
    pairs = write_pairs([word], count)

    def evidence(prompts: list[str]) -> np.ndarray[Any, Any]:
        drawn = generator.generate([Generation(prompt=prompt, seed=at) for at, prompt in enumerate(prompts)])
        return np.array([eyes.see(one.image.pixels)[word] for one in drawn])

    shown, without = evidence([pair.positive for pair in pairs]), evidence([pair.neutral for pair in pairs])
    cuts = np.unique([*shown, *without])
    middles = (cuts[1:] + cuts[:-1]) / 2 if len(cuts) > 1 else cuts
    accuracy = [float(((shown >= cut).mean() + (without < cut).mean()) / 2) for cut in middles]
    best = int(np.argmax(accuracy))
    return round(float(middles[best]), 4), round(accuracy[best], 3)


if __name__ == "__main__":
    FILE.write_text(json.dumps(thresholds([word.name for word in WORDS], 8), indent=0) + "\n")
