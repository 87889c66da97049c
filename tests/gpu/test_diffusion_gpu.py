"""FLUX.1-dev and FLUX.1-Kontext at their real size, in NF4, with random weights: speed and memory by batch size.

The architecture is the published one and nothing is downloaded. Random weights draw noise, at the cost of a real picture.
The folder takes 34 GB. The figures go to $OUT/diffusion.json where OUT is set.
"""

import gc
import json
import os
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from diffusers import AutoencoderKL, FlowMatchEulerDiscreteScheduler, FluxPipeline, FluxTransformer2DModel
from transformers import CLIPTextConfig, CLIPTextModel, T5Config, T5EncoderModel

from openmaia.core.images import EncodedImage
from openmaia.core.services import Edit, GeneratedImage, Generation
from openmaia.models.generators.diffusion import DiffusersConfig, DiffusersEditor, DiffusersGenerator
from tests.helpers.tiny.flux import clip_tokenizer, t5_tokenizer

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU"),
    pytest.mark.timeout(1800),
]
COUNTS = (1, 2, 4, 8, 16)
SIZE = 512
TRANSFORMER = {
    "in_channels": 64,
    "num_layers": 19,
    "num_single_layers": 38,
    "attention_head_dim": 128,
    "num_attention_heads": 24,
    "joint_attention_dim": 4096,
    "pooled_projection_dim": 768,
    "guidance_embeds": True,
}
T5_XXL = {
    "vocab_size": 32128,
    "d_model": 4096,
    "d_ff": 10240,
    "d_kv": 64,
    "num_layers": 24,
    "num_heads": 64,
    "feed_forward_proj": "gated-gelu",
}
CLIP_L = {"hidden_size": 768, "intermediate_size": 3072, "num_hidden_layers": 12, "num_attention_heads": 12}
VAE_CHANNELS = (128, 256, 512, 512)


