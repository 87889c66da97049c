"""Stable Diffusion 1.5, InstructPix2Pix and SDXL-Turbo, tiny, with seeded random weights."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from diffusers import (
    EulerAncestralDiscreteScheduler,
    PNDMScheduler,
    StableDiffusionInstructPix2PixPipeline,
    StableDiffusionPipeline,
    StableDiffusionXLPipeline,
    UNet2DConditionModel,
)
from diffusers.pipelines.stable_diffusion.safety_checker import StableDiffusionSafetyChecker
from transformers import CLIPConfig, CLIPImageProcessor, CLIPTextConfig, CLIPTextModelWithProjection, CLIPVisionConfig

from tests.helpers.tiny.flux import WIDTH, autoencoder, clip_encoder, clip_tokenizer


def save_stable(folder: Path, *, safe: bool = False) -> Path:
    """With a safety checker, as the published model has one, unless all images are `safe`."""
    # The scheduler as it stands in the published model.
    scheduler = PNDMScheduler(
        beta_start=0.00085, beta_end=0.012, beta_schedule="scaled_linear", skip_prk_steps=True, steps_offset=1
    )
    return save(StableDiffusionPipeline, scheduler, 4, folder, safe)


def save_pix2pix(folder: Path, *, safe: bool = False) -> Path:
    # Draws noise at every step, from the picture's own generator.
    scheduler = EulerAncestralDiscreteScheduler(
        beta_start=0.00085, beta_end=0.012, beta_schedule="scaled_linear", timestep_spacing="linspace"
    )
    return save(StableDiffusionInstructPix2PixPipeline, scheduler, 8, folder, safe)


def save_sdxl_turbo(folder: Path) -> Path:
    torch.manual_seed(0)
    tokens = clip_tokenizer(folder)
    text = clip_encoder(tokens).config
    text.projection_dim = WIDTH
    vae = autoencoder(latent_channels=4)
    vae.register_to_config(force_upcast=True)
    StableDiffusionXLPipeline(
        # The scheduler as it stands in the published model.
        scheduler=EulerAncestralDiscreteScheduler(
            beta_start=0.00085, beta_end=0.012, beta_schedule="scaled_linear", timestep_spacing="trailing"
        ),
        vae=vae,
        text_encoder=clip_encoder(tokens),
        text_encoder_2=CLIPTextModelWithProjection(text),
        tokenizer=tokens,
        tokenizer_2=tokens,
        unet=UNet2DConditionModel(
            sample_size=8,
            in_channels=4,
            out_channels=4,
            block_out_channels=(8, 16),
            down_block_types=("DownBlock2D", "CrossAttnDownBlock2D"),
            up_block_types=("CrossAttnUpBlock2D", "UpBlock2D"),
            layers_per_block=1,
            norm_num_groups=4,
            attention_head_dim=(2, 4),
            cross_attention_dim=2 * WIDTH,
            # The sizes of the picture in 6 numbers of 8, and the pooled text.
            addition_embed_type="text_time",
            addition_time_embed_dim=8,
            projection_class_embeddings_input_dim=6 * 8 + WIDTH,
            use_linear_projection=True,
        ),
    ).save_pretrained(folder)
    return folder


def save(pipeline: Callable[..., Any], scheduler: Any, in_channels: int, folder: Path, safe: bool) -> Path:
    torch.manual_seed(0)
    tokens = clip_tokenizer(folder)
    pipeline(
        scheduler=scheduler,
        vae=autoencoder(latent_channels=4),
        text_encoder=clip_encoder(tokens),
        tokenizer=tokens,
        unet=unet(in_channels=in_channels),
        safety_checker=None if safe else checker(),
        feature_extractor=None if safe else CLIPImageProcessor(size=32, crop_size=32),
        requires_safety_checker=not safe,
    ).save_pretrained(folder)
    return folder


def unet(in_channels: int) -> UNet2DConditionModel:
    return UNet2DConditionModel(
        sample_size=8,
        in_channels=in_channels,
        out_channels=4,
        block_out_channels=(8, 16),
        down_block_types=("CrossAttnDownBlock2D", "DownBlock2D"),
        up_block_types=("UpBlock2D", "CrossAttnUpBlock2D"),
        layers_per_block=1,
        norm_num_groups=4,
        attention_head_dim=4,
        cross_attention_dim=WIDTH,
    )


def checker() -> StableDiffusionSafetyChecker:
    """Takes every picture for unsafe: each threshold is below any cosine."""
    text = CLIPTextConfig(hidden_size=32, intermediate_size=32, num_hidden_layers=1, num_attention_heads=2)
    vision = CLIPVisionConfig(
        hidden_size=32, intermediate_size=32, num_hidden_layers=1, num_attention_heads=2, image_size=32, patch_size=8
    )
    model = StableDiffusionSafetyChecker(
        CLIPConfig(text_config=text.to_dict(), vision_config=vision.to_dict(), projection_dim=16)
    )
    model.concept_embeds_weights.data.fill_(-2.0)
    return model
