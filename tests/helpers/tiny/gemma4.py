"""A Gemma 4 of random weights on disk, small enough for a test: windows and global layers with heads of another width, keys
that are values, and images of as many tokens as their shape asks for."""

from pathlib import Path

import torch
from transformers import (
    Gemma4AudioFeatureExtractor,
    Gemma4Config,
    Gemma4ForConditionalGeneration,
    Gemma4ImageProcessor,
    Gemma4Processor,
    Gemma4VideoProcessor,
    PreTrainedTokenizerFast,
)

from tests.helpers.tiny.letters import CHARACTERS, letters

END = "<turn|>"
NAMED = {
    "sot_token": "<|turn>", "eot_token": END, "soc_token": "<|channel>", "eoc_token": "<channel|>", "think_token": "<|think|>",
    "boi_token": "<|image>", "eoi_token": "<image|>", "image_token": "<|image|>",
    "boa_token": "<|audio>", "eoa_token": "<audio|>", "audio_token": "<|audio|>",
}  # fmt: skip
SPECIAL = ["<pad>", "<eos>", "<bos>", "<unk>", "<|video|>", *NAMED.values()]

TEMPLATE = """{{ bos_token }}{% set thinks = enable_thinking is defined and enable_thinking %}\
{% if thinks and messages[0]['role'] != 'system' %}<|turn>system
<|think|>
<turn|>
{% endif %}{% for message in messages %}<|turn>{{ 'model' if message['role'] == 'assistant' else message['role'] }}
{% if loop.first and thinks and message['role'] == 'system' %}<|think|>
{% endif %}{% if message['content'] is string %}{{ message['content'] }}{% else %}{% for part in message['content'] %}\
{% if part['type'] == 'image' %}<|image|>{% else %}{{ part['text'] }}{% endif %}{% endfor %}{% endif %}<turn|>
{% endfor %}{% if add_generation_prompt %}<|turn>model
{% if not thinks %}<|channel>thought
<channel|>{% endif %}{% endif %}"""
"""The published template's marks: without `enable_thinking` the prompt ends with an empty thought, which earlier turns do not
have; with it, the system turn asks for thoughts."""

TOKENS = 70
"""The most tokens of an image: the smallest that the processor accepts."""


def build(folder: Path, *, experts: int = 0) -> Path:
    """Everything that a hub folder of such a model holds. `experts`: of a mixture; 0 for a dense model."""
    tokenizer = letters(
        SPECIAL, TEMPLATE, named=NAMED, bos_token="<bos>", eos_token="<eos>", pad_token="<pad>", unk_token="<unk>"
    )
    Gemma4Processor(
        Gemma4AudioFeatureExtractor(),
        Gemma4ImageProcessor(max_soft_tokens=TOKENS),
        tokenizer,
        Gemma4VideoProcessor(max_soft_tokens=TOKENS),
        chat_template=TEMPLATE,
        image_seq_length=TOKENS,
    ).save_pretrained(folder)
    config = _config(tokenizer, experts)
    torch.manual_seed(0)
    model = Gemma4ForConditionalGeneration(config).float()
    with torch.no_grad():
        _speak(model, tokenizer)
    model.save_pretrained(folder)
    return folder


def _config(tokenizer: PreTrainedTokenizerFast, experts: int) -> Gemma4Config:
    mixture = {"enable_moe_block": True, "num_experts": experts, "top_k_experts": 2, "moe_intermediate_size": 32}
    text = {
        "vocab_size": len(tokenizer),
        "vocab_size_per_layer_input": len(tokenizer),
        "hidden_size": 64,
        "intermediate_size": 128,
        "num_hidden_layers": 6,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "num_global_key_value_heads": 1,
        "head_dim": 32,
        "global_head_dim": 64,
        "attention_k_eq_v": True,
        "hidden_size_per_layer_input": 0,
        "sliding_window": 512,
        "max_position_embeddings": 16384,
        "initializer_range": 0.12,
        "final_logit_softcapping": 30.0,
        "use_bidirectional_attention": "vision",
        "pad_token_id": tokenizer.pad_token_id,
        "bos_token_id": tokenizer.bos_token_id,
        "eos_token_id": tokenizer.eos_token_id,
        **(mixture if experts else {}),
    }
    vision = {
        "hidden_size": 64,
        "intermediate_size": 128,
        "num_hidden_layers": 2,
        "num_attention_heads": 2,
        "num_key_value_heads": 2,
        "head_dim": 32,
        "position_embedding_size": 256,
        "standardize": True,
        "default_output_length": TOKENS,
    }
    ids = {
        "boi_token_id": NAMED["boi_token"],
        "eoi_token_id": NAMED["eoi_token"],
        "image_token_id": NAMED["image_token"],
        "boa_token_id": NAMED["boa_token"],
        "eoa_token_index": NAMED["eoa_token"],
        "audio_token_id": NAMED["audio_token"],
        "video_token_id": "<|video|>",
    }
    return Gemma4Config(
        text_config=text,
        vision_config=vision,
        audio_config=None,
        dtype="float32",
        # Without <turn|>: a host has to find out by itself where a turn of this template ends.
        eos_token_id=tokenizer.eos_token_id,
        **{name: tokenizer.convert_tokens_to_ids(token) for name, token in ids.items()},
    )


def _speak(model: Gemma4ForConditionalGeneration, tokenizer: PreTrainedTokenizerFast) -> None:
    """Makes the first hidden dimension say which tokens may be chosen. Input and output embeddings are one matrix, so
    the last tokens of a prompt have a little of it, too."""
    embedding = model.get_input_embeddings().weight
    embedding[:, 0] = -2.0
    embedding[tokenizer.convert_tokens_to_ids(["\n", "<channel|>"]), 0] = 0.5
    embedding[tokenizer.convert_tokens_to_ids([*CHARACTERS, END]), 0] = 2.0
    for name, weight in model.model.language_model.named_parameters():
        if name.endswith(("q_proj.weight", "k_proj.weight", "v_proj.weight", "gate_proj.weight", "up_proj.weight")):
            weight[:, 0] = 0.0
        if name.endswith(("o_proj.weight", "down_proj.weight")):
            weight[0] = 0.0
        if name.endswith("experts.down_proj"):
            weight[:, 0] = 0.0
