"""Reads a prompt into a scene, in any order of words, and says what it did not understand."""

import re
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from random import Random

from openmaia.offline.scenes.graph import Figure, Paint, Scene
from openmaia.offline.scenes.kinds import Kind, kinds
from openmaia.offline.scenes.layout import INDOORS, TIMELESS
from openmaia.offline.scenes.render import GREY_STYLES
from openmaia.offline.scenes.words import NATURAL, SCENERY, lexicon, longest, members

MAX_FIGURES = 12
_MAX_TOKENS, _MAX_MISSING, _MAX_TERM = 120, 16, 40
LONGEST = 20 * _MAX_TOKENS
"""Characters of a text that are read."""
_CONTENT = ("kind", "group", "colour", "pattern", "pattern word", "direction", "place", "time", "weather", "style", "size", "side",
            "count", "relation", "lift", "part", "ground", "pose")  # fmt: skip
_NOUNS = ("kind", "group", "part", "ground")
_ADJECTIVES = ("colour", "pattern", "direction", "size", "count")
_SETTINGS = ("time", "weather", "style")
# What precedes an unknown noun, and how words end that are none.
_DETERMINERS, _VERBAL = ("a", "an", "the", "of", "its", "this", "that", "these"), ("ing", "ed", "ly")
_ENDS = (".", ";", "!", "?")
_ARTICLES = ("a", "an", "the")
_CONCENTRIC = re.compile(r"\bconcentric((?:,? [a-z]+){0,5} )(?:circles|rings)\b")
_TOKEN = re.compile(r"[a-z]+|\d+|[,.;:!?]|[^\sa-z\d,.;:!?'’-]+")


@dataclass(frozen=True, slots=True, kw_only=True)
class Token:
    """A word or phrase of a prompt with its meaning."""

    text: str
    what: str
    name: str
    is_plural: bool = False


def tokens(text: str) -> tuple[list[Token], bool]:
    """Returns the words of a text, the longest phrases first, and whether it is longer than what is read."""
    plain = re.sub(r"['’]s\b", "", text[:LONGEST].lower())
    words = _TOKEN.findall(_CONCENTRIC.sub(r"\1concentric circles", plain))
    found: list[Token] = []
    position = 0
    known = lexicon()
    while position < len(words) and len(found) < _MAX_TOKENS:
        for length in range(min(longest(), len(words) - position), 0, -1):
            entry = known.get(tuple(words[position : position + length]))
            if entry:
                (what, name), is_plural = entry
                phrase = " ".join(words[position : position + length])
                found.append(Token(text=phrase, what=what, name=name, is_plural=is_plural))
                break
        else:
            length, word = 1, words[position]
            what = "stop" if word in ",.;:!?" else "unknown"
            found.append(Token(text=word[:_MAX_TERM], what=what, name=word))
        position += length
    return found, position < len(words) or len(text) > LONGEST


@dataclass(slots=True)
class _Phrase:
    # Adjectives that wait for their noun.
    colours: list[str] = field(default_factory=list)
    pattern: str = ""
    count: int = 0
    size: str = ""
    side: str = ""
    is_lifted: bool = False
    direction: str = ""
    is_foreign: bool = False
    """Whether an unknown word follows the adjectives: they may be those of an unknown noun."""

    @property
    def paint(self) -> Paint:
        first, second = (*self.colours, "", "")[:2]
        return Paint(colour=first, second=second, pattern=self.pattern)


