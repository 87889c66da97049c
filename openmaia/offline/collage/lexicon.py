"""Maps words to the packaged images that show them."""

import re
from collections.abc import Sequence

from openmaia.core.services import Split
from openmaia.datasets.library import DatasetImage, ImageDataset

CUTOUTS = {
    "bird": r"\| animals/birds",
    "chicken": r"\b(chicken|hen|rooster|turkey|guinea fowl|peahen|peacock)\b",
    "penguin": r"\bpenguin",
    "fish": r"(fish|grop|trout|wrasse|ray|shark|piranha).*\| animals/fish",
    "insect": r"(fly|hopper|hornet|mantis|xanthia).*\| animals/insects",
    "dog": r"mammals/dogs",
    "horse": r"mammals/equines",
    "cow": r"\b(cow|bull|bison|yak|zebu)\b.*bovines",
    "sheep": r"\b(sheep|goat|ram|mountaingoat|lamb)\b",
    "pig": r"\b(pig|boars?)\b",
    "big cat": r"mammals/cats",
    "monkey": r"mammals/apes",
    "rodent": r"mammals/rodents|\brabbit\b",
    "mammal": r"animals/(mammals|marsupials)(?!/bears/toys)",
    "lizard": r"amphibians|lizards",
    "apple": r"\bapples?\b.*food/fruit",
    "citrus": r"\b(orange|mandarin|lemon|lime)\b.*food/fruit",
    "fruit": r"\| food/fruit",
    "vegetable": r"\| food/vegetables",
    "flower": r"\| plants/flowers",
    "tree": r"plants/trees|christmas tree",
    "guitar": r"music/string",
    "drum": r"percussion",
    "ball": r"(ball|football).*\| sports",
    "car": r"vehicles/(auto|race)|police",
    "vehicle": r"\| (vehicles|military/vehicles)",
    "tool": r"household/tools",
    "wrench": r"\bwrench|pliers",
    "cup": r"household/dishes$|kettle",
    "gravestone": r"\b(gravestone|headstone|tombstone|marker|monument stone)\b",
    "planet": r"space/(planets|moon)",
    "road sign": r"(?<!cone\.) \| town/roadsigns",
}
"""Regular expressions by word. They are searched in "caption | category" of a cut-out in lower case."""

PHOTOS = {
    "building": r"monuments",
    "tool": r"\| tools",
    "wrench": r"\b(wrench|pliers?)\b.*tools",
    "insect": r"\b(bee|butterfly|caterpillar|lady bird)\b",
    "monkey": r"\b(monkey|gibbon|macaque|gorilla|lemur)\b",
    "lizard": r"\b(chamaeleon|chameleon|crocodile|dragon)\b",
    "dog": r"\bdog\b",
    "horse": r"\bhorse\b",
    "big cat": r"\b(cheetah|jaguar)\b",
    "penguin": r"\bpenguin\b",
    "fish": r"animals/fish",
    "tree": r"\b(wood|garden)\b.*nature",
}
"""Regular expressions for whole photographs, which are used if there is no cut-out."""

TEXTURES = {"wood": r"\| wood", "stone": r"\| stone", "water": r"\b(pool|ice|rain)\b"}


class Lexicon:
    """Finds the images of one split by word. Nouns that are not in the tables ("toucan") are searched in captions.

    Args:
        library: The packaged images.
        split: The split.
    """

    def __init__(self, library: ImageDataset, split: Split):
        self._cutouts = [(_line(item), item) for item in library.cutouts(split)]
        self._photos = [(_line(item), item) for item in library.photos(split)]
        self._textures = [(_line(item), item) for item in library.textures(split)]

    def knows(self, word: str) -> bool:
        """Returns whether any cut-out or photograph shows the word."""
        return bool(self.cutouts(word) or self.photos(word))

    def cutouts(self, word: str) -> list[DatasetImage]:
        """Returns the cut-outs that show a word, sorted by digest."""
        return _matching(self._cutouts, CUTOUTS.get(word) or _noun(word))

    def photos(self, word: str) -> list[DatasetImage]:
        """Returns the photographs that show a word, sorted by digest."""
        return _matching(self._photos, PHOTOS.get(word) or ("(?!)" if word in CUTOUTS else _noun(word)))

    def textures(self, word: str) -> list[DatasetImage]:
        """Returns the tileable textures that show a word, sorted by digest."""
        return _matching(self._textures, TEXTURES.get(word, "(?!)"))


def _line(item: DatasetImage) -> str:
    return f"{item.caption} | {item.category}".lower()


def _noun(word: str) -> str:
    stem = re.escape(word[:-1] if word.endswith("s") and len(word) > 3 else word)
    return rf"\b{stem}(s|es)?\b.*\|" if len(word) > 2 else "(?!)"


def _matching(items: Sequence[tuple[str, DatasetImage]], expression: str) -> list[DatasetImage]:
    pattern = re.compile(expression)
    return sorted((item for line, item in items if pattern.search(line)), key=lambda item: item.digest)
