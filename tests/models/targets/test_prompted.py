"""Texts as the classes of a CLIP, SigLIP or OWL-ViT."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image
from safetensors.torch import save_file
from transformers import AutoImageProcessor, AutoModel, AutoModelForZeroShotObjectDetection, AutoTokenizer

import openmaia
from openmaia.config.loading import load
from openmaia.core.components import Site, build
from openmaia.core.errors import UsageError
from openmaia.core.services import Intervention, LayerProbe, Probe
from openmaia.core.units import OUTPUT, Unit
from openmaia.models.targets.clip import ClipConfig, PromptedClip
from tests.helpers.commands import output
from tests.helpers.samples import noise
from tests.helpers.tiny import clip
from tests.helpers.tiny.clip import LONGEST
from tests.helpers.tiny.detectors import detector
from tests.prepare import CACHE

torch.set_num_threads(1)

SITE = Site(key="target")
NAMES = ["red boat", "dog at night", "tree"]
TEMPLATE = "a photo of a {}."


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    return {kind: getattr(clip, kind)(tmp_path_factory.mktemp(kind)) for kind in ("clip", "siglip", "owlvit")}


def config(folder: str, **keys: Any) -> ClipConfig:
    given: dict[str, Any] = {"prompts": NAMES, "template": TEMPLATE, "layers": [OUTPUT]} | keys
    return ClipConfig(kind="clip", name="net", network=f"hf:{folder}", **given)


def places(folder: Path) -> dict[str, Any]:
    """Overrides that keep results in a folder. The pictures of the demo, which its generator draws with, are there already."""
    own = {f"paths.{name}": str(folder / name) for name in ("runs", "exemplars")}
    return own | {"paths.cache": str(CACHE), "exemplars.k": 3}


def logits_per_image(
    folder: str, pixels: np.ndarray | None = None, pixel_values: torch.Tensor | None = None
) -> np.ndarray:
    """What transformers' own model answers, and without `pixel_values` its own image processor."""
    model, tokenizer = AutoModel.from_pretrained(folder).eval(), AutoTokenizer.from_pretrained(folder)
    is_padded = model.config.model_type == "siglip"
    lengths: dict[str, Any] = {"padding": "max_length", "max_length": LONGEST} if is_padded else {"padding": True}
    texts = tokenizer([TEMPLATE.format(name) for name in NAMES], **lengths, return_tensors="pt")
    if pixels is not None:
        given = AutoImageProcessor.from_pretrained(folder)(Image.fromarray(pixels), return_tensors="pt")
        pixel_values = given["pixel_values"]
    with torch.no_grad():
        return model(**texts, pixel_values=pixel_values).logits_per_image[0].numpy()


@pytest.mark.parametrize("kind", ["clip", "siglip"])
def test_activations_are_the_logits_of_the_library(folders: dict[str, str], kind: str):
    target = build(config(folders[kind]), SITE)
    image = noise(1, 32, 32)
    expected = logits_per_image(folders[kind], image.pixels)
    assert np.ptp(expected) > 0.1
    assert target.respond([LayerProbe(layer=OUTPUT, image=image)])[0] == pytest.approx(expected, rel=1e-4, abs=1e-5)
    assert target.info().classes == tuple(NAMES)


@pytest.mark.parametrize("kind", ["clip", "siglip"])
def test_exact_activations_of_the_module(folders: dict[str, str], kind: str):
    """Of the same input, without the rounding of probes."""
    network = PromptedClip.network(config(folders[kind]), "")
    given = network.preprocess.tensor(noise(2, 32, 32).pixels)[None]
    with torch.no_grad():
        found = network.module(given)[0].numpy()
    assert found == pytest.approx(logits_per_image(folders[kind], pixel_values=given), rel=1e-5, abs=1e-5)


def test_softmax_over_the_texts_can_be_asked_for(folders: dict[str, str]):
    image = noise(1, 32, 32)
    logits = torch.from_numpy(logits_per_image(folders["clip"], image.pixels))
    target = build(config(folders["clip"], output="softmax"), SITE)
    (found,) = target.probe([Probe(unit=Unit(target="net", layer=OUTPUT, index=0), image=image)])
    assert found.value == pytest.approx(float(logits.softmax(0)[0]), rel=1e-3)
    assert found.raw == pytest.approx(float(logits[0]), rel=1e-3)


