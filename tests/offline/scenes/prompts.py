"""Prompts of a person's and of a language model's kind, and prompts made from what they ask for."""

from random import Random

from openmaia.offline.scenes.canvas import COLOURS
from openmaia.offline.scenes.kinds import kinds

WRITTEN = """
a red boat
two white boats with striped sails on the sea at dusk
a photo of a red car in the street at night
a boat, red, on the sea
the boat is red
On the table, a black cat
red and white striped ball on the beach
a red and a blue ball
a cat with red dots
a house with a red roof and a green door in a meadow
a flying elephant
a bird flying over the sea
a beach without umbrellas
an owl in a forest at midnight
three yellow flowers next to a big tree
a fish under water
a cat under the table
pencil sketch of a lighthouse on the coast in a storm
black and white photo of a cat
a white sheep standing in a green meadow with a rainbow in the sky
a close-up of a red apple on a wooden table
hot-air balloon with red and white stripes above the mountains
stars and a moon in the night sky
cat dog bird
a boat with blue sails and a red hull
two small red birds on the left and a big tree on the right
a car with black wheels in the rain
a green striped background with a star
diagonal blue and white stripes
a brick wall
purple polka dots
a checkerboard pattern
a snowy landscape with two pine trees and a cabin
kitten in front of a house
a rocket flying in outer space
sunset over the ocean
a cloudy day at the beach
mountains in the fog
a yellow taxi parked in the city
a puppy and a kitten
a purple butterfly on a yellow flower
a penguin standing on snow
a tent in the woods at night
an umbrella on the beach, sunny
a tiny mouse-grey rabbit in a field
a large green turtle under the sea
a lamp beside a chair in a living room
a clock on a table
a red mushroom with white spots in the forest
blurry picture of a bus
night vision image of a rabbit in the forest
pixel art of a castle
a cartoon of a snail
a windmill, a field, a rainbow
a crescent moon over the sea
a white duck on the lake
two lighthouses on the coast
a bicycle leaning
a guitar behind a chair
some clouds in the sky
several colored balloons
a few birds in the sky
a lot of flowers in a meadow
an apple in front of a book
a snowman with a green scarf in winter
a gift with a red ribbon
a plane above the clouds
a kite at the top of the picture
a green bottle on the left side
a cup on the right
red triangle on a white background
a blue circle next to a yellow square
a black cross on a pink background
a heart
turquoise
a plain blue background
a palm tree on a beach at sunset
a cactus in the desert at noon
a big whale and a small fish under water
a dog left of a cat
a dog to the right of a cat
a mountain in the distance
a house in the background and a car in the foreground
a checkered umbrella in the rain
zigzag pattern in black and yellow
concentric circles, red and white
a wavy blue and white background
a thunderstorm over a castle
a boat in a storm on the sea
a scene of a meadow in the morning with sheep
no clouds, a sun in the sky
the image shows a red house
there is a yellow car in the street
an illustration depicting a blue whale
a picture of two cats sitting on a table
a giant strawberry-red apple
a pink cloud at dawn
a dotted cup in a kitchen
a striped fish underwater
a penguin and an igloo in the snow
the moon
a rose in a bottle
""".strip().splitlines()

MODEL = """
A realistic photograph of a golden retriever puppy sitting in a grassy field under bright sunlight
Close-up photo of a red rose with dew drops on its petals, soft bokeh background
A bustling city street at night with cars, neon signs and people crossing
A vintage red bicycle leaning against a brick wall
An aerial view of a winding river through a dense forest
A close-up of a zebra's striped pattern
A blue ceramic mug on a wooden table next to a book, soft morning light
A sailboat on calm water at sunset
A person holding a black umbrella in the rain
A texture of red bricks with white mortar
A black and white checkerboard floor
A colorful hot air balloon floating over mountains at dawn
A fluffy white cat on a blue sofa
A solid red background
Concentric black and white circles on a plain background
A clown fish swimming among coral under water
A snowy mountain peak under a clear blue sky
A yellow school bus parked in front of a house
A lighthouse on a rocky coast during a storm
A minimalist drawing of a single tree on a hill
A bowl of fresh fruit on a kitchen table
A tabby cat sleeping on a windowsill
A man in a suit walking down the street
An orange tent in a pine forest at night with stars
A rocket launching into space
A group of penguins standing on ice
A grid of black lines on a white background
A honeycomb pattern
A castle on a hill surrounded by fog
Green leaves with sunlight shining through
A pair of shoes on a white background
A purple butterfly resting on a yellow flower
A stack of books beside a lamp
An elephant walking in the savanna at sunset
A plane flying through clouds
An abstract painting with diagonal stripes in blue and white
A desert landscape with a cactus and dunes
A green turtle on the beach
A wooden chair in an empty room
A sketch of a guitar
""".strip().splitlines()

_TIMES = {"": "", "at night": "night", "at dusk": "dusk", "in the morning": "morning"}
_PLACES = {
    "on the beach": "beach",
    "in a meadow": "meadow",
    "in the street": "street",
    "in the desert": "desert",
    "in the snow": "snow",
    "on the sea": "sea",
    "in the forest": "forest",
    "in the mountains": "mountains",
}
_NUMBERS = {1: "", 2: "two", 3: "three", 4: "4"}

Asked = tuple[list[tuple[str, str, str]], str, str]
"""(kind, colour, size) of each figure, the place and the time."""


def made(number: int) -> tuple[str, Asked]:
    """Returns a prompt in one of several orders of words, and what it asks for."""
    r = Random(f"prompt {number}")
    nouns: list[str] = []
    figures: list[tuple[str, str, str]] = []
    for _ in range(r.choice((1, 1, 2, 3))):
        kind = r.choice([each for each in kinds().values() if each.colours])
        count, colour, size = r.choice((1, 1, 1, 2, 3, 4)), r.choice(("", *COLOURS)), r.choice(("", "", "small", "big"))
        if len(figures) + count > 9:
            continue
        name = kind.name if count == 1 else _plural(kind.name)
        words = [_NUMBERS[count], *((size, colour) if r.random() < 0.7 else (colour, size)), name]
        phrase = " ".join(word for word in words if word)
        nouns.append(phrase if count > 1 else f"{'an' if phrase[0] in 'aeiou' else 'a'} {phrase}")
        figures += [(kind.name, colour, size)] * count
    where, when = r.choice(list(_PLACES)), r.choice(list(_TIMES))
    what = r.choice((" and ", ", ", " with ")).join(nouns)
    texts = [
        f"{what} {where} {when}",
        f"{where} {when}, {what}",
        f"A picture of {what}, {when} {where}.",
        f"{when} {where}: {what}",
    ]
    return r.choice(texts).strip(" ,:"), (sorted(figures), _PLACES[where], _TIMES[when])


def _plural(name: str) -> str:
    return {"butterfly": "butterflies", "fish": "fishes", "snowman": "snowmen", "sheep": "sheep"}.get(
        name, name + ("es" if name.endswith(("s", "x", "ch", "sh")) else "s")
    )
