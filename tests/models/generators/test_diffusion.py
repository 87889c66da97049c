"""Diffusion pipelines as Generator and Editor: real pipelines of diffusers, tiny, with random weights."""

import json
import logging
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any
from unittest import mock

import bitsandbytes
import numpy as np
import pytest
import torch
from diffusers import AutoPipelineForText2Image
from diffusers.quantizers.bitsandbytes.bnb_quantizer import BnB4BitDiffusersQuantizer

from openmaia.core.errors import ServiceError, UsageError
from openmaia.core.images import EncodedImage
from openmaia.core.services import Edit, GeneratedImage, Generation
from openmaia.models.generators.diffusion import DiffusersConfig, DiffusersEditor, DiffusersGenerator, editing_size
from openmaia.models.generators.loading import load
from tests.helpers.tiny.flux import save_flux, save_kontext, t5_encoder, transformer
from tests.helpers.tiny.stable import save_pix2pix, save_sdxl_turbo, save_stable
from tests.helpers.tiny.today import (
    save_klein,
    save_qwen_image,
    save_qwen_image_2_1,
    save_qwen_image_edit,
    save_z_image,
)

SAVED: dict[str, Callable[[Path], Path]] = {
    "flux": save_flux,
    "kontext": save_kontext,
    "stable": save_stable,
    "pix2pix": save_pix2pix,
    "klein": save_klein,
    "z_image": save_z_image,
    "qwen_image": save_qwen_image,
    "qwen_image_2.1": save_qwen_image_2_1,
    "qwen_image_edit": save_qwen_image_edit,
    "sdxl_turbo": save_sdxl_turbo,
}
GENERATORS = ["flux", "stable", "sdxl_turbo", "klein", "z_image", "qwen_image", "qwen_image_2.1"]
"""Those of `SAVED` that draw from a text alone."""
SIZE = 64


@pytest.fixture(scope="module", autouse=True)
def one_thread() -> Iterator[None]:
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    root = tmp_path_factory.mktemp("pipelines")
    return {name: save(root / name) for name, save in SAVED.items()}


def config(model: Path | str, **changed: Any) -> DiffusersConfig:
    return replace(
        DiffusersConfig(model=str(model), dtype="float32", steps=3, max_text_tokens=64, size=SIZE), **changed
    )


def pipeline_of(host: DiffusersGenerator | DiffusersEditor) -> Any:
    return host._batcher._pipeline


def pixels(drawn: list[GeneratedImage]) -> np.ndarray:
    return np.stack([one.image.pixels for one in drawn]).astype(int)


def requests(count: int) -> list[Generation]:
    """Prompts of different lengths."""
    return [Generation(prompt=f"a photo of a dog{' and a cat' * i}", seed=2**63 + i) for i in range(count)]


def noise(height: int, width: int, seed: int = 0) -> EncodedImage:
    values = np.random.default_rng(seed).integers(0, 256, (height, width, 3), dtype=np.uint8)
    return EncodedImage.of(values, sources=[f"source of {height} x {width}"])


@contextmanager
def counted(module: torch.nn.Module) -> Iterator[list[int]]:
    """The batch sizes of the module's calls."""
    sizes: list[int] = []

    def count(_: torch.nn.Module, args: Any, kwargs: dict[str, Any]) -> None:
        sizes.append(len(next(iter((*args, *kwargs.values())))))

    handle = module.register_forward_pre_hook(count, with_kwargs=True)
    yield sizes
    handle.remove()


@contextmanager
def room_for(module: torch.nn.Module, most: int, error: Exception) -> Iterator[None]:
    def refuse(_: torch.nn.Module, args: Any, kwargs: dict[str, Any]) -> None:
        if len(next(iter((*args, *kwargs.values())))) > most:
            raise error

    handle = module.register_forward_pre_hook(refuse, with_kwargs=True)
    yield
    handle.remove()