def test_layers_have_the_names_of_the_library(folders: dict[str, str]):
    target = build(config(folders["clip"], layers=["vision_model.encoder.layers.1", "visual_projection"]), SITE)
    assert target.info().layers == {"vision_model.encoder.layers.1": 16, "visual_projection": 12}


def test_largest_scores_of_boxes_are_those_of_an_owlvit(folders: dict[str, str]):
    folder, image = folders["owlvit"], noise(1, 32, 32)
    model = AutoModelForZeroShotObjectDetection.from_pretrained(folder).eval()
    texts = AutoTokenizer.from_pretrained(folder)(
        [TEMPLATE.format(name) for name in NAMES], padding="max_length", max_length=LONGEST, return_tensors="pt"
    )
    seen = AutoImageProcessor.from_pretrained(folder)(Image.fromarray(image.pixels), return_tensors="pt")
    with torch.no_grad():
        logits = model(**texts, pixel_values=seen["pixel_values"]).logits[0]
    expected = logits.sigmoid().amax(dim=0).numpy()
    assert np.ptp(expected) > 1e-2
    network = PromptedClip.network(config(folder), "")
    with torch.no_grad():
        found = network.module(seen["pixel_values"])[0].sigmoid().numpy()
    assert found == pytest.approx(expected, abs=1e-5)
    inner = "owlvit.vision_model.encoder.layers.0.mlp"
    target = build(config(folder, layers=[inner, OUTPUT]), SITE)
    assert target.respond([LayerProbe(layer=OUTPUT, image=image)])[0] == pytest.approx(expected, rel=1e-3)
    assert target.info().classes == tuple(NAMES)
    assert "the largest score of each of these texts among the detector's boxes" in target.info().preprocessing
    unit = Unit(target="net", layer=inner, index=0)
    before, after = target.intervene([Intervention(unit=unit, image=image, scale=each) for each in (1.0, 0.0)])
    assert np.exp(before) == pytest.approx(expected, rel=1e-3)
    assert np.abs(after - before).max() > 1e-3


# -- identity ------------------------------------------------------------------------------------------------------------


def test_other_texts_make_another_target(folders: dict[str, str], tmp_path: Path):
    given = [
        {},
        {"prompts": [*NAMES[:2], "tree!"]},
        {"prompts": NAMES[::-1]},
        {"template": "{}"},
        {"prompts": ["Red boat", *NAMES[1:]]},  # the same tokens
    ]
    digests = {build(config(folders["clip"], **each), SITE).info().digest for each in given}
    assert len(digests) == len(given)
    (tmp_path / "names.txt").write_text("\n".join([NAMES[0], "", *NAMES[1:]]))
    same = build(config(folders["clip"], prompts=[], prompts_file=str(tmp_path / "names.txt")), SITE).info()
    assert same.digest == build(config(folders["clip"]), SITE).info().digest
    assert same.classes == tuple(NAMES)


def test_another_text_encoder_makes_another_target(folders: dict[str, str], tmp_path: Path):
    model = AutoModel.from_pretrained(folders["clip"])
    with torch.no_grad():
        model.text_projection.weight.mul_(2)  # which changes no cosine
    save_file({name: value.contiguous() for name, value in model.state_dict().items()}, tmp_path / "w.safetensors")
    changed = config(folders["clip"], weights=str(tmp_path / "w.safetensors"))
    image = LayerProbe(layer=OUTPUT, image=noise(1, 32, 32))
    first, second = (build(each, SITE) for each in (config(folders["clip"]), changed))
    assert first.respond([image])[0] == pytest.approx(second.respond([image])[0], rel=1e-4)
    assert first.info().digest != second.info().digest


def test_untrained_weights_are_the_same_each_time(folders: dict[str, str]):
    digests = {build(config(folders["clip"], weights="untrained"), SITE).info().digest for _ in range(2)}
    assert len(digests) == 1
    assert digests != {build(config(folders["clip"]), SITE).info().digest}


