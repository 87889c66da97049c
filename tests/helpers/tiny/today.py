"""FLUX.2 klein, Z-Image, Qwen-Image, its editor and Qwen-Image 2.1, tiny, with seeded random weights."""

from pathlib import Path
from typing import Any

import torch
from diffusers import (
    AutoencoderKLFlux2,
    AutoencoderKLQwenImage,
    AutoencoderKLQwenImage21,
    FlowMatchEulerDiscreteScheduler,
    Flux2KleinPipeline,
    Flux2Transformer2DModel,
    QwenImage21Pipeline,
    QwenImage21Transformer2DModel,
    QwenImageEditPlusPipeline,
    QwenImagePipeline,
    QwenImageTransformer2DModel,
    ZImagePipeline,
    ZImageTransformer2DModel,
)
from tokenizers import pre_tokenizers
from transformers import (
    Qwen2_5_VLConfig,
    Qwen2_5_VLForConditionalGeneration,
    Qwen2Tokenizer,
    Qwen2VLImageProcessor,
    Qwen2VLProcessor,
    Qwen2VLVideoProcessor,
    Qwen3Config,
    Qwen3ForCausalLM,
    Qwen3VLConfig,
    Qwen3VLForConditionalGeneration,
    Qwen3VLProcessor,
    Qwen3VLVideoProcessor,
)

from tests.helpers.tiny.flux import AMPLIFIED, WIDTH, autoencoder
from tests.helpers.tiny.seeing import processor

# The marks of Qwen's template, which diffusers calls with `enable_thinking`.
TEMPLATE = """{%- for message in messages -%}<|im_start|>{{ message['role'] }}
{% if message['content'] is string %}{{ message['content'] }}{% else %}{{ message['content'][0]['text'] }}{% endif %}<|im_end|>
{% endfor -%}{%- if add_generation_prompt -%}<|im_start|>assistant
{%- if not enable_thinking %}
<think>

</think>

{% endif -%}{%- endif -%}"""

WORDS = "the image by detailing color shape size texture quantity text spatial relationships of objects and background".split()


def save_klein(folder: Path, *, distilled: bool = True) -> Path:
    torch.manual_seed(0)
    transformer = Flux2Transformer2DModel(
        in_channels=16,
        num_layers=1,
        num_single_layers=1,
        attention_head_dim=16,
        num_attention_heads=4,
        joint_attention_dim=3 * WIDTH,
        axes_dims_rope=(4, 4, 4, 4),
        guidance_embeds=False,
    )
    for block in (*transformer.transformer_blocks, *transformer.single_transformer_blocks):
        for parameter in block.attn.parameters():
            parameter.data *= AMPLIFIED
    transformer.proj_out.weight.data *= AMPLIFIED
    Flux2KleinPipeline(
        scheduler=FlowMatchEulerDiscreteScheduler(use_dynamic_shifting=True),
        vae=AutoencoderKLFlux2(
            block_out_channels=(4, 8, 8, 8), layers_per_block=1, latent_channels=4, norm_num_groups=1, sample_size=32
        ),
        text_encoder=Qwen3ForCausalLM(language_config(28)),
        tokenizer=tokenizer(),
        transformer=transformer,
        is_distilled=distilled,
    ).save_pretrained(folder)
    return folder


def save_z_image(folder: Path) -> Path:
    torch.manual_seed(0)
    transformer = ZImageTransformer2DModel(
        dim=64, n_layers=1, n_refiner_layers=1, n_heads=4, n_kv_heads=4, cap_feat_dim=WIDTH, axes_dims=[4, 6, 6]
    )
    for parameter in transformer.parameters():
        parameter.data = torch.randn_like(parameter) * 0.15 if parameter.ndim > 1 else parameter.data
    ZImagePipeline(
        scheduler=FlowMatchEulerDiscreteScheduler(shift=3.0),
        vae=autoencoder(latent_channels=16),
        text_encoder=Qwen3ForCausalLM(language_config(3)).model,
        tokenizer=tokenizer(),
        transformer=transformer,
    ).save_pretrained(folder)
    return folder


def save_qwen_image(folder: Path) -> Path:
    torch.manual_seed(0)
    QwenImagePipeline(**_qwen_image(tokenizer())).save_pretrained(folder)
    return folder


def save_qwen_image_edit(folder: Path) -> Path:
    torch.manual_seed(0)
    tokens = tokenizer()
    processor = Qwen2VLProcessor(Qwen2VLImageProcessor(), tokens, Qwen2VLVideoProcessor(), chat_template=TEMPLATE)
    QwenImageEditPlusPipeline(processor=processor, **_qwen_image(tokens, 2)).save_pretrained(folder)
    return folder


