"""A Gemma 3 of random weights on disk, small enough for a test: tokenizer, chat template, image processor and model.

Its weights never choose anything but printable ASCII characters and the end of a turn.
"""

from dataclasses import dataclass, replace
from pathlib import Path

import torch
from safetensors.torch import save_file
from transformers import (
    Gemma3Config,
    Gemma3ForConditionalGeneration,
    Gemma3ImageProcessor,
    Gemma3Processor,
    Gemma3TextConfig,
    PreTrainedTokenizerFast,
    SiglipVisionConfig,
)

from tests.helpers.tiny.letters import CHARACTERS, letters

TEMPLATE = """{{ bos_token }}{% if messages[0]['role'] == 'system' %}{% set opening = messages[0]['content'] %}\
{% if opening is not string %}{% set opening = opening[0]['text'] %}{% endif %}\
{% set opening = 'This is a day in spring, and there is much to find out.\\n' + opening + '\\n\\n' %}\
{% set messages = messages[1:] %}{% else %}{% set opening = '' %}{% endif %}\
{% for message in messages %}\
{% if (message['role'] == 'user') != (loop.index0 % 2 == 0) %}{{ raise_exception('roles must alternate') }}{% endif %}\
<start_of_turn>{{ 'model' if message['role'] == 'assistant' else message['role'] }}
{% if loop.first %}{{ opening }}{% endif %}\
{% if message['content'] is string %}{{ message['content'] }}{% else %}{% for part in message['content'] %}\
{% if part['type'] == 'image' %}<start_of_image>{% else %}{{ part['text'] }}{% endif %}\
{% endfor %}{% endif %}<end_of_turn>
{% endfor %}{% if add_generation_prompt %}<start_of_turn>model
{% endif %}"""
"""As strict as Gemma's own: the system message becomes the head of the first turn, and roles have to alternate. As
Llama's does, it adds a sentence of its own."""

IMAGE_TOKENS = {"boi_token": "<start_of_image>", "eoi_token": "<end_of_image>", "image_token": "<image_soft_token>"}
SPECIAL = ["<pad>", "<eos>", "<bos>", "<unk>", "<start_of_turn>", "<end_of_turn>", *IMAGE_TOKENS.values()]
END = "<end_of_turn>"


@dataclass(frozen=True, slots=True, kw_only=True)
class Size:
    """image: pixels per side; tokens_per_image: a square number; vocabulary: filled up with tokens no text has."""

    hidden: int = 64
    intermediate: int = 128
    layers: int = 2
    heads: int = 4
    key_value_heads: int = 2
    head: int = 32
    window: int = 512
    positions: int = 8192
    vocabulary: int = 0
    vision_hidden: int = 64
    vision_intermediate: int = 128
    vision_layers: int = 2
    vision_heads: int = 2
    image: int = 56
    patch: int = 14
    tokens_per_image: int = 4


GEMMA_3_4B = Size(
    hidden=2560,
    intermediate=10240,
    layers=34,
    heads=8,
    key_value_heads=4,
    head=256,
    window=1024,
    positions=131072,
    vocabulary=262144,
    vision_hidden=1152,
    vision_intermediate=4304,
    vision_layers=27,
    vision_heads=16,
    image=896,
    patch=14,
    tokens_per_image=256,
)
GEMMA_3_27B = replace(GEMMA_3_4B, hidden=5376, intermediate=21504, layers=62, heads=32, key_value_heads=16, head=128)
"""The architectures of the published models, which differ in the text model alone."""


def build(folder: Path, size: Size | None = None) -> Path:
    """Everything that a hub folder of such a model holds."""
    size = size or Size()
    processor, config = _without_weights(folder, size)
    torch.manual_seed(0)
    model = Gemma3ForConditionalGeneration(config).float()
    with torch.no_grad():
        _speak(model, processor.tokenizer)
    model.generation_config.save_pretrained(folder)
    # As published checkpoints name them; transformers 5 itself would write other names, which vLLM does not know.
    names = {"model.language_model.": "language_model.model.", "model.vision_tower.": "vision_tower.vision_model."}
    names |= {"model.multi_modal_projector.": "multi_modal_projector."}
    weights = {
        next((new + name.removeprefix(old) for old, new in names.items() if name.startswith(old)), name): value
        for name, value in model.state_dict().items()
        if name != "lm_head.weight"
    }
    save_file(
        {name: value.contiguous() for name, value in weights.items()}, folder / "model.safetensors", {"format": "pt"}
    )
    return folder


