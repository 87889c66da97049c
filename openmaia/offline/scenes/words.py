"""The words of prompts: what each means, with synonyms and plurals."""

from collections.abc import Iterator, Mapping
from functools import cache

from openmaia.offline.scenes.canvas import COLOURS
from openmaia.offline.scenes.kinds import kinds

Meaning = tuple[str, str]
"""What a word is, and its name: ("kind", "boat")."""

_TABLE: Mapping[str, str] = {
    "colour": "grey, gray, silver; turquoise, teal, cyan; purple, violet, lilac; brown, tan, wooden; yellow, golden; pink, magenta;"
    "red, crimson, scarlet; white; black; orange; green; blue, navy",
    "pattern": "vertical stripes, vertically striped, vertical lines, vertical bars;"
    "horizontal stripes, horizontally striped, horizontal lines, horizontal bands;"
    "diagonal stripes, diagonally striped, diagonal lines; stripes, striped, stripe, stripy, stripey;"
    "dots, dotted, polka dots, polka dot, polka dotted, spots, spotted, dot, speckled;"
    "checks, checked, checkered, chequered, checkerboard, chessboard, checkerboard pattern, checker;"
    "zigzag, zigzags, zig zag, zigzag lines, chevron, chevrons; rings, ringed, concentric circles, concentric rings, bullseye, target;"
    "bricks, brick, brick wall, brickwork, brick pattern; grid, gridded, grid lines, mesh, net, lattice, plaid; waves, wavy, wavy lines",
    "direction": "vertical; horizontal; diagonal",
    "place": "sea, ocean, open sea, lake, harbour, harbor, water; beach, seaside, shore, coast, seashore, sandy beach, sand;"
    "meadow, grass, field, lawn, grassland, hills, green hills, countryside, garden, park, farm; forest, woods, woodland, jungle;"
    "mountains, alps, snowy mountains, mountain range, mountain landscape, mountain valley; desert, dunes, sand dunes, savanna, sahara;"
    "snow, snowy, winter, snowy landscape, winter landscape, snowy field;"
    "street, road, city, town, city street, skyline, urban street, sidewalk, pavement, downtown;"
    "room, indoors, living room, kitchen, bedroom, inside a room, interior, floor, wooden floor;"
    "underwater, under water, under the sea, under the water, below water, sea floor, bottom of the sea, beneath the sea, seabed,"
    "coral reef, aquarium; sky, air, heavens; space, outer space, cosmos, galaxy",
    "time": "morning, dawn, sunrise; day, daytime, daylight, noon, midday, by day; dusk, sunset, evening, twilight;"
    "night, nighttime, midnight, night time, starry night, by night",
    "weather": "rain, rainy, raining, rainfall; storm, stormy, thunderstorm, lightning, thunder;"
    "snowfall, snowing, it snow, it snows, falling snow, snow falling, snowstorm, blizzard; fog, foggy, mist, misty; cloudy, overcast; clear, sunny, cloudless",
    "style": "outlined, outline, outline drawing, line drawing, cartoon, comic, cartoon style, line art;"
    "pencil drawing, pencil, pencil sketch, sketch, hand drawn, sketched;"
    "night vision, night vision camera, infrared;"
    "greyscale, grayscale, monochrome, black and white photo, black and white picture, black and white image,"
    "black and white photograph, in black and white; pixelated, pixel art, pixels, low resolution; blurred, blurry, out of focus, blur;"
    "flat, flat design",
    "size": "tiny, mini, miniature, very small; small, little, smaller; big, large, bigger, larger, tall;"
    "huge, giant, gigantic, enormous, very big, very large, close up",
    "side": "left, on the left, to the left, left side, on the left side, in the left; right, on the right, to the right,"
    "right side, on the right side, in the right; middle, center, centre, in the middle, in the center, in the centre;"
    "top, at the top, on top of the picture; bottom, at the bottom; far, in the distance, far away, in the background, distant;"
    "near, in the foreground, nearby",
    "count": "1, one, single; 2, two, pair of, couple of; 3, three, a few, few, some, trio of, group of; 4, four, several;"
    "5, five, flock of, bunch of; 6, six, many, lots of, a lot of, herd of; 7, seven; 8, eight; 9, nine",
    "relation": "on, on top of, atop, upon, onto, sitting on, standing on, lying on, resting on; under, below, beneath, underneath;"
    "beside, next to, near, by, alongside, close to, besides, to the side of, at the side of; behind; in front of, before;"
    "above, over; left of, to the left of, on the left of; right of, to the right of, on the right of",
    "lift": "flying, floating in the air, hovering, in the air, in mid air, in the sky",
    "pose": "afloat, swimming, swims, sailing, floating, floats",
    "not": "without, without any, no, not",
    "in": "in, inside, at, within, across, into, through, against",
    "with": "with, having, has, and with, wearing",
    "and": "and, plus, as well as, along with, together with",
    "ground": "background, backdrop, wall, surface, backgrounds",
    "pattern word": "pattern, patterned, texture, textured, print, wallpaper, fabric, design",
    "all": "everything, all, every, both",
    "it": "it, them, this, itself",
}
# The only words that are set aside without being named: grammar, the medium, how good it is, and a pose that every figure has.
# They name nothing that a picture could lack. A word for how things look or what they do ("cozy", "shiny", "sleeping") is none.
_FILLERS = (
    "a an the of is are there be being this that which these its with only just plain solid simple single set to up very then "
    "also please now during while alone lone "
    "photo photos photograph photography photographic picture pictures image images illustration illustrations drawing painting "
    "depiction render rendering artwork art shot scene scenes scenery view landscape snapshot showing shows depicting featuring "
    "style styles full whole entire color colour colors colours colored coloured time weather made side day's "
    "realistic photorealistic detailed highly ultra hd uhd quality high professional stock beautiful lovely nice "
    "pretty gorgeous stunning amazing scenic picturesque "
    "standing stand stands parked growing located placed visible seen displayed empty"
).split()
_GROUPS = {
    "animal": "animals, creature, pet, wildlife",
    "vehicle": "transport, vehicles",
    "building": "buildings, architecture, tower",
    "plant": "plants, vegetation",
    "fruit": "fruits",
    "furniture": "piece of furniture",
    "toy": "toys",
    "shape": "shapes, figure",
}