@pytest.mark.parametrize("name", GENERATORS)
def test_image_does_not_depend_on_its_batch(folders: dict[str, Path], name: str) -> None:
    generator = DiffusersGenerator(config(folders[name]))
    together = pixels(generator.generate(requests(5)))
    alone = pixels([generator.generate([request])[0] for request in requests(5)])
    assert together.shape == (5, SIZE, SIZE, 3)
    assert np.abs(together - alone).max() <= 1
    assert all(np.abs(together[0] - other).max() > 30 for other in together[1:])


@pytest.mark.parametrize(("name", "seed"), [("flux", 5), ("stable", 2**64 - 3)])
def test_image_equals_that_of_diffusers(folders: dict[str, Path], name: str, seed: int) -> None:
    generator = DiffusersGenerator(config(folders[name], guidance=5.0))
    drawn = pixels(generator.generate([Generation(prompt="a red bus", seed=seed)]))[0]
    pipeline = AutoPipelineForText2Image.from_pretrained(folders[name], safety_checker=None)
    pipeline.set_progress_bar_config(disable=True)
    arguments: dict[str, Any] = {"max_sequence_length": 64} if name == "flux" else {}
    expected = pipeline(
        "a red bus",
        height=SIZE,
        width=SIZE,
        num_inference_steps=3,
        guidance_scale=5.0,
        generator=torch.Generator().manual_seed(seed % 2**63),
        **arguments,
    ).images[0]
    assert np.abs(drawn - np.asarray(expected, dtype=int)).max() <= 1


def test_image_depends_on_the_seed(folders: dict[str, Path]) -> None:
    generator = DiffusersGenerator(config(folders["flux"]))
    drawn = generator.generate([Generation(prompt="a red bus", seed=seed) for seed in (1, 2, 1)])
    assert drawn[0] == drawn[2]
    assert np.abs(pixels(drawn)[0] - pixels(drawn)[1]).max() > 30


def test_prompt_steps_and_guidance_reach_the_model(folders: dict[str, Path]) -> None:
    generator = DiffusersGenerator(config(folders["stable"]))
    bus, dog = pixels(generator.generate([Generation(prompt=prompt, seed=1) for prompt in ("a red bus", "a dog")]))
    assert np.abs(bus - dog).max() > 1
    unet = pipeline_of(generator).unet
    with counted(unet) as sizes:
        guided = pixels(generator.generate(requests(2)))
    assert set(sizes) == {4}  # With guidance the network also sees the empty prompt.
    unguided = DiffusersGenerator(config(folders["stable"], guidance=0.0, steps=7))
    with counted(pipeline_of(unguided).unet) as sizes:
        without = pixels(unguided.generate(requests(2)))
    assert sizes[:7] == [2] * 7
    assert np.abs(guided - without).max() > 1


def test_unsupported_size_is_scaled(folders: dict[str, Path]) -> None:
    generator = DiffusersGenerator(config(folders["flux"], size=50))
    assert generator.generate(requests(1))[0].image.pixels.shape == (50, 50, 3)


def test_safety_checker_is_removed(folders: dict[str, Path]) -> None:
    """The one in the folder blackens every picture."""
    pipeline = AutoPipelineForText2Image.from_pretrained(folders["stable"])
    pipeline.set_progress_bar_config(disable=True)
    assert not np.asarray(pipeline("a dog", num_inference_steps=1, height=SIZE, width=SIZE).images[0]).any()
    assert pixels(DiffusersGenerator(config(folders["stable"])).generate(requests(1))).std() > 5


@pytest.mark.parametrize("name", ["flux", "stable", "sdxl_turbo", "klein", "z_image", "qwen_image"])
def test_truncated_prompt_is_reported(folders: dict[str, Path], name: str) -> None:
    """The tokenizer of the Stable Diffusion model here makes a token of each letter and sees 75 of them."""
    generator = DiffusersGenerator(config(folders[name]))
    long = "a photo of a dog on the grass " * 8 + "red bus"
    whole, cut = generator.generate([Generation(prompt=prompt, seed=0) for prompt in ("a dog", long)])
    assert whole.missing_terms == ()
    assert cut.missing_terms[0].replace(" ", "").endswith("redbus")
    again = generator.generate([Generation(prompt=long[:-7] + "a cat", seed=0)])[0]
    assert np.abs(pixels([again]) - pixels([cut])).max() <= 1


