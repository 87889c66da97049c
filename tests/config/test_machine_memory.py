"""The machine files hold the models that they are named for: weights, KV cache and working memory against the card's memory.

Sizes are those that the models' makers publish; the working memory is what `openmaia doctor` counts with.
"""

from dataclasses import dataclass

import pytest

from openmaia.checks.memory import WORKING
from openmaia.config.loading import load
from openmaia.config.machine import POOLS
from openmaia.config.schema import Config
from tests.conftest import REPOSITORY

BYTES = {"bfloat16": 2, "float16": 2}
"""Of a parameter."""

NF4 = 0.57
"""Bytes of a parameter in 4 bits with a 32-bit scale for each 64 of them: 0.5 + 4 / 64, rounded up."""

TARGET_BYTES = 0.0602e9 * 4
"""ResNet-152, the largest network of the papers, in 32 bits."""


@dataclass(frozen=True)
class Attention:
    """What a conversation costs in the cache."""

    layers: int
    """Layers that keep every token."""
    heads: int
    """Their key-value heads."""
    width: int
    """Of a head."""
    window_layers: int = 0
    """Layers that keep a window of 1024 tokens only."""
    window_heads: int = 0
    window_width: int = 0
    states: float = 0.0
    """Bytes that do not depend on the number of tokens."""

    def cache_bytes(self, tokens: int, cards: int = 1) -> float:
        """Returns the KV cache of one conversation in 16 bits on each card. A single head is on every one."""
        window = self.window_layers * self.window_heads * self.window_width * min(tokens, 1024)
        return (4.0 * (self.layers * self.heads * self.width * tokens + window) + self.states) / min(cards, self.heads)


def delta_nets(layers: int, heads: int) -> float:
    """Bytes of two states of Qwen 3.5's linear layers: a matrix of 128 x 128 in 32 bits for each head, and three inputs of a
    convolution over these heads and 2 x 16 others, in 16 bits."""
    return 2.0 * layers * 128 * (heads * 128 * 4 + 3 * (heads + 2 * 16) * 2)


ATTENTION = {
    "qwen3-vl-4b": Attention(36, 8, 128),
    "small-24gb": Attention(36, 8, 128),
    "qwen3-vl-30b-a3b": Attention(48, 4, 128),
    "mistral-small-3.2": Attention(40, 8, 128),
    "gemma3-27b": Attention(10, 16, 128, window_layers=52, window_heads=16, window_width=128),
    "gemma4-31b": Attention(10, 4, 512, window_layers=50, window_heads=16, window_width=256),
    "gemma4-26b-a4b": Attention(5, 2, 512, window_layers=25, window_heads=8, window_width=256),
    "qwen3.5-9b": Attention(8, 4, 256, states=delta_nets(24, 32)),
    "qwen3.5-27b": Attention(16, 4, 256, states=delta_nets(48, 48)),
    "qwen3.5-35b-a3b": Attention(10, 2, 256, states=delta_nets(30, 32)),
    "glm-4.6v-flash": Attention(40, 2, 128),
    "glm-4.6v": Attention(46, 8, 128),
    # A latent of 256 + 64 numbers for all heads, in place of a key and a value of 160 each.
    "mistral-small-4": Attention(36, 1, 160),
}
PAIRS = ("glm-4.6v", "mistral-small-4")
"""Backbones that need two cards."""
SINGLE = tuple(name for name in ATTENTION if name not in PAIRS)
EIGHT_BITS = PAIRS
"""Backbones whose files have 8 bits a parameter."""
PARAMETERS = {
    "qwen3-vl-4b": 4.44,
    "small-24gb": 8.77,
    "qwen3-vl-30b-a3b": 31.1,
    "mistral-small-3.2": 24.0,
    "gemma3-27b": 27.4,
    "gemma4-31b": 31.3,
    "gemma4-26b-a4b": 25.8,
    "qwen3.5-9b": 9.41,
    "qwen3.5-27b": 27.4,
    "qwen3.5-35b-a3b": 35.1,
    "glm-4.6v-flash": 10.3,
    "glm-4.6v": 107.7,
    "mistral-small-4": 119.4,
}
"""Billions of parameters of the backbones, as their makers state them; those of Gemma 4 and Qwen 3.5
counted in transformers' classes of these sizes, those of GLM-4.6V and Mistral Small 4 by the sizes in their configs' defaults."""
DIFFUSION = {
    "sd15": {"unet": 0.860, "text": 0.123, "vae": 0.084},
    "pix2pix": {"unet": 0.860, "text": 0.123, "vae": 0.084},
    "flux-dev": {"transformer": 11.9, "t5": 4.76, "text": 0.123, "vae": 0.084},
    "kontext-dev": {"transformer": 11.9, "t5": 4.76, "text": 0.123, "vae": 0.084},
    "sdxl-turbo": {"unet": 2.567, "text": 0.123, "text_2": 0.695, "vae": 0.084},
    "qwen-image": {"transformer": 20.4, "text": 8.29, "vae": 0.127},
    "qwen-image-edit": {"transformer": 20.4, "text": 8.29, "vae": 0.127},
    "qwen-image-2.1": {"transformer": 7.0, "text": 8.77, "vae": 0.4},
}
"""Billions of parameters."""

