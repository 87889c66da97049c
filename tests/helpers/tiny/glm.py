"""A GLM-4.6V of random weights on disk, dense (as Flash) or a mixture of experts, small enough for a test."""

from pathlib import Path

import torch
from transformers import (
    Glm4vConfig,
    Glm4vForConditionalGeneration,
    Glm4vMoeConfig,
    Glm4vMoeForConditionalGeneration,
    Glm46VImageProcessor,
    Glm46VProcessor,
    Glm46VVideoProcessor,
    PreTrainedTokenizerFast,
)

from tests.helpers.tiny.letters import CHARACTERS, letters
from tests.helpers.tiny.seeing import processor

END = "<|user|>"
"""No token of its own ends a turn: the mark of the next one does."""
BOX = ["<|begin_of_box|>", "<|end_of_box|>"]
NAMED = {
    "image_token": "<|image|>",
    "video_token": "<|video|>",
    "image_start_token": "<|begin_of_image|>",
    "image_end_token": "<|end_of_image|>",
    "video_start_token": "<|begin_of_video|>",
    "video_end_token": "<|end_of_video|>",
}
SPECIAL = ["<|endoftext|>", "[gMASK]", "<sop>", "<|system|>", END, "<|assistant|>", *BOX, *NAMED.values()]
THOUGHT = ["<think>", "</think>"]

TEMPLATE = """[gMASK]<sop>{% set thinks = not (enable_thinking is defined and not enable_thinking) %}\
{% for message in messages %}<|{{ message['role'] }}|>
{% if message['role'] == 'assistant' %}<think></think>
{% endif %}{% if message['content'] is string %}{{ message['content'] }}{% else %}{% for part in message['content'] %}\
{% if part['type'] == 'image' %}<|begin_of_image|><|image|><|end_of_image|>{% else %}{{ part['text'] }}{% endif %}\
{% endfor %}{% endif %}{% if message['role'] == 'user' and not thinks %}/nothink{% endif %}\
{% endfor %}{% if add_generation_prompt %}<|assistant|>{% if not thinks %}
<think></think>{% endif %}{% endif %}"""
"""The published template's marks: without reasoning, `/nothink` ends a message of the user and the prompt ends with an empty
thought; with it, the prompt ends with the role, and the model opens its thought itself. Earlier turns have an empty one."""

PATCH, MERGED, SMALLEST, LARGEST = 14, 2, 12544, 62720
"""Pixels of a side of a patch; patches of a side that become one token; limits of two images' area in pixels."""


def build(folder: Path, *, experts: int = 0, hides_thoughts: bool = False) -> Path:
    """Everything that a hub folder of such a model holds.

    Args:
        experts: Of a mixture; 0 for a dense model.
        hides_thoughts: Whether the marks of thoughts are special tokens, too.
    """
    tokenizer = letters(
        [*SPECIAL, *(THOUGHT if hides_thoughts else [])], TEMPLATE, named=NAMED, plain=[] if hides_thoughts else THOUGHT,
        eos_token="<|endoftext|>", pad_token="<|endoftext|>", unk_token="<|endoftext|>",
    )  # fmt: skip
    processor(
        Glm46VProcessor, Glm46VImageProcessor, Glm46VVideoProcessor, tokenizer, TEMPLATE,
        patch=PATCH, merged=MERGED, area=(SMALLEST, LARGEST),
    ).save_pretrained(folder)  # fmt: skip
    config = _config(tokenizer, experts)
    torch.manual_seed(0)
    model = (Glm4vMoeForConditionalGeneration if experts else Glm4vForConditionalGeneration)(config).float()
    with torch.no_grad():
        _speak(model, tokenizer, end=22.0 if experts else 20.0)
    model.save_pretrained(folder)
    return folder


def _config(tokenizer: PreTrainedTokenizerFast, experts: int) -> Glm4vConfig | Glm4vMoeConfig:
    mixture = {
        "moe_intermediate_size": 32, "num_experts_per_tok": 2, "n_routed_experts": experts, "n_shared_experts": 1,
        "first_k_dense_replace": 1, "head_dim": 32,
        "use_qk_norm": False,  # vLLM reads it, and transformers has no such field
    }  # fmt: skip
    text = {
        "vocab_size": len(tokenizer),
        "hidden_size": 64,
        "intermediate_size": 128,
        "num_hidden_layers": 3,
        "num_attention_heads": 2,
        "num_key_value_heads": 1,
        "max_position_embeddings": 16384,
        "initializer_range": 0.12,
        "eos_token_id": tokenizer.eos_token_id,
        "pad_token_id": tokenizer.pad_token_id,
        "rope_parameters": {
            "rope_type": "default",
            "rope_theta": 500_000.0,
            "partial_rotary_factor": 0.5,
            "mrope_section": [2, 3, 3],
        },
        **(mixture if experts else {}),
    }
    vision = {
        "depth": 2,
        "hidden_size": 64,
        "intermediate_size": 128,
        "num_heads": 2,
        "image_size": 112,
        "patch_size": PATCH,
        "spatial_merge_size": MERGED,
        "out_hidden_size": 64,
        "initializer_range": 0.12,
    }
    ids = {
        "image_token_id": NAMED["image_token"],
        "video_token_id": NAMED["video_token"],
        "image_start_token_id": NAMED["image_start_token"],
        "image_end_token_id": NAMED["image_end_token"],
        "video_start_token_id": NAMED["video_start_token"],
        "video_end_token_id": NAMED["video_end_token"],
    }
    return (Glm4vMoeConfig if experts else Glm4vConfig)(
        text_config=text,
        vision_config=vision,
        dtype="float32",
        **{name: tokenizer.convert_tokens_to_ids(token) for name, token in ids.items()},
    )


def _speak(model: torch.nn.Module, tokenizer: PreTrainedTokenizerFast, end: float) -> None:
    """Makes the first hidden dimension the same at all positions, and lets it forbid everything but text, boxes and the end.

    Args:
        end: How much it speaks for the end, in comparison with 20 for text. The mixture would seldom end by itself.
    """
    model.model.language_model.embed_tokens.weight[:, 0] = 1.0
    head = model.lm_head.weight
    head[:, 0] = -20.0
    head[tokenizer.convert_tokens_to_ids([*CHARACTERS, *BOX]), 0] = 20.0
    head[tokenizer.convert_tokens_to_ids(END), 0] = end
    for name, weight in model.model.language_model.named_parameters():
        if name.endswith(("o_proj.weight", "down_proj.weight")):
            weight[0] = 0.0
        if name.endswith("experts.down_proj"):
            weight[:, 0] = 0.0
        # GLM-4 normalizes what a layer adds.
        if name.endswith(("post_self_attn_layernorm.weight", "post_mlp_layernorm.weight")):
            weight[0] = 0.0
    merger = model.model.visual.merger
    merger.down_proj.weight[0] = 0.0
