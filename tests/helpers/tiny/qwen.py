"""A Qwen 3.5 of random weights on disk, dense or a mixture of experts, small enough for a test."""

from pathlib import Path

import torch
from transformers import (
    PreTrainedTokenizerFast,
    Qwen2VLImageProcessor,
    Qwen3_5Config,
    Qwen3_5ForConditionalGeneration,
    Qwen3_5MoeConfig,
    Qwen3_5MoeForConditionalGeneration,
    Qwen3VLProcessor,
    Qwen3VLVideoProcessor,
)

from tests.helpers.tiny.letters import CHARACTERS, letters
from tests.helpers.tiny.seeing import processor

END = "<|im_end|>"
NAMED = {
    "image_token": "<|image_pad|>",
    "video_token": "<|video_pad|>",
    "vision_bos_token": "<|vision_start|>",
    "vision_eos_token": "<|vision_end|>",
}
SPECIAL = ["<|endoftext|>", "<|im_start|>", END, *NAMED.values()]

TEMPLATE = """{% for message in messages %}\
{% if message['role'] == 'system' and not loop.first %}{{ raise_exception('system not first') }}{% endif %}\
<|im_start|>{{ message['role'] }}
{% if message['content'] is string %}{{ message['content'] }}{% else %}{% for part in message['content'] %}\
{% if part['type'] == 'image' %}<|vision_start|><|image_pad|><|vision_end|>{% else %}{{ part['text'] }}{% endif %}\
{% endfor %}{% endif %}<|im_end|>
{% endfor %}{% if add_generation_prompt %}<|im_start|>assistant
{% if enable_thinking is defined and enable_thinking is false %}<think>

</think>

{% else %}<think>
{% endif %}{% endif %}"""
"""The published template's marks: it opens the reasoning, or writes an empty one if `enable_thinking` is false, and earlier
turns have none."""

PATCH, MERGED, SMALLEST, LARGEST = 16, 2, 4096, 65536
"""Pixels of a side of a patch; patches of a side that become one token; limits of an image's area in pixels."""


def build(folder: Path, *, experts: int = 0) -> Path:
    """Everything that a hub folder of such a model holds. `experts`: of a mixture; 0 for a dense model."""
    tokenizer = letters(
        SPECIAL, TEMPLATE, named=NAMED, plain=["<think>", "</think>"],
        eos_token=END, pad_token="<|endoftext|>", unk_token="<|endoftext|>",
    )  # fmt: skip
    processor(
        Qwen3VLProcessor, Qwen2VLImageProcessor, Qwen3VLVideoProcessor, tokenizer, TEMPLATE,
        patch=PATCH, merged=MERGED, area=(SMALLEST, LARGEST),
    ).save_pretrained(folder)  # fmt: skip
    config = _config(tokenizer, experts)
    torch.manual_seed(0)
    model = (Qwen3_5MoeForConditionalGeneration if experts else Qwen3_5ForConditionalGeneration)(config).float()
    with torch.no_grad():
        _speak(model, tokenizer)
    model.save_pretrained(folder)
    return folder


def _config(tokenizer: PreTrainedTokenizerFast, experts: int) -> Qwen3_5Config:
    mixture = {
        "num_experts": experts, "num_experts_per_tok": 2, "moe_intermediate_size": 32, "shared_expert_intermediate_size": 32
    }  # fmt: skip
    text = {
        "vocab_size": len(tokenizer),
        "hidden_size": 64,
        "num_hidden_layers": 4,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "head_dim": 32,
        # The width of the published models: vLLM's kernel for CPUs has no narrow one.
        "linear_key_head_dim": 128,
        "linear_value_head_dim": 128,
        "linear_num_key_heads": 1,
        "linear_num_value_heads": 2,
        "max_position_embeddings": 16384,
        "initializer_range": 0.12,
        "eos_token_id": tokenizer.eos_token_id,
        "rope_parameters": {
            "rope_type": "default",
            "rope_theta": 10_000_000,
            "partial_rotary_factor": 0.5,
            "mrope_section": [3, 3, 2],
            "mrope_interleaved": True,
        },
        **(mixture if experts else {"intermediate_size": 128}),
    }
    vision = {
        "depth": 2,
        "hidden_size": 64,
        "intermediate_size": 128,
        "num_heads": 2,
        "patch_size": PATCH,
        "spatial_merge_size": MERGED,
        "out_hidden_size": 64,
        "num_position_embeddings": 64,
        "initializer_range": 0.12,
    }
    ids = {
        "image_token_id": NAMED["image_token"],
        "video_token_id": NAMED["video_token"],
        "vision_start_token_id": NAMED["vision_bos_token"],
        "vision_end_token_id": NAMED["vision_eos_token"],
    }
    return (Qwen3_5MoeConfig if experts else Qwen3_5Config)(
        text_config=text,
        vision_config=vision,
        dtype="float32",
        **{name: tokenizer.convert_tokens_to_ids(token) for name, token in ids.items()},
    )


def _speak(model: torch.nn.Module, tokenizer: PreTrainedTokenizerFast) -> None:
    """Makes the first hidden dimension the same at all positions, and lets it forbid everything but text and the end."""
    model.model.language_model.embed_tokens.weight[:, 0] = 1.0
    head = model.lm_head.weight
    head[:, 0] = -20.0
    head[tokenizer.convert_tokens_to_ids([*CHARACTERS, END]), 0] = 20.0
    for name, weight in model.model.language_model.named_parameters():
        if name.endswith(
            ("o_proj.weight", "out_proj.weight", "mlp.down_proj.weight", "shared_expert.down_proj.weight")
        ):
            weight[0] = 0.0
        if name.endswith("experts.down_proj"):
            weight[:, 0] = 0.0
    merger = model.model.visual.merger.linear_fc2
    merger.weight[0] = 0.0
    merger.bias[0] = 1.0