@pytest.mark.parametrize("name", ["kontext", "pix2pix", "klein"])
def test_edit_keeps_the_size_and_ignores_its_batch(folders: dict[str, Path], name: str) -> None:
    editor = DiffusersEditor(config(folders[name]))
    sizes = [(64, 64), (65, 97), (64, 64), (33, 120), (70, 90)]
    asked = [Edit(image=noise(*size, i), instruction=f"add dog {i}", seed=i) for i, size in enumerate(sizes)]
    together = editor.edit(asked)
    for request, edited in zip(asked, together, strict=True):
        alone = editor.edit([request])[0].image
        assert edited.image.pixels.shape == request.image.pixels.shape
        assert edited.image.sources == request.image.sources
        assert np.abs(edited.image.pixels.astype(int) - alone.pixels).max() <= 1


@pytest.mark.parametrize("name", ["kontext", "pix2pix", "klein"])
def test_edit_depends_on_image_instruction_and_seed(folders: dict[str, Path], name: str) -> None:
    editor = DiffusersEditor(config(folders[name]))
    base = Edit(image=noise(64, 64), instruction="change the dog into a cat", seed=1)
    asked = [
        base,
        replace(base, image=noise(64, 64, 1)),
        replace(base, instruction="a red bus"),
        replace(base, seed=2),
    ]
    edited = pixels(editor.edit(asked))
    assert all(np.abs(edited[0] - other).max() > 1 for other in edited[1:])


@pytest.mark.parametrize(("name", "is_guided"), [("qwen_image", True), ("qwen_image_2.1", False)])
def test_guidance_reaches_a_pipeline_under_its_own_name(folders: dict[str, Path], name: str, is_guided: bool) -> None:
    """Qwen-Image guides by `true_cfg_scale`, which has no effect without a negative prompt. Its authors guide the first version
    by default, and not 2.1. A guided step calls the transformer twice."""
    drawn: dict[float, np.ndarray] = {}
    for guidance, is_twice in ((-1.0, is_guided), (1.0, False), (8.0, True)):
        generator = DiffusersGenerator(config(folders[name], guidance=guidance))
        with counted(pipeline_of(generator).transformer) as calls:
            drawn[guidance] = pixels(generator.generate(requests(1)))
        assert len(calls) == 3 * (1 + is_twice)
    assert np.abs(drawn[1.0] - drawn[8.0]).max() > 1
    assert bool(np.abs(drawn[-1.0] - drawn[1.0]).max() > 1) is is_guided


def test_transparent_pixels_are_white(folders: dict[str, Path]) -> None:
    """Qwen-Image 2.1 draws an alpha channel, and its text encoder sees images on white."""
    generator = DiffusersGenerator(config(folders["qwen_image_2.1"]))
    alpha = pipeline_of(generator).vae.decoder.conv_out.bias.data[3:]
    alpha.fill_(100.0)
    opaque = pixels(generator.generate(requests(1)))
    assert opaque.shape[-1] == 3 and opaque.std() > 5
    alpha.fill_(-100.0)
    assert (pixels(generator.generate(requests(1))) == 255).all()


def test_steps_of_a_model_with_steps_of_its_own_are_refused(tmp_path: Path) -> None:
    """Those of Qwen-Image 2.1 that is distilled stand in its `model_index.json`."""
    turbo = save_qwen_image_2_1(tmp_path, sigmas=[1.0, 0.6])
    with pytest.raises(UsageError, match=r"generator\.steps=3: .*takes no such option"):
        DiffusersGenerator(config(turbo))
    generator = DiffusersGenerator(config(turbo, steps=0))
    with counted(pipeline_of(generator).transformer) as calls:
        generator.generate(requests(1))
    assert len(calls) == 2


