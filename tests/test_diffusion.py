"""Diffusion pipelines as Generator and Editor: real pipelines of diffusers, tiny, with random weights."""

import json
import logging
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import Any
from unittest import mock

import bitsandbytes
import numpy as np
import pytest
import torch
from diffusers import AutoPipelineForText2Image
from diffusers.quantizers.bitsandbytes.bnb_quantizer import BnB4BitDiffusersQuantizer

from openmaia.errors import ServiceError, UsageError
from openmaia.generators.diffusion.editor import DiffusionEditor, drawn_size
from openmaia.generators.diffusion.generator import DiffusionGenerator
from openmaia.generators.diffusion.loading import load
from openmaia.generators.diffusion.prompts import Kept, Prompts
from openmaia.images import Picture
from openmaia.schema import DiffusionConfig
from openmaia.services import Drawn, Edit, Generation
from tests.tiny.flux import save_flux, save_kontext, t5_encoder, transformer
from tests.tiny.stable import save_pix2pix, save_stable

SAVED: dict[str, Callable[[Path], Path]] = {
    "flux": save_flux,
    "kontext": save_kontext,
    "stable": save_stable,
    "pix2pix": save_pix2pix,
}
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


def config(model: Path | str, **changed: Any) -> DiffusionConfig:
    return replace(DiffusionConfig(model=str(model), dtype="float32", steps=3, max_text_tokens=64), **changed)


def pipeline_of(host: DiffusionGenerator | DiffusionEditor) -> Any:
    return host._batcher._pipeline


def pixels(drawn: list[Drawn]) -> np.ndarray:
    return np.stack([one.picture.pixels for one in drawn]).astype(int)


def requests(count: int) -> list[Generation]:
    return [Generation(prompt=f"a photo of a dog number {i}", seed=2**63 + i) for i in range(count)]


def noise(height: int, width: int, seed: int = 0) -> Picture:
    values = np.random.default_rng(seed).integers(0, 256, (height, width, 3), dtype=np.uint8)
    return Picture.of(values, sources=[f"source of {height} x {width}"])


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


@pytest.mark.parametrize("name", ["flux", "stable"])
def test_a_picture_does_not_depend_on_its_batch(folders: dict[str, Path], name: str) -> None:
    generator = DiffusionGenerator(config(folders[name]), SIZE)
    together = pixels(generator.generate(requests(5)))
    alone = pixels([generator.generate([request])[0] for request in requests(5)])
    assert together.shape == (5, SIZE, SIZE, 3)
    assert np.abs(together - alone).max() <= 1
    assert all(np.abs(together[0] - other).max() > 30 for other in together[1:])


@pytest.mark.parametrize(("name", "seed"), [("flux", 5), ("stable", 2**64 - 3)])
def test_a_picture_is_the_one_that_diffusers_draws_for_the_seed(folders: dict[str, Path], name: str, seed: int) -> None:
    """Encoding prompts beforehand, and our arguments, change nothing."""
    generator = DiffusionGenerator(config(folders[name], guidance=5.0), SIZE)
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


def test_a_seed_decides_the_picture(folders: dict[str, Path]) -> None:
    generator = DiffusionGenerator(config(folders["flux"]), SIZE)
    drawn = generator.generate([Generation(prompt="a red bus", seed=seed) for seed in (1, 2, 1)])
    assert drawn[0] == drawn[2]
    assert np.abs(pixels(drawn)[0] - pixels(drawn)[1]).max() > 30


def test_prompt_steps_and_guidance_reach_the_model(folders: dict[str, Path]) -> None:
    generator = DiffusionGenerator(config(folders["stable"]), SIZE)
    bus, dog = pixels(generator.generate([Generation(prompt=prompt, seed=1) for prompt in ("a red bus", "a dog")]))
    assert np.abs(bus - dog).max() > 1
    unet = pipeline_of(generator).unet
    with counted(unet) as sizes:
        guided = pixels(generator.generate(requests(2)))
    assert set(sizes) == {4}  # With guidance the network also sees the empty prompt.
    unguided = DiffusionGenerator(config(folders["stable"], guidance=0.0, steps=7), SIZE)
    with counted(pipeline_of(unguided).unet) as sizes:
        without = pixels(unguided.generate(requests(2)))
    assert sizes[:7] == [2] * 7
    assert np.abs(guided - without).max() > 1