def save_qwen_image_2_1(folder: Path, *, sigmas: list[float] | None = None) -> Path:
    """`sigmas`: those at which a distilled model draws."""
    torch.manual_seed(0)
    tokens = tokenizer()
    text = language_config(2).to_dict() | {
        "model_type": "qwen3_vl_text",
        "rope_parameters": {"rope_type": "default", "mrope_section": [2, 3, 3], "mrope_interleaved": True},
    }
    vision = {
        "depth": 1, "hidden_size": 16, "intermediate_size": 16, "num_heads": 2, "out_hidden_size": WIDTH,
        "patch_size": 16, "num_position_embeddings": 16, "deepstack_visual_indexes": [],
    }  # fmt: skip
    # One latent for 16 x 16 pixels, with an alpha channel, as the published one.
    vae = AutoencoderKLQwenImage21(base_dim=4, decoder_base_dim=4, z_dim=8, dim_mult=[1, 1, 2, 2, 2], num_res_blocks=1,
                                   latents_mean=[0.0] * 8, latents_std=[1.0] * 8)  # fmt: skip
    transformer = QwenImage21Transformer2DModel(
        in_channels=8, out_channels=8, num_layers=1, attention_head_dim=16, num_attention_heads=4, context_in_dim=WIDTH,
        axes_dims_rope=(4, 6, 6),
    )  # fmt: skip
    for parameter in transformer.transformer_blocks.parameters():
        parameter.data *= AMPLIFIED
    transformer.proj_out.weight.data *= AMPLIFIED
    QwenImage21Pipeline(
        scheduler=FlowMatchEulerDiscreteScheduler(use_dynamic_shifting=True),
        vae=vae,
        text_encoder=Qwen3VLForConditionalGeneration(
            Qwen3VLConfig(text_config=text, vision_config=vision, **_ids(tokens))
        ),
        processor=processor(
            Qwen3VLProcessor,
            Qwen2VLImageProcessor,
            Qwen3VLVideoProcessor,
            tokens,
            TEMPLATE,
            patch=16,
            merged=2,
            area=(65536, 16777216),
        ),
        transformer=transformer,
        sample_sigmas=sigmas,
    ).save_pretrained(folder)
    return folder


def _qwen_image(tokens: Qwen2Tokenizer, channels: int = 8) -> dict[str, Any]:
    """The parts that Qwen-Image and its editor share. `channels`: of the first layer that reads and writes images."""
    transformer = QwenImageTransformer2DModel(
        in_channels=64,
        out_channels=16,
        num_layers=1,
        attention_head_dim=16,
        num_attention_heads=4,
        joint_attention_dim=WIDTH,
        axes_dims_rope=(4, 6, 6),
    )
    for parameter in transformer.transformer_blocks.parameters():
        parameter.data *= AMPLIFIED
    transformer.proj_out.weight.data *= AMPLIFIED
    text = language_config(2).to_dict() | {"rope_parameters": {"rope_type": "default", "mrope_section": [2, 3, 3]}}
    vision = {
        "depth": 1, "hidden_size": 16, "intermediate_size": 16, "num_heads": 2, "out_hidden_size": WIDTH, "patch_size": 14,
    }  # fmt: skip
    return {
        "scheduler": FlowMatchEulerDiscreteScheduler(use_dynamic_shifting=True),
        "vae": AutoencoderKLQwenImage(base_dim=channels, num_res_blocks=1),
        "text_encoder": Qwen2_5_VLForConditionalGeneration(
            Qwen2_5_VLConfig(
                text_config={**text, "model_type": "qwen2_5_vl_text"}, vision_config=vision, **_ids(tokens)
            )
        ),
        "tokenizer": tokens,
        "transformer": transformer,
    }


def _ids(tokens: Qwen2Tokenizer) -> dict[str, int]:
    names = {
        "image_token_id": "<|image_pad|>", "video_token_id": "<|video_pad|>",
        "vision_start_token_id": "<|vision_start|>", "vision_end_token_id": "<|vision_end|>",
    }  # fmt: skip
    return {name: tokens.convert_tokens_to_ids(token) for name, token in names.items()}


def language_config(layers: int) -> Qwen3Config:
    return Qwen3Config(
        vocab_size=320,
        hidden_size=WIDTH,
        intermediate_size=WIDTH,
        num_hidden_layers=layers,
        num_attention_heads=4,
        num_key_value_heads=4,
        head_dim=16,
    )


def tokenizer() -> Qwen2Tokenizer:
    """A token per byte, and one for each mark and word of the templates: diffusers drops the first 34 tokens of Qwen-Image's."""
    seen = ["<|vision_start|>", "<|vision_end|>", "<|image_pad|>", "<|video_pad|>"]
    marks = ["<|endoftext|>", "<|im_start|>", "<|im_end|>", *seen]
    names = [*sorted(pre_tokenizers.ByteLevel.alphabet()), *marks]
    made: Any = Qwen2Tokenizer(
        vocab={name: number for number, name in enumerate(names)},
        merges=[],
        eos_token="<|im_end|>",
        pad_token="<|endoftext|>",
        unk_token=None,
        additional_special_tokens=["<|im_start|>", *seen],
    )
    made.add_tokens(["system", "user", "Describe", *(f" {word}" for word in WORDS)])
    made.chat_template = TEMPLATE
    return made