@pytest.fixture(scope="module")
def flux(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    folder = tmp_path_factory.mktemp("flux")
    save(folder)
    yield folder
    for weights in folder.rglob("*.safetensors"):
        weights.unlink()


@pytest.fixture
def kontext(flux: Path, tmp_path: Path) -> Path:
    """The architecture of FLUX.1-Kontext is that of FLUX.1; the pipeline differs."""
    for part in flux.iterdir():
        if part.is_dir():
            (tmp_path / part.name).symlink_to(part)
    index = json.loads((flux / "model_index.json").read_text())
    (tmp_path / "model_index.json").write_text(json.dumps(index | {"_class_name": "FluxKontextPipeline"}))
    return tmp_path


def save(folder: Path) -> None:
    torch.manual_seed(0)
    clip, t5 = clip_tokenizer(folder / "tokens"), t5_tokenizer()
    special = {"bos_token_id": clip.bos_token_id, "eos_token_id": clip.eos_token_id, "pad_token_id": clip.pad_token_id}
    pipeline = FluxPipeline(
        scheduler=FlowMatchEulerDiscreteScheduler(shift=3.0, use_dynamic_shifting=True),
        vae=random(
            lambda: AutoencoderKL(
                block_out_channels=VAE_CHANNELS,
                down_block_types=("DownEncoderBlock2D",) * 4,
                up_block_types=("UpDecoderBlock2D",) * 4,
                layers_per_block=2,
                latent_channels=16,
                use_quant_conv=False,
                use_post_quant_conv=False,
                shift_factor=0.1159,
                scaling_factor=0.3611,
            )
        ),
        text_encoder=random(lambda: CLIPTextModel(CLIPTextConfig(**CLIP_L, **special))),
        tokenizer=clip,
        text_encoder_2=random(lambda: T5EncoderModel(T5Config(**T5_XXL))),
        tokenizer_2=t5,
        transformer=random(lambda: FluxTransformer2DModel(**TRANSFORMER)),
    )
    pipeline.save_pretrained(folder)
    del pipeline
    gc.collect()


def random(make: Callable[[], torch.nn.Module]) -> Any:
    """Drawn on the GPU: twelve billion numbers would take a CPU minutes."""
    torch.set_default_dtype(torch.bfloat16)
    try:
        with torch.device("cuda"):
            return make().cpu()
    finally:
        torch.set_default_dtype(torch.float32)
        torch.cuda.empty_cache()


def measured(draw: Callable[[int], list[GeneratedImage]]) -> dict[int, dict[str, float]]:
    """Per batch size: pictures per second, and the most GPU memory in use, in GiB. draw(n) draws n pictures at once."""
    draw(1)
    figures: dict[int, dict[str, float]] = {}
    for count in COUNTS:
        torch.cuda.reset_peak_memory_stats()
        torch.cuda.synchronize()
        started = time.monotonic()
        assert len(draw(count)) == count
        seconds = time.monotonic() - started
        peak = torch.cuda.max_memory_allocated() / 2**30
        figures[count] = {"pictures_per_second": round(count / seconds, 3), "peak_gib": round(peak, 2)}
    return figures


def report(name: str, **figures: Any) -> None:
    print(name, json.dumps(figures))
    if out := os.environ.get("OUT"):
        path = Path(out) / "diffusion.json"
        known = json.loads(path.read_text()) if path.exists() else {"gpu": torch.cuda.get_device_name()}
        path.write_text(json.dumps(known | {name: figures}, indent=1))


def difference(one: GeneratedImage, other: GeneratedImage) -> float:
    """Mean over pixels, of 255."""
    return float(np.abs(one.image.pixels.astype(int) - other.image.pixels).mean())


def test_flux_batches_are_faster_than_singles(flux: Path) -> None:
    started = time.monotonic()
    config = DiffusersConfig(size=SIZE, model=str(flux), quantize="nf4", steps=25, guidance=5.5)
    generator = DiffusersGenerator(config)
    loading, weights = time.monotonic() - started, torch.cuda.memory_allocated() / 2**30

    def draw(count: int) -> list[GeneratedImage]:
        return generator.generate([Generation(prompt=f"a dog number {i}", seed=i) for i in range(count)])

    together, alone = draw(4), draw(1)
    figures = measured(draw)
    report(
        "flux",
        load_seconds=round(loading, 1),
        weights_gib=round(weights, 2),
        batch_against_single=difference(together[0], alone[0]),
        different_seeds=difference(together[0], together[1]),
        by_batch=figures,
    )
    # 16.7 thousand million weights: 31 GiB in bfloat16.
    assert weights < 12
    assert difference(together[0], alone[0]) < difference(together[0], together[1]) / 2
    assert figures[8]["pictures_per_second"] > figures[1]["pictures_per_second"]


def test_kontext_batches_are_faster_than_singles(kontext: Path) -> None:
    gc.collect()
    torch.cuda.empty_cache()
    config = DiffusersConfig(size=SIZE, model=str(kontext), quantize="nf4", steps=15, guidance=2.5)
    editor = DiffusersEditor(config)
    pixels = np.random.default_rng(0).integers(0, 256, (max(COUNTS), SIZE, SIZE, 3), dtype=np.uint8)
    pictures = [EncodedImage.of(one) for one in pixels]

    def draw(count: int) -> list[GeneratedImage]:
        return editor.edit([Edit(image=pictures[i], instruction="add a red ball", seed=i) for i in range(count)])

    together, alone = draw(4), draw(1)
    figures = measured(draw)
    report("kontext", batch_against_single=difference(together[0], alone[0]), by_batch=figures)
    assert difference(together[0], alone[0]) < difference(together[0], together[1]) / 2
    assert figures[8]["pictures_per_second"] > figures[1]["pictures_per_second"]


def test_offloading_gives_the_same_image(flux: Path) -> None:
    gc.collect()
    torch.cuda.empty_cache()
    torch.cuda.reset_peak_memory_stats()
    config = DiffusersConfig(size=SIZE, model=str(flux), quantize="nf4", steps=4, offload=True)
    offloaded = DiffusersGenerator(config)
    request = [Generation(prompt="a dog", seed=0)]
    drawn = offloaded.generate(request)[0]
    report("offloaded", resting_gib=round(torch.cuda.memory_allocated() / 2**30, 2))
    assert torch.cuda.memory_allocated() < 2 * 2**30
    resident = DiffusersGenerator(DiffusersConfig(size=SIZE, model=str(flux), quantize="nf4", steps=4))
    assert difference(drawn, resident.generate(request)[0]) < 2