def test_a_size_the_model_cannot_draw_is_scaled_to(folders: dict[str, Path]) -> None:
    generator = DiffusionGenerator(config(folders["flux"]), 50)
    assert generator.generate(requests(1))[0].picture.pixels.shape == (50, 50, 3)


def test_a_refusing_safety_checker_is_not_asked(folders: dict[str, Path]) -> None:
    """The one in the folder blackens every picture."""
    pipeline = AutoPipelineForText2Image.from_pretrained(folders["stable"])
    pipeline.set_progress_bar_config(disable=True)
    assert not np.asarray(pipeline("a dog", num_inference_steps=1, height=SIZE, width=SIZE).images[0]).any()
    assert pixels(DiffusionGenerator(config(folders["stable"]), SIZE).generate(requests(1))).std() > 5


@pytest.mark.parametrize(("name", "encoder", "each"), [("flux", "text_encoder_2", 1), ("stable", "text_encoder", 2)])
def test_a_prompt_is_encoded_once(folders: dict[str, Path], name: str, encoder: str, each: int) -> None:
    generator = DiffusionGenerator(config(folders[name]), SIZE)
    asked = [Generation(prompt=prompt, seed=i) for i, prompt in enumerate(["a dog", "a cat", "a dog", "a dog"])]
    with counted(getattr(pipeline_of(generator), encoder)) as sizes:
        first = generator.generate(asked)
        assert generator.generate(asked) == generator.generate(asked) == first
    assert len(sizes) == 2 * each  # The empty prompt too, where there is guidance.


class AsLongAsTheirPrompts:
    """A pipeline whose encodings cannot be put into one tensor."""

    def __call__(self, prompt: Any = None, prompt_embeds: Any = None, negative_prompt_embeds: Any = None) -> None: ...

    def encode_prompt(self, prompt: str, prompt_embeds: Any = None, negative_prompt_embeds: Any = None) -> Any:
        return (torch.zeros(1, len(prompt), 4), None) if "list" not in prompt else ([torch.zeros(4)], [torch.zeros(4)])


def test_encodings_of_an_unknown_kind_are_left_to_the_pipeline() -> None:
    prompts = Prompts(AsLongAsTheirPrompts(), None, 64)
    assert list(prompts.arguments(["a dog", "a cat"])) == ["prompt_embeds"]
    assert prompts.arguments(["a dog", "a zebra"]) == {"prompt": ["a dog", "a zebra"]}
    assert prompts.arguments(["a list"]) == {"prompt": ["a list"]}


def test_encodings_are_dropped_oldest_use_first() -> None:
    kept = Kept(capacity=3 * 40)
    for prompt in "abc":
        kept.put(prompt, {"prompt_embeds": torch.zeros(10)})
    kept.get("a")
    kept.put("d", {"prompt_embeds": torch.zeros(10)})
    assert [prompt for prompt in "abcd" if kept.get(prompt)] == ["a", "c", "d"]
    kept.put("large", {"prompt_embeds": torch.zeros(1000)})
    assert len(kept) == 0


@pytest.mark.parametrize("name", ["flux", "stable"])
def test_what_no_text_encoder_sees_is_said(folders: dict[str, Path], name: str) -> None:
    """The tokenizer of the Stable Diffusion model here makes a token of each letter and sees 75 of them."""
    generator = DiffusionGenerator(config(folders[name]), SIZE)
    long = "a photo of a dog on the grass " * 8 + "red bus"
    whole, cut = generator.generate([Generation(prompt=prompt, seed=0) for prompt in ("a dog", long)])
    assert whole.undrawn == ()
    assert cut.undrawn[0].replace(" ", "").endswith("redbus")
    again = generator.generate([Generation(prompt=long[:-7] + "a cat", seed=0)])[0]
    assert np.abs(pixels([again]) - pixels([cut])).max() <= 1