class Reader:
    """Reads one text. The results are in its fields."""

    def __init__(
        self,
        text: str,
        seed: int,
        known: Sequence[Figure] = (),
        *,
        is_question: bool = False,
        without: Sequence[str] = (),
    ):
        """`known` are figures that are there already, which relations can name. In a question a noun is one figure, whose
        kind can be a group, and `counts` holds the number that was asked for by its id (0: any, -1: several). The words in
        `without` count as not known."""
        self.counts: dict[int, int] = {}
        self.names_paint = False
        self._is_question = is_question
        self._pending: tuple[str, list[int]] | None = None
        self.scene = Scene(seed=seed)
        self.missing: list[str] = []
        self._known, self._next = tuple(known), max((each.id for each in known), default=-1) + 1
        self._figures: list[Figure] = []
        self._groups: list[list[int]] = []  # ids of the figures of each noun
        self._phrase, self._bare = _Phrase(), list[_Phrase]()
        self._relation, self._subject = "", list[int]()
        self._is_negated = self._has_part = False
        self._is_noun_foreign = self._is_subject_foreign = False
        self._after_in = ""
        self._counted = list[str]()  # the numbers of each noun that was drawn
        self._natural = list[str]()  # colours that their place has anyway
        self._excused = set[int]()  # numbers of the tokens that ask for nothing: "no boats", "on" the sea
        self._denied = list[Token]()
        self._relation_at = -1
        self._is_ground_last = False
        self._handlers: Mapping[str, Callable[[int, Token], None]] = {
            **dict.fromkeys(("kind", "group"), self._noun),
            **dict.fromkeys(("place", "time", "weather", "style"), self._setting),
            "unknown": self._unknown,
            "pattern": self._pattern,
            "count": self._count,
            "side": self._side,
            "relation": self._begin_relation,
            "lift": self._lift,
            "part": self._part,
            "and": self._and,
        }
        found, is_long = tokens(text)
        self._tokens = [replace(each, what="unknown") if each.name in without else each for each in found]
        for number, token in enumerate(self._tokens):
            self._read(number, token)
        self._end_clause()
        self._finish()
        if is_long:
            self.missing.append("the rest of the text")
        self.missing = list(dict.fromkeys(self.missing))[:_MAX_MISSING]

    # -- words ---------------------------------------------------------------------------------------------------------

    def _read(self, number: int, token: Token) -> None:
        if token.text == "near":
            self._tokens[number] = token = replace(token, what="relation", name="beside")  # no place in the picture
        if token.text in _ARTICLES and self._phrase.is_foreign:
            self._drop_foreign()  # "a red zyzzyva or a boat"
        if token.what in ("and", "with", "in", "relation", "stop") and not self._joins_adjectives(number):
            self._drop_foreign()
            if number and self._tokens[number - 1].what == "unknown":
                self._relation = ""  # "a cat on a zyzzyva and a dog" has no cat on a dog
            if token.what in ("and", "relation") or token.text in _ENDS:
                # "A boat and a zyzzyva beside a tree" has no boat beside a tree.
                self._is_subject_foreign, self._is_noun_foreign = self._is_noun_foreign, False
        phrase, name = self._phrase, token.name
        if self._is_negated:
            self._excused.add(number)
        if token.text == "mountains" and (phrase.count or phrase.colours or phrase.size):
            token = replace(token, what="kind", name="mountain", is_plural=True)  # no place
            self._tokens[number] = token
        if token.what in self._handlers:
            self._handlers[token.what](number, token)
        elif token.what == "colour":
            if self._is_noun(number):
                self.missing.append(token.text)
            else:
                phrase.colours.append(name)
                phrase.is_foreign |= self._is_foreign(number)
        elif token.what == "size":
            phrase.size = name
            phrase.is_foreign |= self._is_foreign(number)
        elif token.what == "direction":
            stripes = any(t.name == "stripes" for t in self._tokens[number + 1 : number + 6])
            phrase.direction = name if stripes else ""
        elif token.what == "ground":
            self._background(token.text)
        elif token.what == "it" and not self._groups:
            self.missing.append(token.text)
        elif token.what == "not":
            self._is_negated = True
        elif token.what == "in":
            self._after_in = token.text
        elif token.what == "with":
            self._has_part = True
        elif token.what == "stop":
            self._end_clause()
        elif token.what == "filler" and name not in _ARTICLES:
            self._after_in = ""  # "in the picture"
            self._is_noun_foreign &= name != "of"  # "rows of bricks"

    def _is_noun(self, number: int) -> bool:
        # "An orange" is a fruit, which is not known.
        if self._tokens[number].text != "orange" or not number or self._tokens[number - 1].text != "an":
            return False
        after = [each.what for each in self._tokens[number + 1 : number + 3]]
        return not after or after[0] in ("relation", "in", "with") or (after[0] == "stop" and after[1:] != ["kind"])

    def _following(self, number: int) -> Sequence[Token]:
        for end in range(number + 1, len(self._tokens)):
            if self._tokens[end].what in ("stop", "relation", "and", "with", "in"):
                return self._tokens[number + 1 : end]
        return self._tokens[number + 1 :]

    def _unknown(self, number: int, token: Token) -> None:
        if not self._is_negated:
            self.missing.append(token.text)
        phrase = self._phrase
        phrase.is_foreign = phrase != _Phrase(is_foreign=phrase.is_foreign)
        self._is_noun_foreign = self._begins_noun(number)

    def _joins_adjectives(self, number: int) -> bool:
        # "Black and white stripes".
        around = [each.what for each in self._tokens[max(number - 1, 0) : number + 2]]
        return len(around) == 3 and around[1] == "and" and {around[0], around[2]} <= {*_ADJECTIVES}

    def _begins_noun(self, number: int) -> bool:
        # Whether an unknown word is a noun of its own, and not what a known one does, as in "a boat gently rocking".
        before = self._tokens[number - 1] if number else Token(text="", what="stop", name="")
        if before.what in ("stop", "and", "with", "in", "relation", "not"):
            return not self._tokens[number].text.endswith(_VERBAL)
        if before.what in ("unknown", *_SETTINGS):
            return self._is_noun_foreign
        return before.what in _ADJECTIVES or before.text in _DETERMINERS

    def _is_foreign(self, number: int) -> bool:
        # Whether what is said at this token is said of an unknown noun before it, as in "a zyzzyva, red".
        return self._is_noun_foreign and not any(each.what in _NOUNS for each in self._following(number))

    def _drop_foreign(self) -> None:
        # "A red zyzzyva and a boat" has no red boat.
        if self._phrase.is_foreign:
            self.missing += ["flying"] if self._phrase.is_lifted else []
            self._phrase, self._relation = _Phrase(), ""

    def _count(self, number: int, token: Token) -> None:
        # "some" cat is one.
        if token.text != "some" or any(t.is_plural for t in self._following(number)):
            self._phrase.count = int(token.name)

    def _side(self, number: int, token: Token) -> None:
        if self._is_foreign(number):
            return
        if self._groups and not any(t.what in ("kind", "group") for t in self._following(number)):
            self._change_last(side=token.name)
        else:
            self._phrase.side = token.name

    def _and(self, number: int, token: Token) -> None:
        following = self._tokens[number + 1 : number + 2]
        # "red and white" is one paint, "a red and a blue ball" are two things.
        if self._phrase.colours and following and following[0].what == "filler":
            self._bare.append(self._phrase)
            self._phrase = _Phrase()

    def _setting(self, number: int, token: Token) -> None:
        is_negated, self._is_negated = self._is_negated, False
        following = self._tokens[number + 1 : number + 2] if token.what == "place" else self._following(number)
        is_adjective = any(each.what in ("kind", "group") for each in following)  # "on the red kitchen table"
        if not is_adjective:
            self._excuse_relation()
        if is_negated:
            return
        if token.what == "place" and not is_adjective:
            self._is_noun_foreign = False
            self._phrase, phrase = _Phrase(), self._phrase
            self._natural += [each for each in phrase.colours if each in NATURAL[token.name]]
        old = getattr(self.scene, token.what)
        if old and old != token.name and not (token.what == "place" and {old, token.name} <= {"sky", "space"}):
            # "in the sky over the sea": the sky is part of the other places.
            if token.what == "place" and "sky" in (old, token.name):
                self.scene = replace(self.scene, place=token.name if old == "sky" else old)
            return
        self.scene = replace(self.scene, **{token.what: token.name})

    def _excuse_relation(self) -> None:
        self._excused.add(self._relation_at if self._relation else -1)
        self._relation = self._after_in = ""

    def _begin_relation(self, number: int, token: Token) -> None:
        self._flush_adjectives()
        self._relation_at = number
        self._relation, self._has_part = token.name, False
        self._subject = list(self._groups[-1]) if self._groups else []

    def _lift(self, number: int, token: Token) -> None:
        if token.text == "in the sky" and not (self._groups and self.scene.place):
            self._setting(number, replace(token, what="place", name="sky"))
        elif self._is_foreign(number):
            self.missing.append(token.text)
        elif not self._groups:
            self._phrase.is_lifted = True
        elif not self._is_airborne():
            self._change_last(is_lifted=True)

    def _is_airborne(self) -> bool:
        return all(_kind(f.kind).where in ("air", "sky", "far") for f in self._figures if f.id in self._groups[-1])

    # -- nouns ---------------------------------------------------------------------------------------------------------

    def _noun(self, number: int, token: Token) -> None:
        following = self._tokens[number + 1 : number + 2]
        if following and (
            following[0].text == "house" or (following[0].what, following[0].name) == (token.what, token.name)
        ):
            return  # "bird house", "mountain peak": the last noun says what it is
        phrase, self._phrase = self._phrase, _Phrase()
        bare, self._bare = self._bare, []
        self._is_noun_foreign = False
        if self._is_subject_foreign:
            self._relation, self._is_subject_foreign = "", False
        if self._after_in:
            self.missing.append(f"{self._after_in} {token.text}")
        self._after_in, self._has_part, self._is_ground_last = "", False, False
        if self._is_negated:
            self._is_negated, self._relation = False, ""
            self._denied.append(token)
            if token.name == "cloud":
                self.scene = replace(self.scene, weather="clear")
            return
        if (existing := self._existing(token)) and self._relation and self._subject:
            self._relate(existing)
            return
        ids = [new for each in (*bare, phrase) for new in self._add(token, each)]
        if not ids:
            return
        if self._relation and self._subject:
            self._relate(ids)
        elif self._relation:
            # "on the table a cat": the subject comes later.
            self._groups.append(ids)
            self._pending = (self._relation, ids)
            self._relation = ""
            return
        if self._pending:
            self._relation, self._subject = self._pending[0], ids
            self._relate(self._pending[1])
            self._pending = None
        self._groups.append(ids)

    def _existing(self, token: Token) -> list[int]:
        if token.what == "group" and not self._known:
            return []
        names = members(token.name)
        return [each.id for each in self._known if each.kind in names]

    def _add(self, token: Token, phrase: _Phrase) -> list[int]:
        names = [token.name] if token.what == "kind" or self._is_question else members(token.name)
        count = 1 if self._is_question else phrase.count or (3 if token.is_plural else 1)
        if self._is_question:
            self.counts[self._next] = phrase.count if phrase.count != 1 or token.is_plural else 0
            if token.is_plural and not phrase.count:
                self.counts[self._next] = -1
        ids: list[int] = []
        # "black and white cats": each has one of the colours.
        paints = [_merged(Paint(), phrase.paint)]
        if token.is_plural and len(phrase.colours) == 2 and not phrase.pattern and not self._is_question:
            paints = [Paint(colour=each) for each in phrase.colours]
        for nth in range(count):
            if len(self._figures) + len(self._known) >= MAX_FIGURES:
                self.missing.append(token.text)
                break
            kind = names[int(Random(f"{self.scene.seed} kind {self._next}").random() * len(names))]
            paint = paints[nth % len(paints)] if _kind(kind).colours else Paint()
            self._figures.append(
                Figure(
                    id=self._next,
                    kind=kind,
                    paint=paint,
                    size=phrase.size,
                    side=phrase.side,
                    is_lifted=phrase.is_lifted and _kind(kind).where not in ("air", "sky", "far"),
                )
            )
            ids.append(self._next)
            self._next += 1
        self._counted += [str(phrase.count or 1)] if ids else []
        return ids

    def _relate(self, targets: Sequence[int]) -> None:
        for number, each in enumerate(self._subject):
            new = {"relation": self._relation, "to": targets[number % len(targets)]}
            is_free = each not in targets
            self._figures = [replace(f, **new) if f.id == each and f.to < 0 and is_free else f for f in self._figures]
        self._relation = ""

    def _change_last(self, **changes: object) -> None:
        last = self._groups[-1]
        self._figures = [replace(f, **changes) if f.id in last else f for f in self._figures]  # type: ignore[arg-type]

    def _part(self, number: int, token: Token) -> None:
        if self._is_foreign(number):
            self.missing.append(token.text)
            self._phrase = _Phrase()
            return
        following = self._following(number)
        owner = [
            f for f in self._figures if self._groups and f.id in self._groups[-1] and token.name in _kind(f.kind).parts
        ]
        if not owner or any(t.what in ("kind", "group") for t in following[:1]):
            self.missing.append(token.text)
            self._phrase = _Phrase()
            return
        phrase, self._phrase = self._phrase, _Phrase()
        if self._is_negated:
            self._is_negated = False
            self.missing.append(f"without {token.text}")
        elif phrase.colours or phrase.pattern:
            parts = (*owner[0].parts, (token.name, _merged(Paint(), phrase.paint)))
            self._change_last(parts=parts)

    def _pattern(self, number: int, token: Token) -> None:
        name = "vertical stripes" if token.name == "stripes" and not self._is_question else token.name
        phrase = self._phrase
        if phrase.pattern:
            return
        if token.name == "stripes" and phrase.direction:
            name, phrase.direction = f"{phrase.direction} stripes", ""
        phrase.pattern = name
        joined = number + 1 if self._joins_adjectives(number + 1) else number  # "a striped and red cat"
        following = {each.what for each in self._following(joined)}
        if following & {*_NOUNS}:
            return
        before = (
            next((each.text for each in self._tokens[number - 1 :: -1] if each.what not in _ADJECTIVES), "")
            if number
            else ""
        )
        is_noun = token.text.endswith("s") and before not in ("a", "an")  # "a polka dots dress"
        if "unknown" in following and "pattern word" not in following and not is_noun:
            return  # "a striped zyzzyva": no pattern without it
        if self._is_foreign(number):
            self._phrase = _Phrase()  # "a zyzzyva with stripes"
            return
        if self._has_part and self._groups:
            # "a cat with red dots": the dots have the second colour.
            self._phrase = _Phrase()
            for nth, each in enumerate(self._figures):
                if each.id in self._groups[-1]:
                    given = [colour for colour in phrase.colours if colour != each.paint.colour]
                    colours = given if len(given) > 1 and not each.paint.colour else [each.paint.colour, *given]
                    first, second = (*colours, "")[:2]
                    self._figures[nth] = replace(each, paint=Paint(colour=first, second=second, pattern=name))
            self._has_part = False
        elif self._relation or self._after_in or not self._groups:
            self._background()

    def _background(self, text: str = "") -> None:
        phrase, self._phrase = self._phrase, _Phrase()
        self._is_noun_foreign = False
        self._excuse_relation()
        is_negated, self._is_negated = self._is_negated, False
        if is_negated or not (phrase.colours or phrase.pattern or text.startswith("back")):
            return
        if self._is_question and not self._figures:
            self.names_paint = self._tokens[-1].what != "ground"
        if self.scene.place in ("", "plain"):
            old, self._is_ground_last = self.scene.ground, True
            # "a white background with red dots": red is the first colour of the dots.
            ground = _merged(phrase.paint, old) if phrase.pattern and not old.pattern else _merged(old, phrase.paint)
            self.scene = replace(self.scene, place="plain", ground=ground)

    # -- ends ----------------------------------------------------------------------------------------------------------

    def _flush_adjectives(self) -> None:
        # Adjectives behind their noun: "a boat, red", "the boat is red".
        phrase = self._phrase
        if self._is_ground_last and self.scene.ground.pattern and phrase.colours and not phrase.count:
            self._background()  # "stripes in blue and white"
        elif self._groups and (phrase.colours or phrase.pattern or phrase.size) and not phrase.count:
            self._phrase = _Phrase()
            self._figures = [
                replace(f, paint=_merged(f.paint, phrase.paint), size=phrase.size or f.size)
                if f.id in self._groups[-1]
                else f
                for f in self._figures
            ]

    def _end_clause(self) -> None:
        self._drop_foreign()
        if self._relation == "on" and self._phrase.colours and self.scene.place in ("", "plain"):
            self._background()  # "a star on white"
        self._flush_adjectives()
        self._is_negated = self._has_part = False
        self._after_in = ""

    def _finish(self) -> None:
        phrase = self._phrase
        if not self._figures and not self.scene.place and (phrase.colours or phrase.pattern) and not self.missing:
            self._background()
        scene = replace(self.scene, figures=tuple(self._figures))
        self.scene, lost = drawable(scene)
        around = {each for what in ("place", "time", "weather") for each in SCENERY.get(getattr(scene, what), ())}
        drawn = around | {f.kind for f in scene.figures}
        denied = [f"no {token.text}" for token in self._denied if drawn & {token.name, *members(token.name)}]
        self.missing += [*lost, *denied, *self._unread()]

    def _shown(self) -> Iterator[tuple[str, str]]:
        # What the scene shows, as (what, name).
        def of_paint(paint: Paint) -> list[tuple[str, str]]:
            direction, _, pattern = paint.pattern.rpartition(" ")
            named = [("colour", paint.colour), ("colour", paint.second), ("pattern", pattern), ("direction", direction)]
            return [*named, ("pattern word", "pattern")] if pattern else named

        for group in self._groups:
            found = Counter[tuple[str, str]]()
            for f in (each for each in self._figures if each.id in group):
                one = [*of_paint(f.paint), ("size", f.size), ("side", f.side), ("relation", f.relation)]
                found |= Counter([*one, *(each for _, paint in f.parts for each in of_paint(paint))])
            yield from found.elements()
        yield from of_paint(self.scene.ground)
        for kind in {each.kind: _kind(each.kind) for each in (*self._figures, *self._known)}.values():
            yield from [("kind", kind.name), *(("group", each) for each in kind.wider)]
            yield from (("part", each) for each in kind.parts)
        yield from (("group", each.kind) for each in self._figures)
        yield from (("colour", each) for each in self._natural)
        yield from (("count", each) for each in (*self._counted, "1"))
        yield from ((what, getattr(self.scene, what)) for what in ("place", "time", "weather", "style"))
        if self.scene.place not in INDOORS:
            yield "place", "sky"
        if self.scene.place == "plain":
            yield "ground", "background"
        if self.scene.place in ("sea", "underwater"):
            yield "pose", "afloat"
        yield "lift", "flying"

    def _unread(self) -> Iterator[str]:
        # Yields the words that are neither shown nor named as missing, so that none is lost.
        shown, named = Counter(self._shown()), Counter(word for term in self.missing for word in term.split())
        for number, token in enumerate(self._tokens):
            is_bare = self._is_question and token.what == "size"
            if number in self._excused or token.what not in _CONTENT or is_bare:
                continue
            name = token.name.split()[-1] if token.what == "pattern" else token.name
            words = next((each for each in (token.text.split(), token.name.split()) if all(named[w] for w in each)), [])
            if words:
                named.subtract(words)
            elif not shown[token.what, name]:
                yield token.text
            elif token.what in ("colour", "pattern", "size", "side", "relation"):
                shown[token.what, name] -= 1