def test_sdxl_turbo_draws_in_one_step_without_guidance_in_16_bits(folders: dict[str, Path]) -> None:
    """Its decoder, which would overflow in float16, works in 32 bits."""
    generator = DiffusersGenerator(config(folders["sdxl_turbo"], dtype="float16", steps=1, guidance=0.0))
    decoded: list[torch.dtype] = []

    def look(_: torch.nn.Module, args: Any) -> None:
        decoded.append(args[0].dtype)

    pipeline_of(generator).vae.decoder.register_forward_pre_hook(look)
    with counted(pipeline_of(generator).unet) as sizes:
        drawn = pixels(generator.generate(requests(2)))
    assert sizes == [2], "two images, each seen once"
    assert set(decoded) == {torch.float32}
    assert drawn.std() > 5


def test_guidance_of_a_distilled_model_is_refused(folders: dict[str, Path], tmp_path: Path) -> None:
    """FLUX.2 klein would ignore it. Its base, which was not distilled, takes it."""
    with pytest.raises(UsageError, match=r"generator\.guidance=4\.0.*takes no such option"):
        load(config(folders["klein"], guidance=4.0), "generator")
    base = save_klein(tmp_path / "base", distilled=False)
    plain, guided = (
        pixels(DiffusersGenerator(config(base, guidance=scale)).generate(requests(1))) for scale in (1.0, 4.0)
    )
    assert np.abs(plain - guided).max() > 1


def test_generator_that_edits_loads_one_model_for_both(folders: dict[str, Path]) -> None:
    both = DiffusersGenerator(config(folders["klein"]))
    both.prepare_edits()
    request = Edit(image=noise(64, 80), instruction="add a dog", seed=3)
    assert (
        np.abs(pixels(both.edit([request])) - pixels(DiffusersEditor(config(folders["klein"])).edit([request]))).max()
        <= 1
    )
    with pytest.raises(
        UsageError, match=r"editor\.kind=generator: generator\.model=.*FluxPipeline, which does not edit"
    ):
        DiffusersGenerator(config(folders["flux"])).prepare_edits()


@pytest.fixture(scope="module", params=["qwen_image_edit", "qwen_image_2.1"])
def at_a_megapixel(request: pytest.FixtureRequest, folders: dict[str, Path]) -> DiffusersEditor:
    return DiffusersEditor(config(folders[request.param], steps=1, guidance=1.0))


@pytest.mark.slow
@pytest.mark.nightly
def test_editor_at_a_megapixel_draws_at_the_size_that_it_reads(at_a_megapixel: DiffusersEditor) -> None:
    """The text encoder of Qwen-Image's editors sees the image, too, and they hold positions in both against each other."""
    shapes: list[Any] = []
    tokens: list[int] = []

    def look(_: torch.nn.Module, args: Any, kwargs: dict[str, Any]) -> None:
        shapes.append(kwargs["img_shapes"][0])
        tokens.append(kwargs["hidden_states"].shape[1])

    handle = pipeline_of(at_a_megapixel).transformer.register_forward_pre_hook(look, with_kwargs=True)
    request = Edit(image=noise(65, 97), instruction="add a dog", seed=0)
    (edited,) = at_a_megapixel.edit([request])
    handle.remove()
    assert edited.image.pixels.shape == request.image.pixels.shape
    assert edited.image.sources == request.image.sources
    # One token for 16 x 16 of 832 x 1248 pixels, read and drawn.
    assert shapes == [[(1, 52, 78)] * 2]
    assert tokens == [2 * 52 * 78]


@pytest.mark.slow
@pytest.mark.nightly
def test_mark_of_an_image_in_an_instruction_is_an_error_of_the_model(at_a_megapixel: DiffusersEditor) -> None:
    with pytest.raises(ServiceError, match=" failed: "):
        at_a_megapixel.edit([Edit(image=noise(64, 64), instruction="a <|image_pad|> cat", seed=0)])