@pytest.mark.parametrize("name", ["kontext", "pix2pix"])
def test_an_edit_has_the_size_of_its_picture_and_does_not_depend_on_its_batch(
    folders: dict[str, Path], name: str
) -> None:
    editor = DiffusionEditor(config(folders[name]))
    sizes = [(64, 64), (65, 97), (64, 64), (33, 120), (70, 90)]
    asked = [Edit(picture=noise(*size, i), instruction=f"add dog {i}", seed=i) for i, size in enumerate(sizes)]
    together = editor.edit(asked)
    for request, edited in zip(asked, together, strict=True):
        alone = editor.edit([request])[0].picture
        assert edited.picture.pixels.shape == request.picture.pixels.shape
        assert edited.picture.sources == request.picture.sources
        assert np.abs(edited.picture.pixels.astype(int) - alone.pixels).max() <= 1


@pytest.mark.parametrize("name", ["kontext", "pix2pix"])
def test_an_edit_depends_on_picture_instruction_and_seed(folders: dict[str, Path], name: str) -> None:
    editor = DiffusionEditor(config(folders[name]))
    base = Edit(picture=noise(64, 64), instruction="change the dog into a cat", seed=1)
    asked = [
        base,
        replace(base, picture=noise(64, 64, 1)),
        replace(base, instruction="a red bus"),
        replace(base, seed=2),
    ]
    edited = pixels(editor.edit(asked))
    assert all(np.abs(edited[0] - other).max() > 1 for other in edited[1:])


def test_equal_sizes_share_a_batch(folders: dict[str, Path]) -> None:
    editor = DiffusionEditor(config(folders["kontext"]))
    sizes = [(64, 64), (96, 64), (66, 65), (64, 64)]
    with counted(pipeline_of(editor).transformer) as batches:
        editor.edit([Edit(picture=noise(*size), instruction="add a dog", seed=0) for size in sizes])
    assert batches == [3] * 3 + [1] * 3


