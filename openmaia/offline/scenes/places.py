"""The places: sky, ground and scenery, with the light of the time of day and the weather."""

from collections.abc import Callable, Mapping
from math import cos, pi, sin
from random import Random

from openmaia.offline.scenes.canvas import COLOURS, RGB, Canvas, mix
from openmaia.offline.scenes.graph import Scene
from openmaia.offline.scenes.layout import HORIZON

_SKIES: Mapping[str, tuple[RGB, ...]] = {
    "morning": ((120, 166, 218), (214, 206, 220), (255, 224, 196)),
    "day": ((84, 164, 226), (148, 204, 238), (222, 241, 243)),
    "dusk": ((70, 60, 128), (206, 96, 116), (255, 190, 116)),
    "night": ((12, 16, 44), (24, 34, 80), (58, 74, 132)),
}
_LIGHT: Mapping[str, RGB] = {
    "morning": (255, 243, 236),
    "day": (255, 255, 255),
    "dusk": (255, 220, 206),
    "night": (168, 176, 222),
}
# How grey the sky is, and with which colour; how bright the light.
_WEATHER: Mapping[str, tuple[float, RGB, float]] = {
    "clear": (0.0, (0, 0, 0), 1.0),
    "cloudy": (0.45, (176, 186, 198), 0.95),
    "rain": (0.62, (132, 144, 160), 0.9),
    "storm": (0.82, (66, 72, 92), 0.78),
    "snowfall": (0.6, (204, 212, 222), 0.97),
    "fog": (0.6, (216, 220, 222), 0.98),
}
_WALLS: tuple[RGB, ...] = ((236, 226, 208), (206, 220, 226), (226, 210, 218), (214, 224, 204), (238, 218, 190))