@pytest.mark.slow
@pytest.mark.nightly
def test_editor_at_a_megapixel_sees_all_that_it_is_given(at_a_megapixel: DiffusersEditor) -> None:
    """Also the end of an instruction that is longer than `max_text_tokens`, of which nothing is reported as missing."""
    long = "change the dog on the grass into a cat " * 3
    base = Edit(image=noise(64, 64), instruction=long + "red bus", seed=1)
    asked = [
        base,
        replace(base, image=noise(64, 64, 1)),
        replace(base, instruction=long + "a bowl"),
        replace(base, seed=2),
    ]
    edited = at_a_megapixel.edit(asked)
    assert all(one.missing_terms == () for one in edited)
    assert all(np.abs(pixels(edited[:1])[0] - other).max() > 1 for other in pixels(edited[1:]))
    assert np.abs(pixels(at_a_megapixel.edit([base])) - pixels(edited[:1])).max() <= 1


def test_equal_sizes_share_a_batch(folders: dict[str, Path]) -> None:
    editor = DiffusersEditor(config(folders["kontext"]))
    sizes = [(64, 64), (96, 64), (66, 65), (64, 64)]
    with counted(pipeline_of(editor).transformer) as batches:
        editor.edit([Edit(image=noise(*size), instruction="add a dog", seed=0) for size in sizes])
    assert batches == [3] * 3 + [1] * 3