def test_kontext_sees_the_picture_at_the_size_it_draws(folders: dict[str, Path]) -> None:
    """Left to itself it would enlarge both to a megapixel."""
    editor = DiffusionEditor(config(folders["kontext"]))
    patches: set[int] = set()

    def look(_: torch.nn.Module, args: Any, kwargs: dict[str, Any]) -> None:
        patches.add(kwargs["hidden_states"].shape[1])

    pipeline_of(editor).transformer.register_forward_pre_hook(look, with_kwargs=True)
    editor.edit([Edit(picture=noise(64, 96), instruction="add a dog", seed=0)])
    assert patches == {2 * (64 // 16) * (96 // 16)}


@pytest.mark.parametrize(
    ("given", "drawn"),
    [((224, 224), (224, 224)), ((500, 375), (496, 368)), ((8, 8), (64, 64)), ((4096, 2048), (1456, 720))],
)
def test_the_size_a_picture_is_edited_at(given: tuple[int, int], drawn: tuple[int, int]) -> None:
    assert drawn_size(*given, grid=16) == drawn


@pytest.mark.parametrize(
    "error",
    [torch.OutOfMemoryError("CUDA out of memory"), RuntimeError("DefaultCPUAllocator: can't allocate memory")],
)
def test_a_batch_that_does_not_fit_is_halved(
    folders: dict[str, Path], error: Exception, caplog: pytest.LogCaptureFixture
) -> None:
    generator = DiffusionGenerator(config(folders["flux"]), SIZE)
    expected = pixels(generator.generate(requests(7)))
    network = pipeline_of(generator).transformer
    with counted(network) as batches, room_for(network, 2, error), caplog.at_level(logging.WARNING, "openmaia"):
        assert np.abs(pixels(generator.generate(requests(7))) - expected).max() <= 1
        said = len(caplog.messages)
        generator.generate(requests(7))
    assert [size for size in batches if size > 2] == [7, 3]
    assert said == len(caplog.messages) == 2
    assert "pools.generator.max_batch=1" in caplog.messages[-1]


def test_an_allocation_that_really_fails_halves_the_batch(folders: dict[str, Path]) -> None:
    generator = DiffusionGenerator(config(folders["flux"]), SIZE)

    def allocate(_: torch.nn.Module, args: Any, kwargs: dict[str, Any]) -> None:
        torch.empty(2**48 if len(kwargs["hidden_states"]) > 2 else 1, dtype=torch.uint8)

    pipeline_of(generator).transformer.register_forward_pre_hook(allocate, with_kwargs=True)
    assert len(generator.generate(requests(4))) == 4


def test_a_single_picture_that_does_not_fit_is_an_error(folders: dict[str, Path]) -> None:
    editor = DiffusionEditor(config(folders["kontext"]))
    request = Edit(picture=noise(64, 64), instruction="add a dog", seed=0)
    network = pipeline_of(editor).transformer
    with (
        room_for(network, 0, torch.OutOfMemoryError("CUDA out of memory")),
        pytest.raises(ServiceError, match=r"single picture of 64 x 64 pixels.*editor\.diffusion.*pools\.editor"),
    ):
        editor.edit([request, request])
    assert len(editor.edit([request])) == 1


def test_pixels_that_are_no_numbers_are_an_error(folders: dict[str, Path]) -> None:
    generator = DiffusionGenerator(config(folders["flux"]), SIZE)
    pipeline_of(generator).transformer.proj_out.bias.data.fill_(torch.nan)
    with pytest.raises(ServiceError, match=r"no numbers.*generator\.diffusion\.dtype=float32"):
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
def test_nf4_draws_nearly_the_same_picture(folders: dict[str, Path]) -> None:
    exact = pixels(DiffusionGenerator(config(folders["flux"]), SIZE).generate(requests(3)))
    generator = DiffusionGenerator(config(folders["flux"], quantize="nf4"), SIZE)
    quantized = pixels(generator.generate(requests(3)))
    alone = pixels([generator.generate([request])[0] for request in requests(3)])
    assert 0 < np.abs(exact - quantized).mean() < 15 < np.abs(exact[0] - exact[1]).mean()
    assert np.abs(quantized - alone).max() <= 1


@pytest.mark.usefixtures("quantizing_without_gpu")
def test_parts_of_their_own_that_are_quantized_already(folders: dict[str, Path], tmp_path: Path) -> None:
    """The transformer in a folder of a package, the text encoder at the root: as the published ones are."""
    quantized = load(config(folders["flux"], quantize="nf4"), "generator")
    quantized.transformer.save_pretrained(tmp_path / "package/transformer")
    quantized.text_encoder_2.save_pretrained(tmp_path / "t5")
    own = config(folders["flux"], transformer=str(tmp_path / "package"), text_encoder=str(tmp_path / "t5"))
    for quantize in ("", "nf4"):
        pipeline = load(replace(own, quantize=quantize), "generator")
        assert is_nf4(pipeline.transformer.transformer_blocks[0].attn.to_q)
        assert is_nf4(pipeline.text_encoder_2.encoder.block[0].layer[0].SelfAttention.q)


def test_parts_of_their_own_are_the_ones_in_use(folders: dict[str, Path], tmp_path: Path) -> None:
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
    with pytest.raises(UsageError, match=r"generator\.diffusion\.quantize='nf4'.*need a GPU"):
        DiffusionGenerator(config(folders["flux"], quantize="nf4"), SIZE)


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({"dtype": "int7"}, r"generator\.diffusion\.dtype='int7' is not known; expected bfloat16"),
        ({"quantize": "nf3"}, r"generator\.diffusion\.quantize='nf3' is not known; expected nf4"),
        ({"model": ""}, r"generator\.diffusion\.model is empty"),
        ({"model": "a/b/c"}, r"generator\.diffusion\.model='a/b/c' is neither a folder nor a hub id"),
        ({"transformer": "/nowhere"}, r"generator\.diffusion\.transformer='/nowhere' is neither a folder nor a hub id"),
        ({"max_text_tokens": 600}, r"was loaded but cannot draw.*max_sequence_length"),
    ],
)
def test_a_config_that_cannot_be(folders: dict[str, Path], changed: dict[str, Any], said: str) -> None:
    with pytest.raises(UsageError, match=said):
        DiffusionGenerator(replace(config(folders["flux"]), **changed), SIZE)