def build_without_weights(folder: Path, size: Size) -> Path:
    """For an engine that fills in weights of its own."""
    _without_weights(folder, size)
    return folder


def _without_weights(folder: Path, size: Size) -> tuple[Gemma3Processor, Gemma3Config]:
    tokenizer = _tokenizer(size.vocabulary)
    image_processor = Gemma3ImageProcessor(size={"height": size.image, "width": size.image})
    processor = Gemma3Processor(
        image_processor=image_processor,
        tokenizer=tokenizer,
        chat_template=TEMPLATE,
        image_seq_length=size.tokens_per_image,
    )
    processor.save_pretrained(folder)
    config = _config(tokenizer, size)
    config.save_pretrained(folder)
    return processor, config


def _tokenizer(vocabulary: int) -> PreTrainedTokenizerFast:
    return letters(
        SPECIAL,
        TEMPLATE,
        named=IMAGE_TOKENS,
        vocabulary=vocabulary,
        bos_token="<bos>",
        eos_token="<eos>",
        pad_token="<pad>",
        unk_token="<unk>",
    )


def _config(tokenizer: PreTrainedTokenizerFast, size: Size) -> Gemma3Config:
    text = Gemma3TextConfig(
        vocab_size=len(tokenizer),
        hidden_size=size.hidden,
        intermediate_size=size.intermediate,
        num_hidden_layers=size.layers,
        num_attention_heads=size.heads,
        num_key_value_heads=size.key_value_heads,
        head_dim=size.head,
        query_pre_attn_scalar=size.head,
        sliding_window=size.window,
        max_position_embeddings=size.positions,
        initializer_range=0.12,
        pad_token_id=tokenizer.pad_token_id,
        bos_token_id=tokenizer.bos_token_id,
        eos_token_id=tokenizer.eos_token_id,
    )
    vision = SiglipVisionConfig(
        hidden_size=size.vision_hidden,
        intermediate_size=size.vision_intermediate,
        num_hidden_layers=size.vision_layers,
        num_attention_heads=size.vision_heads,
        image_size=size.image,
        patch_size=size.patch,
        vision_use_head=False,
    )
    return Gemma3Config(
        text_config=text,
        vision_config=vision,
        mm_tokens_per_image=size.tokens_per_image,
        boi_token_index=tokenizer.convert_tokens_to_ids("<start_of_image>"),
        eoi_token_index=tokenizer.convert_tokens_to_ids("<end_of_image>"),
        image_token_index=tokenizer.convert_tokens_to_ids("<image_soft_token>"),
        # Without <end_of_turn>: a host has to find out by itself where a turn of this template ends.
        eos_token_id=tokenizer.eos_token_id,
        architectures=["Gemma3ForConditionalGeneration"],
        dtype="float32",
    )


def _speak(model: Gemma3ForConditionalGeneration, tokenizer: PreTrainedTokenizerFast) -> None:
    """Makes the first hidden dimension say which tokens may be chosen: input and output embeddings are one matrix, so
    that whatever text was read last, tokens with a large first component are likely. The layers leave it alone:
    being alike for all texts, it would hide what they differ in."""
    embedding = model.get_input_embeddings().weight
    embedding[:, 0] = -2.0
    embedding[tokenizer.convert_tokens_to_ids("\n"), 0] = 0.5
    embedding[tokenizer.convert_tokens_to_ids([*CHARACTERS, END]), 0] = 2.0
    # The template writes a break before an answer; no answer is to end there.
    embedding[tokenizer.convert_tokens_to_ids(END), 1:] = -embedding[tokenizer.convert_tokens_to_ids("\n"), 1:]
    for name, weight in model.model.language_model.named_parameters():
        if name.endswith(("q_proj.weight", "k_proj.weight", "v_proj.weight", "gate_proj.weight", "up_proj.weight")):
            weight[:, 0] = 0.0
        if name.endswith(("o_proj.weight", "down_proj.weight")):
            weight[0] = 0.0
    # Zeros by default: the model would not see its images.
    model.model.multi_modal_projector.mm_input_projection_weight.normal_(std=0.2)