def _plurals(word: str) -> Iterator[str]:
    if word.endswith(("s", "sh", "ch", "x")):
        yield word + "es"
    elif word.endswith("y") and word[-2:-1] not in "aeiou":
        yield word[:-1] + "ies"
    elif word.endswith("fe"):
        yield word[:-2] + "ves"
    else:
        yield word + "s"
    if word.endswith("o"):
        yield word + "es"
    yield word.removesuffix("man") + "men" if word.endswith("man") else word + "s"


def plural(kind: str) -> str:
    """Returns the plural of a kind. Those of sheep and fish are read by their number."""
    return {"sheep": "sheep", "fish": "fish", "snowman": "snowmen"}.get(kind) or next(_plurals(kind))


@cache
def lexicon() -> Mapping[tuple[str, ...], tuple[Meaning, bool]]:
    """Returns (meaning, is plural) of each word or phrase, by its tokens."""
    found: dict[tuple[str, ...], tuple[Meaning, bool]] = {}

    def add(phrase: str, meaning: Meaning, *, is_plural: bool = False) -> None:
        found.setdefault(tuple(phrase.split()), (meaning, is_plural))

    for what, table in _TABLE.items():
        for row in table.split(";"):
            names = [each.strip() for each in row.split(",")]
            for name in names:
                add(name, (what, names[0]))
    nouns = [(kind.name, (kind.name, *kind.aliases), "kind") for kind in kinds().values()]
    nouns += [(name, (name, *(each.strip() for each in more.split(","))), "group") for name, more in _GROUPS.items()]
    for name, spelled, what in nouns:
        for each in spelled:
            add(each, (what, name))
            for many in _plurals(each):
                add(many, (what, name), is_plural=True)
    for kind in kinds().values():
        for part in kind.parts:
            add(part, ("part", part))
            for many in _plurals(part):
                add(many, ("part", part), is_plural=True)
    for each in _FILLERS:
        add(each, ("filler", each))
    return found


@cache
def longest() -> int:
    """Returns the number of tokens of the longest phrase."""
    return max(len(phrase) for phrase in lexicon())


NATURAL: Mapping[str, tuple[str, ...]] = {
    "sea": ("blue",),
    "beach": ("yellow", "white"),
    "meadow": ("green",),
    "forest": ("green",),
    "mountains": ("white", "grey"),
    "desert": ("yellow", "orange", "brown"),
    "snow": ("white",),
    "street": ("grey",),
    "underwater": ("blue",),
    "sky": ("blue",),
    "space": ("black", "blue"),
    "room": ("brown",),
}
"""The colours that a place has anyway, as in "green grass"."""

SCENERY: Mapping[str, tuple[str, ...]] = {
    "forest": ("tree", "pine", "plant"),
    "mountains": ("mountain", "plant"),
    "meadow": ("plant",),
    "underwater": ("plant",),
    "street": ("building", "house"),
    "space": ("star",),
    "night": ("star",),
    "cloudy": ("cloud",),
    "rain": ("cloud",),
    "storm": ("cloud",),
}
"""What places, times and weathers show without a figure."""


def members(group: str) -> list[str]:
    """Returns the kinds that a word names: itself, or those of a group."""
    return [kind.name for kind in kinds().values() if group == kind.name or group in kind.wider]


STRIPES = ("vertical stripes", "horizontal stripes", "diagonal stripes")
PATTERNS = (*STRIPES, "dots", "checks", "zigzag", "rings", "bricks", "grid", "waves")


@cache
def names() -> tuple[str, ...]:
    """Returns all words without their synonyms, for the agent."""
    rows = [
        row.split(",")[0].strip()
        for what in ("place", "time", "weather", "style", "size")
        for row in _TABLE[what].split(";")
    ]
    return tuple(dict.fromkeys((*kinds(), *_GROUPS, *COLOURS, *PATTERNS, *rows)))