@pytest.mark.parametrize("name", ["flux", "stable"])
def test_a_model_that_does_not_edit_is_refused(folders: dict[str, Path], name: str) -> None:
    with pytest.raises(UsageError, match=r"editor\.diffusion\.model=.*does not edit by instruction.*Kontext"):
        DiffusionEditor(config(folders[name]))


def test_a_model_that_is_no_pipeline_of_pictures_is_refused(folders: dict[str, Path], tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"no model_index\.json"):
        DiffusionGenerator(config(folders["flux"] / "transformer"), SIZE)
    with pytest.raises(UsageError, match=r"generator\.diffusion\.model="):
        DiffusionGenerator(config(folders["pix2pix"]), SIZE)
    index = json.loads((folders["stable"] / "model_index.json").read_text())
    (tmp_path / "model_index.json").write_text(json.dumps(index | {"_class_name": "NoSuchPipeline"}))
    with pytest.raises(UsageError, match=r"generator\.diffusion\.model=.*NoSuchPipeline"):
        DiffusionGenerator(config(tmp_path), SIZE)
    (tmp_path / "model_index.json").write_text("{")
    with pytest.raises(UsageError, match=r"model_index\.json is damaged"):
        DiffusionGenerator(config(tmp_path), SIZE)


@pytest.mark.parametrize(
    ("part", "option"), [("transformer", "model"), ("text_encoder_2", "model"), ("transformer", "transformer")]
)
def test_truncated_weights_are_said(folders: dict[str, Path], tmp_path: Path, part: str, option: str) -> None:
    damaged = Path(shutil.copytree(folders["flux"], tmp_path / "damaged"))
    weights = next((damaged / part).glob("*.safetensors"))
    weights.write_bytes(weights.read_bytes()[:-1000])
    with pytest.raises(UsageError, match=rf"generator\.diffusion\.{option}=.*cannot be loaded"):
        DiffusionGenerator(replace(config(folders["flux"]), **{option: str(damaged)}), SIZE)


def test_weights_of_another_network_are_refused(folders: dict[str, Path], tmp_path: Path) -> None:
    network = transformer()
    network.transformer_blocks = torch.nn.ModuleList()
    network.save_pretrained(tmp_path)
    with pytest.raises(
        UsageError, match=r"generator\.diffusion\.transformer=.*lacks \d+ weights of a FluxTransformer2D"
    ):
        DiffusionGenerator(config(folders["flux"], transformer=str(tmp_path)), SIZE)


@contextmanager
def hub(status: int, code: str) -> Iterator[str]:
    """A model hub that answers everything with this status and error code."""

    class Answer(BaseHTTPRequestHandler):
        def do_HEAD(self) -> None:
            self.send_response(status)
            self.send_header("X-Error-Code", code)
            self.end_headers()

        do_GET = do_HEAD

        def log_message(self, format: str, *args: Any) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Answer)
    Thread(target=server.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{server.server_port}"
    server.shutdown()


READ = """
from openmaia.errors import UsageError
from openmaia.generators.diffusion.hub import read_json
try:
    print(read_json("generator.diffusion.model", "someone/model", "model_index.json"))
except UsageError as error:
    print(error)
"""


@pytest.mark.parametrize(
    ("status", "code", "said"),
    [
        (401, "GatedRepo", "generator.diffusion.model='someone/model' is gated"),
        (404, "RepoNotFound", "generator.diffusion.model='someone/model' is neither a folder nor a model of the hub"),
        (403, "", "generator.diffusion.model='someone/model' is no folder, and the model hub did not answer"),
        (404, "EntryNotFound", "None"),
        (0, "", "generator.diffusion.model='someone/model' is no folder, and the model hub did not answer"),
    ],
)
def test_what_the_hub_refuses(tmp_path: Path, status: int, code: str, said: str) -> None:
    """In a process of its own: the hub's client reads its address when it is imported."""
    with hub(status or 500, code) as address:
        environment = {"HF_ENDPOINT": address, "HF_HUB_CACHE": str(tmp_path), "HF_HUB_OFFLINE": str(int(not status))}
        command = [sys.executable, "-c", READ]
        done = subprocess.run(command, env=os.environ | environment, capture_output=True, text=True, timeout=60)
    assert done.stdout.startswith(said), done.stderr