def test_own_transform_leaves_the_texts(folders: dict[str, str], tmp_path: Path):
    """`preprocess` of the Python functions replaces the preprocessing alone."""

    def transform(image: Image.Image) -> torch.Tensor:
        return torch.from_numpy(np.asarray(image.resize((32, 32)))).permute(2, 0, 1) / 255

    pictures = [Image.fromarray(noise(n, 32, 32).pixels) for n in range(6)]
    system, tools = openmaia.open(
        f"hf:{folders['clip']}", OUTPUT, 1, preprocess=transform, images=pictures,
        target={"kind": "clip", "prompts": NAMES, "template": TEMPLATE}, **places(tmp_path),
    )  # fmt: skip
    (found,), _ = system.call_neuron(pictures[:1])
    tools.close()
    expected = logits_per_image(folders["clip"], pixel_values=transform(pictures[0])[None])
    assert float(found) == pytest.approx(expected[1], rel=1e-4)


# -- refusals ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("keys", "message"),
    [
        (["target.prompts=[]"], "give either target.prompts=[TEXT,TEXT] or target.prompts_file"),
        (["target.prompts_file=a.txt"], "give either target.prompts=[TEXT,TEXT] or target.prompts_file"),
        (["target.template=a photo"], "expected a sentence with one {}"),
        (["target.prompts=[dog,' dog ']"], "target.prompts has 'dog' more than once"),
        (['target.prompts=["a\\u0007b"]'], "expected a text of one line"),
        (["target.network=resnet18"], "reads a CLIP, SigLIP or OWL-ViT as hf:ID"),
    ],
)
def test_unusable_texts_are_refused(folders: dict[str, str], keys: list[str], message: str):
    given = [
        f"target.network=hf:{folders['clip']}",
        "target.layers=[output]",
        "target.name=net",
        "target.prompts=[dog]",
    ]
    with pytest.raises(UsageError) as error:
        load(["name=texts", "units=output=0", "target.kind=clip", *given, *keys])
    assert message in error.value.message


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "is empty; give one text in each line"),
        (b"\xff\xfe", "cannot be read"),
        (b"dog\ndog", "has 'dog' more than once"),
    ],
)
def test_unusable_files_of_texts_are_refused(folders: dict[str, str], tmp_path: Path, content: bytes, message: str):
    path = tmp_path / "names.txt"
    path.write_bytes(content)
    with pytest.raises(UsageError) as error:
        build(config(folders["clip"], prompts=[], prompts_file=str(path)), SITE)
    assert message in error.value.message


def test_text_that_is_too_long_is_refused(folders: dict[str, str]):
    with pytest.raises(UsageError, match=r"has 102 tokens, and the network takes 32"):
        build(config(folders["clip"], prompts=["x" * 100], template="{}"), SITE)


def test_network_without_texts_is_refused(tmp_path: Path):
    with pytest.raises(UsageError, match="is of the type 'detr', whose texts OpenMAIA cannot compare"):
        build(config(detector("detr", tmp_path)), SITE)


# -- a whole investigation -----------------------------------------------------------------------------------------------


@pytest.mark.nightly
@pytest.mark.slow
def test_investigation_of_a_text_names_the_texts_everywhere(folders: dict[str, str], tmp_path: Path):
    sources = [
        "name=texts", "target.kind=clip", "target.name=net", f"target.network=hf:{folders['clip']}",
        "target.layers=[output]", f"target.prompts={NAMES}", f"target.template='{TEMPLATE}'",
        "pictures={kind: scenes, count: 60, size: 64}", "generator={kind: scenes, size: 64}", "editor.kind=scenes",
        "backbone.kind=searcher", *(f"{key}={value}" for key, value in places(tmp_path).items()),
    ]  # fmt: skip
    output("investigate", *sources, "--unit", "output=red boat")
    run = tmp_path / "runs/texts-output-0"
    record = openmaia.load(run).record("output=0")
    assert record.turns[1].calls
    assert "'a photo of a red boat.', 'a photo of a dog at night.', 'a photo of a tree.'" in record.preprocessing
    shown = " ".join(output("show", str(run)).split())
    assert "output by the texts 'a photo of a red boat.', 'a photo of a dog at night.', 'a photo of a tree.'" in shown
    (manifest,) = (tmp_path / "exemplars").rglob("manifest.json")
    assert "a photo of a dog at night." in manifest.read_text()
    assert "a photo of a dog at night." in (run / "report/index.html").read_text()
