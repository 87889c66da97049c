"""The toolbox behind the agent's calls: which rendering is used, what the agent is told, and hostile arguments."""

import io
import math
import struct
import time
import zlib
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from PIL import Image

from openmaia.agent.context import InvestigationContext
from openmaia.agent.experiments import ToolSession
from openmaia.agent.sandbox import ExperimentStopped
from openmaia.agent.tasks.task import load as load_task
from openmaia.agent.tools import api, values
from openmaia.agent.tools.api_text import api_text
from openmaia.agent.tools.toolbox import Toolbox, ToolEffect
from openmaia.assembly import investigations
from openmaia.config.loading import load
from openmaia.core.errors import ToolError
from openmaia.core.images import EncodedImage, upsample
from openmaia.core.messages import Chat, Reply
from openmaia.core.services import Services, UnitExemplars
from openmaia.core.units import Unit
from openmaia.datasets.library import ImageDataset
from openmaia.offline.closed_form.target import ClosedFormTarget
from openmaia.offline.collage import CollageEditor, CollageGenerator
from openmaia.runs.records import Did
from tests.conftest import REPOSITORY
from tests.helpers.dissecting import dissect
from tests.helpers.images import sample_image, save
from tests.helpers.looking import look

UNIT = Unit(target="t", layer="mono", index=0)
"""Red, computed from the pixels."""


class Viewer:
    """A backbone that says what it was sent: how many messages, how many pictures, and the mean light of the first."""

    def __init__(self) -> None:
        self.chats: list[Chat] = []

    def reply(self, chats: Sequence[Chat]) -> list[Reply]:
        self.chats += chats
        return [Reply(text=f" {len(c.messages)} message, {len(c.messages[-1].images)} pictures ") for c in chats]


class InMemory:
    def __init__(self, exemplars: UnitExemplars):
        self._exemplars = exemplars

    def read(self, unit: Unit) -> UnitExemplars:
        return replace(self._exemplars, unit=unit)


def half_red(seed: int) -> EncodedImage:
    image = sample_image(seed, (224, 224)).convert("L").convert("RGB")
    image.paste((214, 32, 32), (0, 0, 112, 16 * (seed + 1)))
    return EncodedImage.of(np.asarray(image), [f"file-{seed}"])


def brightness(image: Image.Image, scale: float = 1.0, note: str | None = None) -> list[Any]:
    """Mean light of an image."""
    return [float(np.asarray(image).mean()) * scale, type(scale).__name__, note]


def brightest(images: list[Image.Image]) -> dict[str, Any]:
    """The brightest image."""
    best = max(images, key=lambda image: float(np.asarray(image).mean()))
    return {"image": best, "count": len(images), "nested": [best, "text"]}


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> ImageDataset:
    folder = tmp_path_factory.mktemp("pictures")
    for seed in range(6):
        save(folder / f"{seed}.png", sample_image(seed))
    return ImageDataset.open(folder)


@pytest.fixture(scope="module")
def exemplars() -> UnitExemplars:
    return dissect(ClosedFormTarget("t"), [half_red(seed) for seed in range(8)], [UNIT], k=3, quantile=0.9)[0]


@pytest.fixture
def viewer() -> Viewer:
    return Viewer()


@pytest.fixture
def toolbox(library: ImageDataset, exemplars: UnitExemplars, viewer: Viewer) -> Toolbox:
    services = Services(
        target=ClosedFormTarget("t"),
        exemplars=InMemory(exemplars),
        generator=CollageGenerator(library, 224),
        editor=CollageEditor(library),
        backbone=viewer,
    )
    options = investigations.options(load([str(REPOSITORY / "configs/closed-form.yaml")]))
    user_tools = {"brightness": brightness, "brightest": brightest}
    return Toolbox(
        InvestigationContext(
            unit=UNIT,
            services=services,
            task=load_task("description"),
            options=replace(options, images_per_call=20, user_tools=user_tools),
            run_seed=0,
        )
    )


class Desk:
    """What the agent's code has: `system` and `tools`, and what its calls showed."""

    def __init__(self, toolbox: Toolbox):
        self.toolbox, self.shown, self.asked, self.calls = toolbox, [], [], []
        names = {name: tool.__doc__ for name, tool in toolbox.context.options.user_tools.items()}
        built = api.build(self.call, {"tools": names, "scope": "unit"})
        self.system: api.System = built["system"]
        self.tools: Any = built["tools"]

    def call(self, name: str, *args: Any) -> Any:
        answer, effect = self.toolbox.call(name, args)
        self.calls.append((name, args))
        self.shown += effect.shown
        self.asked += effect.asked
        return answer