MACHINES = {
    "one-24gb": (24e9, ("qwen3-vl-4b",), "sd15", "pix2pix"),
    "one-80gb": (80e9, ("small-24gb",), "flux-dev", "kontext-dev"),
    "eight-gpus": (80e9, SINGLE, "flux-dev", "kontext-dev"),
    "many-nodes": (80e9, SINGLE, "flux-dev", "kontext-dev"),
    "eight-gpus-pairs": (80e9, PAIRS, "qwen-image", "qwen-image-edit"),
}
"""Bytes of a card; the backbones that a replica has to hold; generator; editor."""

HELD = [(machine, backbone) for machine, (_, backbones, _, _) in MACHINES.items() for backbone in backbones]


def config(*names: str) -> Config:
    files = [str(REPOSITORY / "configs" / f"{name}.yaml") for name in names]
    return load(["name=x", "units=all", "target.name=t", "target.kind=closed_form", *files])


def backbone_bytes(config: Config, name: str) -> float:
    """Returns what a replica of the backbone needs on each card, with an explicit KV cache or one for one conversation."""
    cards = config.backbone.tensor_parallel
    in_eight_bits = name in EIGHT_BITS or config.backbone.arguments.get("quantization") == "fp8"
    weights = PARAMETERS[name] * 1e9 * (1 if in_eight_bits else BYTES[config.backbone.dtype]) / cards
    conversation = ATTENTION[name].cache_bytes(config.backbone.context_tokens, cards)
    explicit = config.backbone.kv_cache_gb * 2**30
    assert not explicit or explicit >= conversation, "the KV cache holds one conversation"
    return weights + (explicit or conversation) + WORKING


def diffusion_bytes(config: Config, role: str, name: str) -> float:
    """Returns what a replica of the generator or the editor needs on its card."""
    settings = getattr(config, role)
    quantized = {"transformer", "t5"} if settings.quantize == "nf4" else set[str]()
    return WORKING + sum(count * 1e9 * (NF4 if part in quantized else 2) for part, count in DIFFUSION[name].items())


@pytest.mark.parametrize(("machine", "backbone"), HELD)
def test_each_replica_fits_its_part_of_a_card(machine: str, backbone: str):
    card, _, generator, editor = MACHINES[machine]
    made = config(f"machine/{machine}", f"models/{backbone}", f"models/{generator}", f"models/{editor}")
    wanted = {
        "backbone": backbone_bytes(made, backbone),
        "generator": diffusion_bytes(made, "generator", generator),
        "editor": diffusion_bytes(made, "editor", editor),
        "target": TARGET_BYTES + WORKING,
    }
    for role in POOLS:
        share = getattr(made.pools, role).num_gpus / (made.backbone.tensor_parallel if role == "backbone" else 1)
        usable = made.backbone.memory_fraction if role == "backbone" and not made.backbone.kv_cache_gb else 1.0
        assert wanted[role] <= share * card * usable, (role, wanted[role], share * card * usable)


@pytest.mark.parametrize(("machine", "cards"), [("one-24gb", 1), ("one-80gb", 1), ("eight-gpus", 3)])
def test_models_that_share_a_card_have_an_explicit_kv_cache(machine: str, cards: int):
    made = config(f"machine/{machine}", f"models/{MACHINES[machine][1][0]}")
    pools = made.pools
    assert 0 < pools.backbone.num_gpus < 1 and made.backbone.kv_cache_gb > 0
    assert sum(getattr(pools, role).num_gpus for role in POOLS) <= cards + 1e-9


@pytest.mark.parametrize(
    ("name", "share", "card"), [("sdxl-turbo", 0.4, 24e9), ("qwen-image-2.1", 0.5, 80e9), ("qwen-image", 0.95, 80e9)]
)
def test_generators_that_are_alone_on_their_card_fit_a_share_of_it(name: str, share: float, card: float):
    assert diffusion_bytes(config(f"models/{name}"), "generator", name) <= share * card


@pytest.mark.parametrize("name", ["small-24gb", "qwen3.5-9b"])
def test_the_small_backbones_fit_a_card_of_24_gb_that_they_have_to_themselves(name: str):
    made = config(f"models/{name}")
    assert backbone_bytes(made, name) <= 24e9 * made.backbone.memory_fraction


def test_every_shipped_backbone_is_checked():
    for path in (REPOSITORY / "configs/models").glob("*.yaml"):
        backbone = config(f"models/{path.stem}").backbone
        if backbone.kind == "vllm":
            assert path.stem in ATTENTION.keys() & PARAMETERS.keys(), path.stem