def test_kontext_uses_the_size_of_the_image(folders: dict[str, Path]) -> None:
    """Left to itself it would enlarge both to a megapixel."""
    editor = DiffusersEditor(config(folders["kontext"]))
    patches: set[int] = set()

    def look(_: torch.nn.Module, args: Any, kwargs: dict[str, Any]) -> None:
        patches.add(kwargs["hidden_states"].shape[1])

    pipeline_of(editor).transformer.register_forward_pre_hook(look, with_kwargs=True)
    editor.edit([Edit(image=noise(64, 96), instruction="add a dog", seed=0)])
    assert patches == {2 * (64 // 16) * (96 // 16)}


@pytest.mark.parametrize(
    ("given", "drawn"),
    [((224, 224), (224, 224)), ((500, 375), (496, 368)), ((8, 8), (64, 64)), ((4096, 2048), (1456, 720))],
)
def test_editing_size_is_near_the_image_size(given: tuple[int, int], drawn: tuple[int, int]) -> None:
    assert editing_size(*given, grid=16) == drawn


@pytest.mark.parametrize(
    "error",
    [torch.OutOfMemoryError("CUDA out of memory"), RuntimeError("DefaultCPUAllocator: can't allocate memory")],
)
def test_oversized_batch_is_halved(
    folders: dict[str, Path], error: Exception, caplog: pytest.LogCaptureFixture
) -> None:
    generator = DiffusersGenerator(config(folders["flux"]))
    expected = pixels(generator.generate(requests(7)))
    network = pipeline_of(generator).transformer
    with counted(network) as batches, room_for(network, 2, error), caplog.at_level(logging.WARNING, "openmaia"):
        assert np.abs(pixels(generator.generate(requests(7))) - expected).max() <= 1
        said = len(caplog.messages)
        generator.generate(requests(7))
    assert [size for size in batches if size > 2] == [7, 3]
    assert said == len(caplog.messages) == 2
    assert "pools.generator.max_batch=1" in caplog.messages[-1]


def test_failed_allocation_halves_the_batch(folders: dict[str, Path]) -> None:
    generator = DiffusersGenerator(config(folders["flux"]))

    def allocate(_: torch.nn.Module, args: Any, kwargs: dict[str, Any]) -> None:
        torch.empty(2**48 if len(kwargs["hidden_states"]) > 2 else 1, dtype=torch.uint8)

    pipeline_of(generator).transformer.register_forward_pre_hook(allocate, with_kwargs=True)
    assert len(generator.generate(requests(4))) == 4


def test_oversized_image_is_an_error(folders: dict[str, Path]) -> None:
    editor = DiffusersEditor(config(folders["kontext"]))
    request = Edit(image=noise(64, 64), instruction="add a dog", seed=0)
    network = pipeline_of(editor).transformer
    with (
        room_for(network, 0, torch.OutOfMemoryError("CUDA out of memory")),
        pytest.raises(ServiceError, match=r"single image of 64 x 64 pixels.*editor\.model.*pools\.editor"),
    ):
        editor.edit([request, request])
    assert len(editor.edit([request])) == 1


def test_pixels_that_are_not_finite_are_an_error(folders: dict[str, Path]) -> None:
    generator = DiffusersGenerator(config(folders["flux"]))
    pipeline_of(generator).transformer.proj_out.bias.data.fill_(torch.nan)
    with pytest.raises(ServiceError, match=r"not finite.*generator\.dtype=float32"):
        generator.generate(requests(1))


@pytest.fixture
def quantizing_without_gpu() -> Iterator[None]:
    """bitsandbytes quantizes on CPUs too; diffusers refuses to ask it there, and this is all that is lifted."""
    with mock.patch.object(BnB4BitDiffusersQuantizer, "validate_environment"):
        yield


def is_nf4(linear: Any) -> bool:
    weight = linear.weight
    return (
        isinstance(linear, bitsandbytes.nn.Linear4bit)
        and isinstance(weight, bitsandbytes.nn.Params4bit)
        and weight.dtype == torch.uint8
        and weight.quant_state.quant_type == "nf4"
        and weight.numel() * 2 == linear.in_features * linear.out_features
    )


@pytest.mark.usefixtures("quantizing_without_gpu")
@pytest.mark.parametrize("role", ["generator", "editor"])
def test_nf4_weights_have_four_bits(folders: dict[str, Path], role: Any) -> None:
    model = config(folders["flux" if role == "generator" else "kontext"], quantize="nf4")
    pipeline = load(model, role)
    assert is_nf4(pipeline.transformer.transformer_blocks[0].attn.to_q)
    assert is_nf4(pipeline.text_encoder_2.encoder.block[0].layer[0].SelfAttention.q)
    assert {parameter.dtype for parameter in pipeline.text_encoder.parameters()} == {torch.float32}


@pytest.mark.usefixtures("quantizing_without_gpu")
def test_nf4_image_is_nearly_the_same(folders: dict[str, Path]) -> None:
    exact = pixels(DiffusersGenerator(config(folders["flux"])).generate(requests(3)))
    generator = DiffusersGenerator(config(folders["flux"], quantize="nf4"))
    quantized = pixels(generator.generate(requests(3)))
    alone = pixels([generator.generate([request])[0] for request in requests(3)])
    assert 0 < np.abs(exact - quantized).mean() < 15 < np.abs(exact[0] - exact[1]).mean()
    assert np.abs(quantized - alone).max() <= 1


@pytest.mark.usefixtures("quantizing_without_gpu")
def test_prequantized_components_are_loaded(folders: dict[str, Path], tmp_path: Path) -> None:
    """The transformer in a folder of a package, the text encoder at the root: as the published ones are."""
    quantized = load(config(folders["flux"], quantize="nf4"), "generator")
    quantized.transformer.save_pretrained(tmp_path / "package/transformer")
    quantized.text_encoder_2.save_pretrained(tmp_path / "t5")
    own = config(folders["flux"], transformer=str(tmp_path / "package"), text_encoder=str(tmp_path / "t5"))
    for quantize in ("", "nf4"):
        pipeline = load(replace(own, quantize=quantize), "generator")
        assert is_nf4(pipeline.transformer.transformer_blocks[0].attn.to_q)
        assert is_nf4(pipeline.text_encoder_2.encoder.block[0].layer[0].SelfAttention.q)


def test_own_components_replace_those_of_the_pipeline(folders: dict[str, Path], tmp_path: Path) -> None:
    torch.manual_seed(1)
    network, encoder = transformer(), t5_encoder()
    network.save_pretrained(tmp_path / "network")
    encoder.save_pretrained(tmp_path / "encoder/text_encoder_2")
    own = config(folders["flux"], transformer=str(tmp_path / "network"), text_encoder=str(tmp_path / "encoder"))
    pipeline = load(own, "generator")
    assert torch.equal(pipeline.transformer.proj_out.weight, network.proj_out.weight)
    assert torch.equal(pipeline.text_encoder_2.shared.weight, encoder.shared.weight)


def test_nf4_without_a_gpu_is_refused(folders: dict[str, Path]) -> None:
    if torch.cuda.is_available():
        pytest.skip("there is a GPU")
    with pytest.raises(UsageError, match=r"generator\.quantize='nf4'.*need a GPU"):
        DiffusersGenerator(config(folders["flux"], quantize="nf4"))


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({"model": "a/b/c"}, r"generator\.model='a/b/c' is neither a folder nor a hub id"),
        ({"transformer": "/nowhere"}, r"generator\.transformer='/nowhere' is neither a folder nor a hub id"),
        ({"max_text_tokens": 600}, r"was loaded but cannot generate.*max_sequence_length"),
    ],
)
def test_bad_config_names_the_key(folders: dict[str, Path], changed: dict[str, Any], said: str) -> None:
    with pytest.raises(UsageError, match=said):
        DiffusersGenerator(replace(config(folders["flux"]), **changed))