@pytest.fixture
def desk(toolbox: Toolbox) -> Desk:
    return Desk(toolbox)


def pixels(image: Image.Image) -> Any:
    return np.asarray(image)


# -- call_neuron and what comes with an activation -----------------------------------------------------------------------


def test_call_neuron_returns_activations_and_images(desk: Desk):
    image = Image.new("RGB", (100, 60), (214, 32, 32))
    activations, images = desk.system.call_neuron([image])
    assert activations == [1.0]
    assert np.array_equal(pixels(images[0].pil()), pixels(image))


def test_neuron_is_call_neuron(desk: Desk):
    given = [Image.new("RGB", (50, 50), (214, 32, 32))]
    assert desk.system.neuron(given)[0] == desk.system.call_neuron(given)[0]


def test_imported_exemplars_give_no_percentiles_and_no_other_images(toolbox: Toolbox, exemplars: UnitExemplars):
    published = replace(exemplars, maxima=None, mean=None, std=None, exemplars=exemplars.of_kind("top"))
    services = replace(toolbox.context.services, exemplars=InMemory(published))
    desk = Desk(Toolbox(replace(toolbox.context, services=services)))
    (red,), _ = desk.system.call_neuron([half_red(7).pil()])
    assert (red.percentile, red.z, red.fired, f"{[red]}") == (None, None, True, f"[{red}]")
    assert len(desk.tools.dataset_exemplars(desk.system)) == 3
    with pytest.raises(ToolError, match=r"no images of kind='random' are stored for this unit; there are: top"):
        desk.tools.dataset_exemplars(desk.system, kind="random")


def test_activation_prints_its_percentile(desk: Desk):
    (activation,), _ = desk.system.call_neuron([Image.new("RGB", (50, 50), (214, 32, 32))])
    assert "percentile" in f"{[activation]}"
    assert (str(activation), f"{activation}", f"{activation:.2f}", float(str(activation))) == ("1", "1", "1.00", 1.0)


def test_activation_knows_how_high_it_is(desk: Desk, exemplars: UnitExemplars):
    red, grey = desk.system.call_neuron([half_red(7).pil(), Image.new("RGB", (50, 50))])[0]
    assert red.percentile == round(exemplars.percentile(float(red)) or 0, 1)
    assert red.z == pytest.approx(exemplars.z_score(float(red)), rel=0.01)
    assert (red.fired, grey.fired) == (True, False)
    assert grey.percentile == 0