def light(canvas: Canvas, scene: Scene) -> tuple[RGB, ...]:
    """Sets the light of a canvas. Returns the colours of the sky from top to bottom."""
    share, grey, bright = _WEATHER[scene.weather]
    sun = _LIGHT[scene.time]
    dull = (grey[0] * sun[0] // 255, grey[1] * sun[1] // 255, grey[2] * sun[2] // 255)
    if scene.time == "night":
        dull = mix(dull, (20, 24, 56), 0.55)
    sky = tuple(mix(each, dull, share) for each in _SKIES[scene.time])
    canvas.light = (round(sun[0] * bright), round(sun[1] * bright), round(sun[2] * bright))
    canvas.haze = sky[-1]
    canvas.shadow = 0.34 if scene.weather == "clear" else 0.2
    return sky


def paint_place(canvas: Canvas, scene: Scene) -> None:
    """Draws the place of a settled scene."""
    stream = Random(f"{scene.seed} place")
    sky = light(canvas, scene)
    if scene.place not in ("room", "underwater", "space"):
        _sky(canvas, scene, sky, stream)
    if scene.place in _PAINTERS:
        _PAINTERS[scene.place](canvas, scene, Random(f"{scene.seed} ground"), sky)


def _sky(c: Canvas, scene: Scene, sky: tuple[RGB, ...], r: Random) -> None:
    horizon = min(HORIZON[scene.place] + 0.02, 1.0)
    c.gradient(sky, 0, horizon)
    x = r.uniform(0.2, 0.8)
    if scene.time in ("morning", "dusk") and scene.weather == "clear":
        c.glow(x, horizon, 0.75, 0.42, (255, 232, 170), 0.85)
    elif scene.time == "day" and scene.weather == "clear":
        c.glow(x, 0.0, 0.6, 0.5, (255, 255, 240), 0.35)
    if scene.time == "night" and scene.weather == "clear":
        for _ in range(70):
            x, y, bright = r.random(), r.random() ** 1.3 * horizon, r.random()
            c.disc(x, y, 0.0016 + 0.0026 * bright**3, mix(sky[0], (255, 250, 230), 0.35 + 0.6 * bright))
    if scene.weather in ("cloudy", "rain", "storm"):
        tone = mix(sky[0], (255, 255, 255) if scene.weather == "cloudy" else (30, 34, 52), 0.3)
        for n in range(3):
            y = 0.05 + 0.09 * (2 - n)
            for k in range(9):
                x, rx = (k + r.random()) / 9, r.uniform(0.08, 0.16)
                c.glow(x, y + r.uniform(-0.03, 0.03), rx * 1.9, rx * 0.9, mix(tone, sky[1], 0.2 * n), 1.0)
    if scene.weather == "storm":
        x, y = r.uniform(0.2, 0.8), 0.12
        points = [(x, y)]
        while y < horizon:
            x, y = x + r.uniform(-0.06, 0.06), y + r.uniform(0.05, 0.1)
            points.append((x, min(y, horizon)))
        c.glow(points[1][0], 0.3, 0.4, 0.4, (200, 200, 255), 0.4)
        c.line(points, (255, 250, 215), 0.011)


def _arc(x: float, y: float, width: float, height: float) -> list[tuple[float, float]]:
    return [(x + width * t, y - height * sin(t * pi)) for t in (0, 0.25, 0.5, 0.75, 1)]


def _wave(y: float, height: float, r: Random, bumps: float = 1.0, bottom: float = 1.0) -> list[tuple[float, float]]:
    # A smooth hill line from left to right, closed at the bottom.
    phase, other = r.uniform(0, 2 * pi), r.uniform(0, 2 * pi)
    xs = [n / 32 for n in range(33)]
    line = [(x, y - height * (0.6 * sin(x * bumps * 4 + phase) + 0.4 * sin(x * bumps * 9 + other))) for x in xs]
    return [*line, (1.0, bottom), (0.0, bottom)]


def _ridge(y: float, height: float, r: Random, peaks: int) -> list[tuple[float, float]]:
    points = [(0.0, y - height * r.uniform(0.2, 0.6))]
    for n in range(peaks):
        x = (n + 0.5) / peaks
        points += [
            (x + r.uniform(-0.1, 0.1) / peaks, y - height * r.uniform(0.7, 1.0)),
            (x + 0.5 / peaks, y - height * r.uniform(0.15, 0.45)),
        ]
    return points


def _sea(c: Canvas, scene: Scene, r: Random, sky: tuple[RGB, ...], top: float = 0.56, bottom: float = 1.0) -> None:
    if r.random() < 0.6:
        x, w = r.uniform(0.1, 0.9), r.uniform(0.16, 0.3)
        hill = [(x + w * (n / 12 - 0.5) * 2, top - 0.055 * sin(n / 12 * pi) ** 1.4) for n in range(13)]
        c.fill(hill, c.lit((104, 136, 140), 0.55))
    deep = mix((30, 98, 166), sky[0], 0.25)
    near = mix((86, 170, 204), sky[-1], 0.45)
    c.gradient([c.lit(near), c.lit(mix(near, deep, 0.6)), c.lit(deep), c.lit(mix(deep, (8, 30, 80), 0.3))], top, bottom)
    glow = sky[-1] if scene.time != "day" else (255, 255, 255)
    rows = 17
    for n in range(rows):
        depth = ((n + 0.6) / rows) ** 1.6
        y, width = top + (1 - top) * depth, 0.02 + 0.09 * depth
        if y > bottom - 0.01:
            break
        for _ in range(5):
            arc = _arc(r.random() - width / 2, y, width, 0.001 + 0.007 * depth)
            under = c.lit(mix(deep, near, 1 - depth))
            c.line(arc, mix(under, glow, 0.22 + 0.2 * r.random()), 0.0018 + 0.0042 * depth)


def _beach(c: Canvas, scene: Scene, r: Random, sky: tuple[RGB, ...]) -> None:
    c.gradient([sky[-1], sky[-1]], 0.44, 0.6)
    _sea(c, scene, r, sky, 0.45, 0.68)
    shore = _wave(0.645, 0.012, r, 0.9)
    for down, colour in ((0.0, (206, 232, 232)), (0.012, (250, 252, 250)), (0.024, (214, 186, 138))):
        c.fill([(x, y + down if y < 1 else y) for x, y in shore], c.lit(colour))
    c.fill([(x, y + 0.06 if y < 1 else y) for x, y in shore], c.lit((238, 212, 160)))
    c.fill(_wave(0.82, 0.02, r), c.lit((246, 224, 176)))
    for _ in range(50):
        x, y = r.random(), r.uniform(0.74, 0.99)
        c.disc(x, y, 0.002 + 0.002 * r.random(), c.lit((214, 184, 132)))


def _meadow(c: Canvas, scene: Scene, r: Random, sky: tuple[RGB, ...]) -> None:
    for y, tall, colour, far in ((0.575, 0.03, (112, 164, 118), 0.5), (0.605, 0.035, (122, 176, 98), 0.25)):
        c.fill(_wave(y, tall, r, 0.9), c.lit(colour, far))
    c.gradient([c.lit((142, 192, 92)), c.lit((104, 164, 78))], 0.98, 1)
    c.fill(_wave(0.655, 0.018, r, 0.7), c.lit((142, 192, 92)))
    c.fill(_wave(0.78, 0.03, r, 0.6), c.lit((122, 178, 82)))
    c.fill(_wave(0.92, 0.025, r, 0.8), c.lit((104, 162, 74)))
    _tufts(c, r, (80, 138, 62), 34, 0.68)


def _tufts(c: Canvas, r: Random, colour: RGB, n: int, top: float) -> None:
    for _ in range(n):
        x, y = r.random(), r.uniform(top, 1.0)
        tall = 0.012 + 0.035 * (y - top)
        for lean in (-0.5, 0.0, 0.5):
            c.line([(x, y), (x + lean * tall, y - tall)], c.lit(colour), 0.0034)


def _forest(c: Canvas, scene: Scene, r: Random, sky: tuple[RGB, ...]) -> None:
    for far, y, tall, n in ((0.66, 0.62, 0.34, 15), (0.42, 0.65, 0.46, 11), (0.16, 0.68, 0.6, 8)):
        green = c.lit(mix((34, 82, 66), (62, 122, 82), far), far)
        c.fill(_wave(y, 0.01, r), green)
        for k in range(n):
            x, h = (k + r.uniform(0.2, 0.8)) / n, tall * r.uniform(0.75, 1.1)
            w = h * 0.17
            for step in range(4):
                low, high = y - h * (0.12 + 0.2 * step), y - h * (0.46 + 0.2 * step)
                half = w * (1 - 0.2 * step)
                c.fill([(x - half, low), (x, low - h * 0.03), (x + half, low), (x, high)], green)
            c.fill([(x - 0.01 * h * 3, y), (x + 0.01 * h * 3, y), (x, y - h * 0.3)], green)
    c.fill(_wave(0.67, 0.012, r), c.lit((92, 128, 74)))
    c.fill(_wave(0.8, 0.025, r, 0.7), c.lit((78, 112, 66)))
    _tufts(c, r, (58, 92, 56), 30, 0.7)


def _mountains(c: Canvas, scene: Scene, r: Random, sky: tuple[RGB, ...]) -> None:
    for far, y, tall, peaks, rock in ((0.62, 0.6, 0.34, 3, (132, 148, 186)), (0.35, 0.64, 0.26, 4, (108, 120, 152))):
        ridge = _ridge(y, tall, r, peaks)
        c.fill([*ridge, (1, 1), (0, 1)], c.lit(rock, far))
        for (lx, ly), (x, top), (rx, ry) in zip(ridge[::2], ridge[1::2], ridge[2::2], strict=False):
            c.fill(
                [(x, top), (rx, ry), (rx, y), (x - 0.01, y), (x + 0.015, (top + y) / 2)],
                c.lit(mix(rock, (60, 66, 110), 0.3), far),
            )
            cut = 0.36
            snow = [(x, top), (x + (rx - x) * cut, top + (ry - top) * cut), (x + (rx - x) * 0.12, top + (ry - top) * 0.3),
                    (x, top + (ry - top) * 0.46), (x + (lx - x) * 0.14, top + (ly - top) * 0.3), (x + (lx - x) * cut, top + (ly - top) * cut)]  # fmt: skip
            c.fill(snow, c.lit((250, 252, 255), far * 0.6))
    c.fill(_wave(0.655, 0.02, r, 1.2), c.lit((98, 142, 104), 0.2))
    c.fill(_wave(0.72, 0.02, r), c.lit((122, 168, 96)))
    c.fill(_wave(0.86, 0.03, r, 0.7), c.lit((104, 152, 82)))
    _tufts(c, r, (82, 128, 66), 26, 0.74)


def _desert(c: Canvas, scene: Scene, r: Random, sky: tuple[RGB, ...]) -> None:
    c.fill(_wave(0.565, 0.02, r, 1.2), c.lit((226, 186, 136), 0.4))
    for y, tall, far in ((0.61, 0.045, 0.2), (0.72, 0.04, 0.05), (0.86, 0.035, 0.0)):
        line = _wave(y, tall, r, 0.6)
        c.fill(line, c.lit((240, 200, 138), far))
        # The side away from the light: below the crest of the dune.
        x, top = min(line[2:-4], key=lambda point: point[1])
        crest = [(x, top), *[(px, py) for px, py in line[:-2] if px > x]]
        shade = [*crest, (1.0, y + 0.16), (x + 0.2, y + 0.13), (x + 0.06, y + 0.06)]
        c.fill(shade, c.lit((214, 164, 110), far))
    for _ in range(12):
        c.line(_arc(r.random(), r.uniform(0.76, 0.98), r.uniform(0.04, 0.1), 0.006), c.lit((206, 158, 104)), 0.0035)


def _snow(c: Canvas, scene: Scene, r: Random, sky: tuple[RGB, ...]) -> None:
    c.fill(_wave(0.56, 0.03, r, 1.1), c.lit((196, 212, 232), 0.4))
    c.fill(_wave(0.61, 0.03, r, 0.8), c.lit((226, 236, 247), 0.1))
    c.fill(_wave(0.72, 0.025, r, 0.7), c.lit((240, 246, 252)))
    c.fill(_wave(0.86, 0.03, r, 0.6), c.lit((250, 252, 255)))
    for _ in range(16):
        c.line(_arc(r.random(), r.uniform(0.68, 0.98), r.uniform(0.03, 0.09), 0.004), c.lit((206, 220, 238)), 0.004)


def _street(c: Canvas, scene: Scene, r: Random, sky: tuple[RGB, ...]) -> None:
    is_lit = scene.time in ("dusk", "night")
    tones = ((214, 150, 122), (150, 166, 186), (226, 198, 150), (176, 142, 150), (142, 158, 150))
    for far, low, high in ((0.55, 0.3, 0.52), (0.12, 0.16, 0.36)):
        x = -r.uniform(0.02, 0.1)
        while x < 1:
            w, h = r.uniform(0.12, 0.2), r.uniform(low, high)
            y, tone = 0.69 - h, tones[r.randrange(len(tones))]
            c.box(x, y, x + w, 0.7, c.lit(tone, far))
            c.box(x + w * 0.86, y, x + w, 0.7, c.lit(mix(tone, (40, 36, 70), 0.25), far))
            c.box(x, y, x + w, y + 0.012, c.lit(mix(tone, (40, 36, 70), 0.35), far))
            for k in range(int(h / 0.06)):
                for m in range(3):
                    a, b, lamp = x + w * (0.12 + 0.26 * m), y + 0.03 + 0.06 * k, r.random() < 0.55
                    glass = mix((255, 220, 130), c.haze, far * 0.6) if is_lit and lamp else c.lit((96, 112, 140), far)
                    c.box(a, b, a + w * 0.15, b + 0.032, glass)
            x += w
    c.gradient([c.lit((196, 192, 188)), c.lit((210, 206, 200))], 0.685, 0.77)
    c.gradient([c.lit((150, 148, 150))] * 2, 0.77, 0.783)
    c.gradient([c.lit((92, 94, 104)), c.lit((74, 76, 88))], 0.783, 1)
    start = r.uniform(0, 0.2)
    for n in range(6):
        x = start + 0.22 * n - 0.2
        c.fill([(x, 0.885), (x + 0.11, 0.885), (x + 0.1, 0.9), (x - 0.012, 0.9)], c.lit((240, 226, 170)))


def _room(c: Canvas, scene: Scene, r: Random, sky: tuple[RGB, ...]) -> None:
    wall = _WALLS[r.randrange(len(_WALLS))]
    outside = c.lit((255, 255, 255))
    c.light = {"night": (232, 208, 190), "dusk": (250, 226, 208)}.get(scene.time, (255, 252, 246))
    c.haze, c.shadow = c.lit(wall), 0.3
    c.gradient([c.lit(mix(wall, (120, 100, 120), 0.12)), c.lit(wall)], 0, 0.69)
    left = r.choice((0.1, 0.58))
    x0, y0, x1, y1 = left, 0.1, left + 0.3, 0.46
    frame = c.lit((250, 246, 238))
    c.box(x0 - 0.02, y0 - 0.02, x1 + 0.02, y1 + 0.02, frame)
    c.gradient((sky[0], sky[2]), y0, y1, x0, x1)
    c.line([(x0, (y0 + y1) / 2), (x1, (y0 + y1) / 2)], frame, 0.012)
    c.line([((x0 + x1) / 2, y0), ((x0 + x1) / 2, y1)], frame, 0.012)
    c.box(x0 - 0.04, y1 + 0.02, x1 + 0.04, y1 + 0.045, c.lit((232, 226, 216)))
    wood = (186, 134, 92)
    c.gradient([c.lit(mix(wood, (90, 56, 46), 0.22)), c.lit(wood)], 0.69, 1)
    for n in range(-6, 8):
        c.line([(0.5 + 0.085 * n, 0.7), (0.5 + 0.19 * n, 1.0)], c.lit(mix(wood, (80, 50, 40), 0.35)), 0.0035)
    if scene.time in ("day", "morning") and outside[0] > 200:
        shift = 0.12 if left < 0.3 else -0.12
        patch = [(x0 + shift, 0.76), (x1 + shift, 0.76), (x1 + shift * 2, 0.94), (x0 + shift * 2, 0.94)]
        c.fill(patch, c.lit(mix(wood, (255, 236, 190), 0.3)))
    c.gradient([frame, c.lit((222, 214, 204))], 0.665, 0.695)


def _underwater(c: Canvas, scene: Scene, r: Random, sky: tuple[RGB, ...]) -> None:
    top, deep = c.lit((98, 206, 214)), c.lit((12, 62, 116))
    c.gradient([top, c.lit((40, 146, 182)), c.lit((20, 96, 150)), deep], 0, 1)
    c.haze, c.shadow = c.lit((40, 130, 170)), 0.3
    x = r.uniform(0.1, 0.3)
    for n in range(4):
        w, lean = r.uniform(0.04, 0.1), 0.16 + 0.05 * n
        c.ray([(x, 0), (x + w, 0), (x + w * 2.2 + lean, 0.95), (x + lean - w, 0.95)], (214, 255, 250), 0.2)
        x += w + r.uniform(0.1, 0.16)
    c.fill(_wave(0.8, 0.03, r, 1.3), c.lit((32, 92, 128)))
    c.fill(_wave(0.87, 0.02, r, 0.8), c.lit((196, 184, 146), 0.25))
    c.fill(_wave(0.94, 0.015, r, 1.1), c.lit((210, 196, 150), 0.12))
    for _ in range(r.randint(4, 6)):
        x, y = r.choice((r.uniform(0.02, 0.25), r.uniform(0.75, 0.98))), r.uniform(0.86, 0.95)
        tall, phase, green = r.uniform(0.12, 0.3), r.uniform(0, 6), c.lit((38, 132, 104), r.uniform(0.1, 0.4))
        # A ribbon that narrows to its tip: up one side, down the other.
        sides = [(side, t / 10) for side, ts in ((-1, range(11)), (1, range(10, -1, -1))) for t in ts]
        c.fill([(x + 0.018 * sin(phase + 7 * t) + side * 0.011 * (1 - t), y - tall * t) for side, t in sides], green)
    for _ in range(14):
        x, y, size = r.random(), r.uniform(0.06, 0.85), r.uniform(0.004, 0.011)
        c.disc(x, y, size, mix(top, (255, 255, 255), 0.35))
        c.disc(x + size * 0.15, y + size * 0.15, size * 0.68, mix(top, deep, y * 0.8))


def _space(c: Canvas, scene: Scene, r: Random, sky: tuple[RGB, ...]) -> None:
    c.gradient([(10, 10, 30), (22, 18, 58), (34, 24, 74)])
    c.light, c.haze = (240, 240, 255), (30, 24, 70)
    for colour in ((126, 60, 170), (40, 120, 180), (200, 80, 130)):
        c.glow(r.random(), r.uniform(0, 0.8), r.uniform(0.3, 0.6), r.uniform(0.15, 0.4), colour, 0.38)
    for _ in range(110):
        x, y, bright = r.random(), r.random(), r.random()
        c.disc(x, y, 0.0014 + 0.0032 * bright**4, mix((60, 56, 110), (255, 250, 236), bright))
    x, size = r.uniform(0.2, 0.8), r.uniform(0.8, 1.0)
    c.glow(x, 1.62, size * 1.22, size * 1.22, (120, 190, 255), 1.0)
    for n, colour in enumerate(((112, 178, 232), (66, 128, 198), (44, 92, 160))):
        radius, turns = size - 0.02 * n, [a / 32 * pi for a in range(33)]
        c.fill([(x + radius * cos(a), 1.7 + 0.008 * n - radius * sin(a)) for a in turns], colour)


def _plain(c: Canvas, scene: Scene, r: Random, sky: tuple[RGB, ...]) -> None:
    c.light, c.haze, c.shadow = (255, 255, 255), COLOURS[scene.ground.colour], 0.22
    if scene.ground.pattern:
        c.pattern(scene.ground, r.uniform(0.13, 0.2), r.uniform(-8, 8))
        return
    colour = COLOURS[scene.ground.colour]
    c.gradient([mix(colour, (255, 255, 255), 0.06), colour, mix(colour, (0, 0, 0), 0.05)])


_PAINTERS: Mapping[str, Callable[[Canvas, Scene, Random, tuple[RGB, ...]], None]] = {
    "sea": _sea,
    "beach": _beach,
    "meadow": _meadow,
    "forest": _forest,
    "mountains": _mountains,
    "desert": _desert,
    "snow": _snow,
    "street": _street,
    "room": _room,
    "underwater": _underwater,
    "space": _space,
    "plain": _plain,
}


def paint_weather(canvas: Canvas, scene: Scene) -> None:
    """Draws what falls in front of the figures, and the fog."""
    r = Random(f"{scene.seed} weather")
    if scene.weather in ("rain", "storm"):
        colour = mix(canvas.haze, (255, 255, 255), 0.35)
        for _ in range(110):
            x, y, tall = r.uniform(0, 1.1), r.random(), r.uniform(0.03, 0.07)
            canvas.line([(x, y), (x - tall * 0.3, y + tall)], colour, 0.0026)
    elif scene.weather == "snowfall":
        for _ in range(120):
            x, y, near = r.random(), r.random(), r.random()
            canvas.disc(x, y, 0.003 + 0.006 * near**2, mix(canvas.haze, (255, 255, 255), 0.6 + 0.4 * near))
    elif scene.weather == "fog":
        canvas.fog(mix(canvas.haze, (236, 238, 238) if scene.time != "night" else canvas.haze, 0.5))