def test_guidance_is_refused_by_a_pipeline_that_was_distilled_without_it(
    folders: dict[str, Path], tmp_path: Path
) -> None:
    shutil.copytree(folders["flux"], tmp_path / "schnell")
    path = tmp_path / "schnell/transformer/config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | {"guidance_embeds": False}))
    with pytest.raises(UsageError, match=r"generator\.guidance=3\.0: .* takes no such option"):
        DiffusersGenerator(config(tmp_path / "schnell", guidance=3.0))


@pytest.mark.parametrize("name", ["flux", "stable"])
def test_generator_is_refused_as_editor(folders: dict[str, Path], name: str) -> None:
    with pytest.raises(UsageError, match=r"editor\.model=.*does not edit by instruction.*Kontext"):
        DiffusersEditor(config(folders[name]))


def test_other_models_are_refused(folders: dict[str, Path], tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"no model_index\.json"):
        DiffusersGenerator(config(folders["flux"] / "transformer"))
    with pytest.raises(UsageError, match=r"generator\.model="):
        DiffusersGenerator(config(folders["pix2pix"]))
    index = json.loads((folders["stable"] / "model_index.json").read_text())
    (tmp_path / "model_index.json").write_text(json.dumps(index | {"_class_name": "NoSuchPipeline"}))
    with pytest.raises(UsageError, match=r"generator\.model=.*NoSuchPipeline"):
        DiffusersGenerator(config(tmp_path))
    (tmp_path / "model_index.json").write_text("{")
    with pytest.raises(UsageError, match=r"model_index\.json is damaged"):
        DiffusersGenerator(config(tmp_path))


@pytest.mark.parametrize(
    ("part", "option"), [("transformer", "model"), ("text_encoder_2", "model"), ("transformer", "transformer")]
)
def test_truncated_weights_are_refused(folders: dict[str, Path], tmp_path: Path, part: str, option: str) -> None:
    damaged = Path(shutil.copytree(folders["flux"], tmp_path / "damaged"))
    weights = next((damaged / part).glob("*.safetensors"))
    weights.write_bytes(weights.read_bytes()[:-1000])
    with pytest.raises(UsageError, match=rf"generator\.{option}=.*cannot be loaded"):
        DiffusersGenerator(replace(config(folders["flux"]), **{option: str(damaged)}))


def test_weights_of_another_network_are_refused(folders: dict[str, Path], tmp_path: Path) -> None:
    network = transformer()
    network.transformer_blocks = torch.nn.ModuleList()
    network.save_pretrained(tmp_path)
    with pytest.raises(UsageError, match=r"generator\.transformer=.*lacks \d+ weights of a FluxTransformer2D"):
        DiffusersGenerator(config(folders["flux"], transformer=str(tmp_path)))