def test_mask_is_the_upsampled_map_above_threshold(desk: Desk, exemplars: UnitExemplars):
    given = half_red(5)
    _, (seen,) = desk.system.call_neuron([given.pil()])
    small = look(ClosedFormTarget("t"), [given.pixels])[0][1]["mono"][0]
    inside = upsample(small, 224, 224) > exemplars.threshold
    assert 0 < inside.mean() < 1
    expected = np.where(inside[..., None], given.pixels, given.pixels // 4)
    assert np.array_equal(pixels(seen.masked.pil()), expected)
    assert np.array_equal(pixels(seen.original.pil()), given.pixels)


def test_exemplar_is_the_whole_picture_with_a_frame_around_what_the_network_sees(
    toolbox: Toolbox, exemplars: UnitExemplars
):
    picture = np.zeros((60, 100, 3), np.uint8)
    picture[:] = (214, 32, 32)
    small = np.zeros((2, 2), np.float32)
    small[0] = exemplars.threshold + 1
    cropped = replace(
        exemplars.of_kind("top")[0], image=EncodedImage.of(picture), box=(20.0, 0.0, 80.0, 60.0), map=small
    )
    services = replace(toolbox.context.services, exemplars=InMemory(replace(exemplars, exemplars=(cropped,))))
    desk = Desk(Toolbox(replace(toolbox.context, services=services)))
    ((_, image),) = desk.tools.dataset_exemplars(desk.system)
    assert np.array_equal(pixels(image.pil()), picture)
    masked = pixels(image.masked.pil())
    assert (masked[:, 20] == 255).all() and (masked[:, 79] == 255).all() and (masked[[0, 59], 20:80] == 255).all()
    assert np.array_equal(masked[2, 22:78], picture[2, 22:78])
    assert np.array_equal(masked[:, [*range(20), *range(80, 100)]], picture[:, :40] // 4)


def test_mask_reaches_up_to_the_borders(desk: Desk):
    _, (seen,) = desk.system.call_neuron([Image.new("RGB", (90, 70), (214, 32, 32))])
    assert np.array_equal(pixels(seen.masked.pil()), pixels(seen.pil()))


def test_no_images_are_no_activations(desk: Desk):
    assert desk.system.call_neuron([]) == ([], [])


@pytest.mark.parametrize("wrap", [lambda image: image, lambda image: [image], lambda image: (image,)])
def test_one_image_or_a_list_or_a_tuple(desk: Desk, wrap: Callable[[Any], Any]):
    assert desk.system.call_neuron(wrap(Image.new("RGB", (50, 50), (214, 32, 32))))[0] == [1.0]


def test_arrays_are_images_too(desk: Desk):
    assert desk.system.call_neuron([np.full((50, 40, 3), (214, 32, 32), dtype=np.uint8)])[0] == [1.0]


# -- original and masked -------------------------------------------------------------------------------------------------


@pytest.fixture
def seen(desk: Desk) -> values.Image:
    """An image whose two renderings differ."""
    return desk.system.call_neuron([half_red(2).pil()])[1][0]


def test_probing_uses_the_original(desk: Desk, seen: values.Image):
    assert desk.system.call_neuron([seen])[0] == [seen.activation]
    assert np.array_equal(pixels(desk.system.call_neuron([seen])[1][0].pil()), pixels(seen.pil()))


@pytest.mark.parametrize("name", ["original", "masked"])
def test_probe_honours_a_named_rendering(desk: Desk, seen: values.Image, name: str):
    _, (again,) = desk.system.call_neuron([getattr(seen, name)])
    assert np.array_equal(pixels(again.pil()), pixels(getattr(seen, name).pil()))


def test_editing_uses_the_original(desk: Desk, seen: values.Image):
    images, _ = desk.tools.edit_images([seen], ["add a circle"])
    assert np.array_equal(pixels(images[0].pil()), pixels(seen.pil()))


@pytest.mark.parametrize("name", ["original", "masked"])
def test_edit_honours_a_named_rendering(desk: Desk, seen: values.Image, name: str):
    images, _ = desk.tools.edit_images([getattr(seen, name)], ["add a circle"])
    assert np.array_equal(pixels(images[0].pil()), pixels(getattr(seen, name).pil()))


def test_display_shows_masked_by_default(desk: Desk, seen: values.Image):
    desk.tools.display(seen)
    note, shown = desk.shown
    assert "masked" in note
    assert np.array_equal(shown.pixels, pixels(seen.masked.pil()))


@pytest.mark.parametrize("name", ["original", "masked"])
def test_display_honours_a_named_rendering(desk: Desk, seen: values.Image, name: str):
    desk.tools.display(getattr(seen, name))
    note, shown = desk.shown
    assert name in note
    assert np.array_equal(shown.pixels, pixels(getattr(seen, name).pil()))


def test_unmeasured_image_is_displayed_as_original(desk: Desk):
    (image,) = desk.tools.text2image(["a red circle"])
    desk.tools.display(image)
    assert "original" in desk.shown[0]
    assert np.array_equal(pixels(image.masked.pil()), pixels(image.pil()))


@pytest.mark.parametrize("tool", ["describe_images", "summarize_images"])
@pytest.mark.parametrize("name", ["", "original", "masked"])
def test_viewer_sees_masked_by_default(desk: Desk, seen: values.Image, viewer: Viewer, tool: str, name: str):
    getattr(desk.tools, tool)([getattr(seen, name) if name else seen])
    (shown,) = viewer.chats[-1].messages[-1].images
    assert np.array_equal(shown.pixels, pixels(getattr(seen, name or "masked").pil()))


# -- exemplars -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["top", "bottom", "random", "ladder"])
def test_exemplars_carry_their_activations(desk: Desk, exemplars: UnitExemplars, kind: str):
    found = desk.tools.dataset_exemplars(desk.system, kind=kind)
    expected = [e for e in exemplars.exemplars if e.kind == kind]
    assert [float(activation) for activation, _ in found] == [e.activation for e in expected]
    assert all(np.array_equal(pixels(i.pil()), e.image.pixels) for (_, i), e in zip(found, expected, strict=True))


def test_probed_exemplar_has_its_activation(desk: Desk):
    for activation, image in desk.tools.dataset_exemplars(desk.system):
        assert desk.system.call_neuron([image])[0][0] == pytest.approx(float(activation), rel=0.01)


def test_exemplars_can_be_had_as_two_lists(desk: Desk):
    activations, images = desk.tools.dataset_exemplars(desk.system, as_lists=True)
    assert [image.activation for image in images] == activations


def test_unknown_kind_names_those_there_are(desk: Desk):
    with pytest.raises(ToolError, match="top, bottom, random, ladder"):
        desk.tools.dataset_exemplars(desk.system, kind="best")


# -- generating and editing ----------------------------------------------------------------------------------------------


def test_repeated_prompt_gives_new_images(desk: Desk):
    images = desk.tools.text2image(["a red circle"] * 3) + desk.tools.text2image(["a red circle"])
    assert len({image.pil().tobytes() for image in images}) == 4


def test_equal_prompts_give_equal_images_across_agents(desk: Desk, toolbox: Toolbox):
    other = Desk(Toolbox(toolbox.context))
    prompts = ["a red circle", "vertical stripes", "a red circle"]
    for one, two in zip(desk.tools.text2image(prompts), other.tools.text2image(prompts), strict=True):
        assert one.pil().tobytes() == two.pil().tobytes()


def test_words_that_could_not_be_drawn_are_told(desk: Desk):
    desk.tools.text2image(["a zyzzyva on grass", "a red circle"])
    assert desk.shown == ["note: could not draw 'zyzzyva' of 'a zyzzyva on grass'"]


def test_edits_come_as_pairs_with_captions(desk: Desk):
    images, captions = desk.tools.edit_images(["a red circle", "a blue star"], ["make it green", "add a square"])
    assert captions == ["a red circle", "Editing Prompt: make it green", "a blue star", "Editing Prompt: add a square"]
    assert desk.tools.edit_images(images[:1], ["remove it"])[1] == ["Original Image", "Editing Prompt: remove it"]
    assert len({image.pil().tobytes() for image in images}) == 4


def test_single_prompt_need_not_be_a_list(desk: Desk):
    assert len(desk.tools.text2image("a red circle")) == 1


# -- viewers -------------------------------------------------------------------------------------------------------------


def test_description_has_no_history(desk: Desk, viewer: Viewer):
    images = desk.tools.text2image(["a red circle", "a blue star"])
    answer = desk.tools.describe_images(images, ["first", "second"])
    assert answer == "first: 1 message, 1 pictures\nsecond: 1 message, 1 pictures"
    asked = [(len(chat.messages), chat.messages[0].text) for chat in viewer.chats]
    assert asked == [(1, load_task("description").describe)] * 2


def test_summary_covers_all_images(desk: Desk):
    assert desk.tools.summarize_images(desk.tools.text2image(["a star"] * 3)) == "1 message, 3 pictures"


def test_viewer_has_its_own_conversation(desk: Desk, viewer: Viewer):
    desk.tools.summarize_images(desk.tools.text2image(["a star"]))
    assert viewer.chats[0].conversation == ""


def test_titles_are_made_where_none_are_given(desk: Desk):
    answer = desk.tools.describe_images(desk.tools.text2image(["a star", "a cross"]))
    assert [line.partition(":")[0] for line in answer.splitlines()] == ["image 1", "image 2"]


# -- display -------------------------------------------------------------------------------------------------------------


def test_display_shows_numbers_of_numpy_as_text(desk: Desk):
    activations, _ = desk.system.call_neuron(desk.tools.text2image(["a red circle", "a blue circle"]))
    desk.tools.display("mean", np.mean(activations), np.float32(0.5), np.int64(3), np.bool_(True), np.array([1, 2, 3]))
    assert desk.shown == ["mean", str(np.mean(activations)), "0.5", "3", "True", "[1 2 3]"]


def test_user_tool_takes_numbers_of_numpy():
    given = [np.float32(0.5), np.int64(3), np.bool_(True), [np.float64(1.5)]]
    assert values.passed(given) == [0.5, 3, True, [1.5]]
    assert [type(value) for value in values.passed(given)[:3]] == [float, int, bool]


def test_display_keeps_the_order(desk: Desk, seen: values.Image):
    desk.tools.display("before", 1.5, [seen, ("between",)], Image.new("RGB", (9, 9)), seen.activation)
    kinds = [part if isinstance(part, str) else "picture" for part in desk.shown]
    assert kinds[:2] == ["before", "1.5"]
    assert kinds[3:6] == ["picture", "between", "picture"]
    assert "percentile" in kinds[6]


@pytest.mark.parametrize("name", ["log_experiment", "save_experiment_log"])
def test_log_experiment_shows_titles_and_texts(desk: Desk, seen: values.Image, name: str):
    getattr(desk.tools, name)([1.0, 2.0], [seen, seen], ["one", "two"], "in the end")
    texts = [part for part in desk.shown if isinstance(part, str) and not part.startswith("[")]
    assert texts == ["one", "activation: 1.0", "two", "activation: 2.0", "in the end"]


# -- a user's own tools --------------------------------------------------------------------------------------------------


def test_user_tool_receives_images_and_numbers(desk: Desk):
    answer = desk.tools.brightness(Image.new("RGB", (10, 10), (100, 100, 100)), 0.5)
    assert answer == [50.0, "float", None]


def test_users_tool_takes_arguments_by_name(desk: Desk, seen: values.Image):
    assert desk.tools.brightness(image=seen, note="n", scale=2)[1:] == ["int", "n"]


def test_users_tool_may_return_images_anywhere(desk: Desk):
    images = desk.tools.text2image(["a black circle on a black background", "a white star on a white background"])
    found = desk.tools.brightest(images)
    assert found["count"] == 2
    assert np.array_equal(pixels(found["image"].pil()), pixels(images[1].pil()))
    assert isinstance(found["nested"][0], values.Image)
    assert found["nested"][1] == "text"


@pytest.mark.parametrize("args", [(), (1, 2, 3, 4)])
def test_user_tool_called_wrongly_is_refused(desk: Desk, args: Sequence[Any]):
    with pytest.raises(ToolError, match="brightness"):
        desk.tools.brightness(*args)


def test_user_tool_error_is_shown(desk: Desk):
    with pytest.raises(ToolError, match="brightness: UFuncTypeError|brightness: TypeError"):
        desk.tools.brightness("no image")


def test_integer_that_cannot_be_sent_is_an_error_of_the_users_tool(toolbox: Toolbox):
    tools = {"factorial": lambda: math.factorial(2000)}
    toolbox.context = replace(toolbox.context, options=replace(toolbox.context.options, user_tools=tools))
    with pytest.raises(ToolError, match="factorial: ValueError: the result has an integer of more than 256 bits"):
        ToolSession(toolbox).serve("user_tool", ["factorial", [], {}], {})


def test_users_tool_is_in_the_prompt(toolbox: Toolbox):
    text = api_text(toolbox.context.options.user_tools)
    assert "tools.brightness(image" in text
    assert "scale: float = 1.0" in text
    assert "Mean light of an image." in text


# -- what is recorded ----------------------------------------------------------------------------------------------------


def test_call_records_how_it_came_to_each_image(toolbox: Toolbox):
    def facts(tool: str, *arguments: Any) -> list[tuple[Did, str, str]]:
        entries = [image.entry for image in toolbox.call(tool, arguments)[1].entries]
        return [(entry.did, entry.prompt, entry.of) for entry in entries]

    copied = "a red paper boat"
    own, foreign = {"image": "image-1", "view": ""}, {"png": png(sample_image(1))}
    assert facts("text2image", ["a star", copied]) == [(Did.DREW, "a star", ""), (Did.COPIED, copied, "")]
    assert facts("call_neuron", [own, foreign]) == [(Did.MEASURED, "", "image-1"), (Did.MEASURED, "", "")]
    assert facts("edit_images", ["a cross", own], ["make it red", "make it blue"]) == [
        (Did.BASE, "a cross", ""),
        (Did.EDITED, "make it red", "image-5"),
        (Did.BASE, "", "image-1"),
        (Did.EDITED, "make it blue", "image-7"),
    ]
    assert set(facts("dataset_exemplars", "bottom")) == {(Did.EXEMPLAR, "bottom", "")}
    assert set(facts("user_tool", "brightest", [[own, own]], {})) == {(Did.MADE, "", "")}


def test_words_that_could_not_be_drawn_are_recorded_with_their_image(toolbox: Toolbox):
    (image,) = toolbox.call("text2image", [["a zyzzyva on grass"]])[1].entries
    assert image.entry.missing == ("zyzzyva",)


def test_call_records_the_images_that_it_took(toolbox: Toolbox):
    toolbox.call("text2image", [["a red circle"]])
    toolbox.call("call_neuron", [[{"image": "image-1", "view": ""}]])
    shown = [{"image": "image-2", "view": ""}, "a text", {"image": "image-2", "view": "original"}, {"png": WHOLE}]
    given = toolbox.call("display", [shown])[1].given
    assert [image.name for image in given] == ["image-2, masked", "image-2, original", ""]
    toolbox.subjects.layers["mono"] = 2
    assert [image.id for image in toolbox.call("responses", [shown[:1], "mono"])[1].given] == ["image-2"]


# -- replay --------------------------------------------------------------------------------------------------------------


def test_replay_restores_the_toolbox(toolbox: Toolbox):
    effects: list[ToolEffect] = [
        toolbox.call("text2image", [["a red circle", "a red circle"]])[1],
        toolbox.call("call_neuron", [[{"image": "image-1", "view": ""}]])[1],
    ]
    again = Toolbox(toolbox.context)
    for effect in effects:
        again.replay(effect)
    one, other = (box.call("text2image", [["a red circle"]]) for box in (toolbox, again))
    assert one[0] == other[0]
    assert one[1].entries[0].original == other[1].entries[0].original
    assert list(again.images.entries) == list(toolbox.images.entries)


# -- hostile arguments ---------------------------------------------------------------------------------------------------


def png(image: Image.Image) -> bytes:
    buffer = io.BytesIO()
    image.save(buffer, "PNG")
    return buffer.getvalue()


def gif() -> bytes:
    buffer = io.BytesIO()
    sample_image(1).save(buffer, "GIF")
    return buffer.getvalue()


WHOLE = png(sample_image(1))
HOSTILE: list[Any] = [
    None, 1, -1, 1.5, float("nan"), True, "", "image-1", "x" * 3000, b"", b"bytes", [], [[]], {}, [None], [1], [{}],
    [[{"image": "image-1", "view": ""}]], {"image": "image-1"}, [{"image": "image-99", "view": ""}],
    [{"image": "../../etc/passwd", "view": ""}], [{"image": None, "view": ""}], [{"image": ["image-1"], "view": ""}],
    [{"image": "image-1"}], [{"image": "image-1", "view": "other"}], [{"image": "image-1", "view": None}],
    [{"image": "image-1", "view": ["masked"]}], [{"png": b""}], [{"png": "text"}], [{"png": None}],
    [{"png": WHOLE[:-40]}], [{"png": WHOLE[:200]}], [{"png": b"", "image": "image-1", "view": ""}],
    [{"png": png(Image.new("RGB", (7, 50)))}], [{"png": png(Image.new("RGB", (2049, 300)))}],
    [{"png": png(Image.new("RGB", (2048, 8)))}], [{"image": "image-1", "view": ""}] * 21, [""] * 21, ["a"] * 5000,
    [" "], ["x" * 3000], [b"bytes"], [True], [float("nan")], [{"png": WHOLE, "image": ["image-1"]}],
    [{"image": "image-1", "view": "", "x": 1}], [{"png": png(Image.new("1", (9000, 9000)))}], [{"png": gif()}],
    [{"png": WHOLE[:33] + WHOLE[8:16] + struct.pack("!II", 8000, 8000) + WHOLE[24:]}], [{"png": WHOLE[:12]}],
    [{"png": WHOLE[:8] + WHOLE[33:]}], [{"png": WHOLE[:33] + b"\0" * 300}], [{"png": WHOLE[:60] + b"\xff" * 60 + WHOLE[120:]}],
    {"x" * 9000: 1}, [{"image": "image-1"}] * 20_000, [""] * 20_000,
]  # fmt: skip


@pytest.mark.parametrize("tool", ["call_neuron", "text2image", "summarize_images", "display", "dataset_exemplars"])
@pytest.mark.parametrize("argument", HOSTILE, ids=lambda value: repr(value)[:40])
def test_tools_refuse_hostile_arguments(toolbox: Toolbox, tool: str, argument: Any):
    toolbox.call("text2image", [["a star"]])
    try:
        answer, effect = toolbox.call(tool, [argument])
    except ToolError as error:
        assert 0 < len(error.message) < 400
        return
    assert answer is None or isinstance(answer, (list, str))
    assert len(effect.entries) <= 20


@pytest.mark.parametrize("argument", HOSTILE, ids=lambda value: repr(value)[:40])
def test_display_refuses_hostile_arguments_of_agents_without_eyes(toolbox: Toolbox, argument: Any):
    toolbox.context = replace(toolbox.context, options=replace(toolbox.context.options, sees_images=False))
    toolbox.call("text2image", [["a star"]])
    try:
        answer, _ = toolbox.call("display", [argument])
    except ToolError as error:
        assert 0 < len(error.message) < 400
        return
    assert answer is None


@pytest.mark.parametrize("tool", ["edit_images", "describe_images", "pixels"])
@pytest.mark.parametrize("argument", HOSTILE, ids=lambda value: repr(value)[:40])
def test_two_argument_tools_refuse_hostile_arguments(toolbox: Toolbox, tool: str, argument: Any):
    toolbox.call("text2image", [["a star"]])
    good = "image-1" if tool == "pixels" else [{"image": "image-1", "view": ""}]
    for args in ((argument, good), (good, argument), (argument, argument)):
        try:
            toolbox.call(tool, args)
        except ToolError as error:
            assert 0 < len(error.message) < 400


@pytest.mark.parametrize("argument", HOSTILE, ids=lambda value: repr(value)[:40])
def test_user_tool_refuses_hostile_arguments(toolbox: Toolbox, argument: Any):
    toolbox.call("text2image", [["a star"]])
    refused = 0
    for args in ((argument, [], {}), ("brightness", argument, {}), ("brightness", [], argument)):
        try:
            toolbox.call("user_tool", args)
        except ToolError as error:
            assert 0 < len(error.message) < 400
            refused += 1
    assert refused >= 2


@pytest.mark.parametrize("name", ["", "nowhere", "_picture", "__init__", "call"])
def test_only_tools_can_be_called(toolbox: Toolbox, name: str):
    with pytest.raises(ToolError, match="no tool"):
        toolbox.call(name, [])


@pytest.mark.parametrize("count", [0, 5, 9])
def test_wrong_number_of_arguments_is_refused(toolbox: Toolbox, count: int):
    with pytest.raises(ToolError, match="wrong number of arguments"):
        toolbox.call("call_neuron", [[]] * count)


def test_too_many_images_are_refused(toolbox: Toolbox):
    with pytest.raises(ToolError, match="at most 20"):
        toolbox.call("text2image", [["a star"] * 21])


def test_too_many_images_are_not_displayed(toolbox: Toolbox):
    toolbox.call("text2image", [["a star"]])
    shown = {"image": "image-1", "view": ""}
    toolbox.call("display", [[shown, "a text"] * 20])
    with pytest.raises(ToolError, match="at most 20"):
        toolbox.call("display", [[shown] * 21])
    with pytest.raises(ToolError, match="at most 20"):
        toolbox.call("user_tool", ["brightness", [[shown] * 21], {}])


def test_pixels_of_images_do_not_stay_in_memory(toolbox: Toolbox):
    entry = toolbox.call("text2image", [["a star"]])[1].entries[0]
    toolbox.call("display", [[{"image": "image-1", "view": "masked"}]])
    assert entry.original.digest
    assert "pixels" not in vars(entry.original)


def test_lists_of_different_lengths_are_refused(desk: Desk):
    with pytest.raises(ToolError, match="2 images but 1 instructions"):
        desk.tools.edit_images(["a star", "a cross"], ["make it red"])
    with pytest.raises(ToolError, match="1 images but 2 titles"):
        desk.tools.describe_images(desk.tools.text2image(["a star"]), ["a", "b"])


def test_edit_with_an_invalid_image_draws_nothing(toolbox: Toolbox):
    with pytest.raises(ToolError, match="expected the bytes of a PNG file"):
        toolbox.call("edit_images", [["a star", {"png": b""}], ["make it red"] * 2])
    assert toolbox.effect.asked == []


HUGE = {"png": png(Image.new("RGB", (2048, 2048)))}


def chunks(kind: bytes, content: bytes, count: int) -> Any:
    """Returns the argument for a small image whose file has further chunks."""
    checksum = zlib.crc32(kind + content)
    chunk = struct.pack("!I", len(content)) + kind + content + struct.pack("!I", checksum)
    return {"png": WHOLE[:33] + chunk * count + WHOLE[33:]}


REFUSED: dict[str, tuple[str, list[Any]]] = {
    "hypothesis of the last image": ("call_neuron", [[HUGE] * 7, None, None, ["H1"] * 6 + ["x" * 3000]]),
    "structure as a hypothesis": ("call_neuron", [[HUGE] * 7, None, None, {"a": ["b" * 100] * 50_000}]),
    "last image": ("call_neuron", [[HUGE] * 7 + [{"png": WHOLE[:20]}]]),
    "pixels of all images": ("call_neuron", [[HUGE] * 9]),
    "layer": ("responses", [[HUGE] * 7, "nowhere"]),
    "instruction": ("edit_images", [[HUGE] * 7, ["make it red"] * 6 + [" "]]),
    "number of titles": ("describe_images", [[HUGE] * 7, ["a"] * 6]),
    "title": ("describe_images", [[HUGE] * 7, ["a"] * 6 + ["x" * 3000]]),
    "last image of a summary": ("summarize_images", [[HUGE] * 7 + [{"image": "image-99", "view": ""}]]),
    "last image that is shown": ("display", [["a"] * 9000 + [HUGE] * 7 + [{"png": b"x"}]]),
    "unknown parts of a file": ("call_neuron", [[chunks(b"abCd", b"", 100_000)] * 20]),
    "compressed texts in a file": ("call_neuron", [[chunks(b"zTXt", b"a\0\0" + zlib.compress(bytes(2**20)), 60)] * 20]),
    "colour profiles in a file": ("display", [[chunks(b"iCCP", b"a\0\0" + zlib.compress(bytes(2**19)), 60)] * 20]),
    "empty parts of pixels": ("call_neuron", [[chunks(b"IDAT", b"", 100_000)] * 20]),
    "bytes in place of an image": ("call_neuron", [[{"image": bytes(2**24)}]]),
    "bytes in place of a text": ("text2image", [[bytes(2**24)]]),
    "bytes besides an image": ("display", [[{"png": bytes(2**24), "x": 1}]]),
    "arguments of a user's tool": ("user_tool", ["brightness", [HUGE] * 7, {}]),
    "last image of a user's tool": ("user_tool", ["brightest", [[HUGE] * 7 + [{"image": "image-99"}]], {}]),
}


@pytest.mark.parametrize("wrong", REFUSED)
def test_refused_call_decodes_nothing(toolbox: Toolbox, wrong: str):
    tool, args = REFUSED[wrong]
    begun = time.thread_time()
    with pytest.raises(ToolError):
        toolbox.call(tool, args)
    assert time.thread_time() - begun < 0.05


def test_responses_of_more_units_than_a_message_holds_are_refused(toolbox: Toolbox):
    toolbox.subjects.layers["wide"] = 100_000
    with pytest.raises(ToolError, match="5 images and 100000 units are 500000 activations"):
        toolbox.call("responses", [[{"png": WHOLE}] * 5, "wide"])


# -- what a session of calls holds ---------------------------------------------------------------------------------------


TINY = {"png": png(Image.new("RGB", (8, 8)))}
HELD: dict[str, tuple[str, list[Any], int]] = {
    "small images": ("call_neuron", [[TINY] * 20], 20_000),
    "hypotheses": ("call_neuron", [[TINY] * 20, None, None, ["H" * 2000] * 20], 60_000),
    "prompts": ("text2image", [["a star" + " " * 1900] * 20], 40_000),
    "shown images": ("display", [[TINY] * 20], 20_000),
    "refused arguments": ("text2image", ["x" * 90_000], 90_000),
}


@pytest.mark.parametrize("what", HELD)
def test_memory_of_calls_is_counted_and_bounded(toolbox: Toolbox, what: str):
    tool, args, least = HELD[what]
    limit = toolbox.context.options.held_mb << 20
    session = ToolSession(toolbox, [], held_bytes=limit - least)
    with suppress(ToolError):
        session.serve(tool, args, {})
    with pytest.raises(ExperimentStopped, match="MiB of memory"):
        session.serve("text2image", [["a star"]], {})


@pytest.mark.parametrize("text", ["", "é", "a\n"])
def test_displayed_texts_are_bounded_with_their_line_ends(toolbox: Toolbox, text: str):
    session, limit = ToolSession(toolbox, []), toolbox.context.options.sandbox.output_bytes
    for _ in range(10):
        session.serve("display", [[text] * 10_000], {})
    assert sum(len(part.encode()) for part in session.parts if isinstance(part, str)) < limit + 200
    assert sum(len(call.shown) for call in session.calls) <= limit + 1


def test_invalid_call_reaches_no_service(toolbox: Toolbox, viewer: Viewer):
    with pytest.raises(ToolError):
        toolbox.call("describe_images", [[], []])
    with pytest.raises(ToolError):
        toolbox.call("summarize_images", [[]])
    assert viewer.chats == []
