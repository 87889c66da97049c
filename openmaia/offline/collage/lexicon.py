"""Maps words to the packaged images that show them."""

import re
from collections.abc import Sequence
from pathlib import Path

from openmaia.core.services import Split
from openmaia.datasets.library import DatasetImage, ImageDataset

# Searched in "caption | category", in lower case, of cut-outs.
_CUTOUTS = {
    "bird": r"\| animals/birds",
    "poultry": r"\b(chicken|hen|rooster|turkey|guinea fowl|duck|drake|gander)\b.*\| animals/birds",
    "fish": r"(fish|grop|trout|wrasse|ray|shark|piranha).*\| animals/fish",
    "cow": r"\b(cow|bull|bison|yak|zebu|gnu)\b.*bovines",
    "hoofed animal": r"mammals/(bovines|equines|deer|camel)|\b(pigs?|boars?|giraffe)\b.*animals/mammals",
    "carnivore": r"mammals/(cats|dogs|bears)(?!/toys)|\b(ferret|badger)\b.*animals/mammals",
    "mammal": r"animals/(mammals|marsupials)(?!/bears/toys)",
    "fruit": r"\| food/fruit",
    "vegetable": r"\| food/vegetables",
    "flower": r"\| plants/flowers",
    "plant": r"plants/trees|\| plants$|christmas tree",
    "musical instrument": r"\| hobbies/music",
    "ball": r"(ball|football).*\| sports",
    "vehicle": r"\| (vehicles|military/vehicles)",
    "tool": r"household/tools",
    "wrench": r"\b(wrench|pliers)\b.*household/tools",
    "gravestone": r"\b(gravestone|headstone|tombstone|marker|monument stone)\b",
    "planet": r"space/(planets|moon)",
    "road sign": r"(?<!cone\.) \| town/roadsigns",
}

# File names of photographs of one object on an even ground, which serve as cut-outs.
_ON_EVEN_GROUND = {
    "ball": ("baseball", "volleyball"),
    "wrench": ("cuttingtool", "plier1", "plier2", "plier3", "plier4"),
}

# For exact names whose captions use other words, or which other captions contain. Like those of nouns outside of the
# tables, they find cut-outs and photographs.
_NAMES = {
    "parrot": r"\b(rosella|lorikeet|macaw)\b",
    "chicken": r"\b(chicken|hen|rooster)\b.*\| animals",
    "duck": r"\b(duck|drake)\b.*\| animals",
    "lizard": r"\b(chameleon|komodo dragon|iguana)\b",
    "sheep": r"\b(sheep|ram)\b",
    "camel": r"\b(camels?|dromedary)\b",
    "deer": r"\b(deer|doe|wapiti|caribou|moose)\b",
    "rhinoceros": r"\brhino",
    "lion": r"(?<!sea )\blion\b",
    "dog": r"\b(dog|dingo)\b",
    "cat": r"\b(cat|kitten)\b",
    "rodent": r"\b(beaver|capybara|marmot|mouse|rat|squirrel)\b.*\| animals",
    "citrus fruit": r"\b(lemon|oranges?|mandarin|lime)\b.*\| food/fruit",
    "pepper": r"\bpepper\b.*\| food/vegetables",
    "garlic": r"\bgarlic\b.*\| food/vegetables",
    "nut": r"\| food/nuts",
    "hammer": r"\b(hammer|mallet)\b",
    "cup": r"\b(cup|mug)\b.*\| household",
    "garbage can": r"\b(garbage can|bin)\b.*\| household",
    "mailbox": r"\b(mailbox|post box)\b",
    "car": r"\b(car|vw beetle)\b.*\| vehicles/(auto|race)",
    "truck": r"\btruck\b.*\| vehicles",
    "moon": r"\| space/moon",
    "pyramid": r"\bpyramid\b.*\| monuments",
    "castle": r"\b(castle|castillo|chateau).*\| monuments",
    "temple": r"\btemple\b.*\| monuments",
}

# Whole photographs, which are used if there is no cut-out.
_PHOTOS = {"building": r"monuments"}

_TEXTURES = {"wood": r"\| wood", "stone": r"\| stone", "water": r"\b(pool|ice|rain)\b"}


class Lexicon:
    """Finds the packaged images of a split that show what a word names.

    A noun that is in none of the tables, such as "toucan", is searched in the captions.
    """

    def __init__(self, library: ImageDataset, split: Split):
        self._cutouts = [(_line(item), item) for item in library.cutouts(split)]
        self._photos = [(_line(item), item) for item in library.photos(split)]
        self._textures = [(_line(item), item) for item in library.textures(split)]

    def knows(self, word: str) -> bool:
        """Returns whether any cut-out or photograph shows the word."""
        return bool(self.cutouts(word) or self.photos(word))

    def cutouts(self, word: str) -> list[DatasetImage]:
        """Returns cut-outs, and photographs of one object on an even background, sorted by digest."""
        names = _ON_EVEN_GROUND.get(word)
        photographed = [item for _, item in self._photos if Path(item.source.name).stem in names] if names else []
        matching = _matching(self._cutouts, _CUTOUTS.get(word) or _noun(word))
        return sorted([*matching, *photographed], key=lambda item: item.digest)

    def photos(self, word: str) -> list[DatasetImage]:
        """Returns photographs, sorted by digest."""
        return _matching(self._photos, _PHOTOS.get(word) or ("(?!)" if word in _CUTOUTS else _noun(word)))

    def textures(self, word: str) -> list[DatasetImage]:
        """Returns tileable textures of a material, such as wood, sorted by digest."""
        return _matching(self._textures, _TEXTURES.get(word, "(?!)"))


def _line(item: DatasetImage) -> str:
    return f"{item.caption} | {item.category}".lower()


def _noun(word: str) -> str:
    if word in _NAMES:
        return _NAMES[word]
    stem = re.escape(word[:-1] if word.endswith("s") and len(word) > 3 else word)
    return rf"\b{stem}(s|es)?\b.*\|" if len(word) > 2 else "(?!)"


def _matching(items: Sequence[tuple[str, DatasetImage]], expression: str) -> list[DatasetImage]:
    pattern = re.compile(expression)
    return sorted((item for line, item in items if pattern.search(line)), key=lambda item: item.digest)
