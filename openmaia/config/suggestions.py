"""Finds the keys that a user may have meant by an unknown one."""

import difflib
import re
from collections.abc import Collection

# Added to the score of a key whose last part fits: the right name in the wrong section.
SAME_NAME = 0.3

# Keys whose score is at most this much below the best one are suggested as well.
_CLOSE = 0.1

_SHOWN = 3

# The words that config keys use, by words that users may write.
SYNONYMS = {
    "dir": ("paths",),
    "directory": ("paths",),
    "folder": ("paths",),
    "output": ("runs", "paths"),
    "out": ("runs", "paths"),
    "run": ("runs",),
    "image": ("pictures",),
    "images": ("pictures",),
    "dataset": ("pictures",),
    "data": ("pictures",),
    "agent": ("backbone",),
    "llm": ("backbone",),
    "model": ("backbone",),
    "url": ("base", "url"),
    "endpoint": ("base", "url", "backbone"),
    "host": ("base", "url", "backbone"),
    "port": ("base", "url", "backbone"),
    "gpu": ("gpus",),
    "workers": ("investigations", "ray"),
    "parallel": ("investigations", "ray"),
    "max": ("limits",),
    "wandb": ("tracking",),
    "checkpoint": ("weights", "target"),
    "neurons": ("units",),
    "top": ("exemplars", "k"),
}


def suggest(given: str, known: Collection[str]) -> list[str]:
    """Returns one to three keys of `known` (not empty) by spelling and shared words, likeliest first."""
    words = _words(given)
    meant = words | {word for each in words for word in SYNONYMS.get(each, ())}

    def score(key: str) -> float:
        own = _words(key)
        shared = len(own & meant) / max(len(own), len(words))
        same_name = SAME_NAME * (key.rpartition(".")[2] == given.rpartition(".")[2])
        return difflib.SequenceMatcher(None, given, key).ratio() + shared + same_name

    scores = {key: score(key) for key in known}
    best = max(scores.values())
    ranked = sorted((key for key, value in scores.items() if value >= best - _CLOSE), key=lambda key: -scores[key])
    return ranked[:_SHOWN]


def _words(key: str) -> set[str]:
    return set(re.split(r"[._\W]+", key.casefold())) - {""}