def _merged(paint: Paint, more: Paint) -> Paint:
    # The second colour of a paint without a pattern has no place.
    pattern = paint.pattern or more.pattern
    colours = [each for each in (paint.colour, paint.second, more.colour, more.second) if each]
    first, second = (*colours, "", "")[:2]
    return Paint(colour=first, second=second if pattern else "", pattern=pattern)


def _kind(name: str) -> Kind:
    # The first one of a group.
    return kinds().get(name) or kinds()[members(name)[0]]


def drawable(scene: Scene) -> tuple[Scene, list[str]]:
    """Returns the scene without what its place and style cannot show, and the words for that."""
    lost: list[str] = []
    if scene.place in INDOORS and scene.weather not in ("", "clear"):
        lost.append(scene.weather)
        scene = replace(scene, weather="")
    if scene.place in TIMELESS and scene.time not in ("", "day") and (scene.place, scene.time) != ("space", "night"):
        lost.append(scene.time)
        scene = replace(scene, time="")
    if scene.style in GREY_STYLES:
        colours = [each for paint in scene.paints for each in (paint.colour, paint.second)]
        lost += [each for each in colours if each not in ("", "black", "white", "grey")]
    return scene, lost


def read(prompt: str, seed: int, without: Sequence[str] = ()) -> tuple[Scene, tuple[str, ...]]:
    """Returns the scene of a prompt, not yet settled, and what of it is not drawn. See `Reader` for `without`."""
    reader = Reader(prompt, seed, without=without)
    scene = reader.scene
    missing = reader.missing
    if not (scene.figures or scene.place or scene.time or scene.weather or scene.style or missing):
        missing = [prompt.strip()[:_MAX_TERM] or "an empty prompt"]
    return scene, tuple(missing)
