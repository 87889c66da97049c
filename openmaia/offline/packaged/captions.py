"""Makes English captions from file names, for packages without captions."""

import re

_UNCLEAR = {
    # File names of gcompris-qt-data, mate-backgrounds and gimp-data that do not say what the image shows.
    "solar": "a solar panel", "geothermal": "a geothermal power station", "spray": "a spray bottle",
    "buffetset": "a cup and saucer", "blackslate": "a blackboard", "bulb": "a light bulb", "plier": "pliers",
    "cuttingtool": "pliers", "sidecutter": "pliers", "screwdriver": "a screwdriver", "tweezer": "tweezers",
    "dragon": "a Komodo dragon", "chamaeleon": "a chameleon", "longnosedmonkey": "a long-nosed monkey",
    "aqua": "drops of water", "blinds": "a green leaf", "dune": "grass on a dune", "garden": "flowers in a garden",
    "greenmeadow": "grass on a green meadow", "ladybird": "a ladybird on a flower",
    "raindrops": "leaves with rain drops", "storm": "a stormy sky",
    "twowings": "a dandelion seed and flowers", "wood": "a wooden floor",
    "sun": "the sun",
}  # fmt: skip

_TEXTURES = {
    "leopard": "leopard fur", "chocswirl": "chocolate", "java": "coffee beans", "crinklepaper": "crinkled paper",
    "starfield": "a starry sky", "cracked": "cracked stone", "moonfoot": "moon dust", "ground": "cracked ground",
    "terra": "cracked clay", "electric": "electric blue water", "pool": "water in a pool", "parque": "parquet",
    "pine": "pine wood", "walnut": "walnut wood", "bark": "tree bark", "stone": "a stone wall", "rock": "a rock wall",
    "brick": "a brick wall",
}  # fmt: skip


def photo(stem: str) -> str:
    """Makes a caption from the file name of a photograph, such as "A measuring tape." from "measuringTape4"."""
    text = _UNCLEAR.get(_key(stem)) or _words(stem).lower()
    if _key(stem) not in _UNCLEAR and not text.endswith("s"):
        text = f"{'an' if text[:1] in 'aeiou' else 'a'} {text}"
    return _sentence(text)


def named(stem: str, form: str) -> str:
    """Fills a proper name into a caption: "eiffelTower" and "{}, a monument" give "Eiffel Tower, a monument."."""
    return _sentence(form.format(" ".join(word[:1].upper() + word[1:] for word in _words(stem).split())))


def texture(stem: str) -> str:
    """Makes a caption from the file name of a texture, such as "A texture of marble." from "marble2"."""
    return _sentence(f"a texture of {_TEXTURES.get(_key(stem)) or _words(stem).lower()}")


def _words(stem: str) -> str:
    words = re.sub(r"(?<=[a-z])(?=[A-Z])|[_\-\s]+|(?<=[A-Za-z])(?=\d)", " ", stem).split()
    return " ".join(word for word in words if not word.isdigit())


def _key(stem: str) -> str:
    return re.sub(r"[^a-z]", "", stem.lower())


def _sentence(text: str) -> str:
    return f"{text[:1].upper()}{text[1:]}."
