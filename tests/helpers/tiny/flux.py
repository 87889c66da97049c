"""FLUX and FLUX Kontext pipelines of the published architecture, tiny, with seeded random weights."""

import json
from pathlib import Path

import torch
from diffusers import (
    AutoencoderKL,
    DiffusionPipeline,
    FlowMatchEulerDiscreteScheduler,
    FluxKontextPipeline,
    FluxPipeline,
    FluxTransformer2DModel,
)
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
from transformers import CLIPTextConfig, CLIPTextModel, CLIPTokenizer, T5Config, T5EncoderModel, T5TokenizerFast

SENTENCES = ["a photo of a dog on the grass", "a bowl of fruit on a table", "change the dog into a cat", "a red bus"]
WIDTH = 64
"""Every linear layer has inputs in multiples of 64: bitsandbytes packs 4-bit weights in blocks of 64."""

AMPLIFIED = 6


def save_flux(folder: Path) -> Path:
    return _save(FluxPipeline, folder)


def save_kontext(folder: Path) -> Path:
    return _save(FluxKontextPipeline, folder)


def _save(kind: type[DiffusionPipeline], folder: Path) -> Path:
    torch.manual_seed(0)
    clip_tokens, t5_tokens = clip_tokenizer(folder), t5_tokenizer()
    pipeline = kind(
        scheduler=FlowMatchEulerDiscreteScheduler(shift=3.0, use_dynamic_shifting=True),
        vae=autoencoder(latent_channels=16),
        text_encoder=clip_encoder(clip_tokens),
        tokenizer=clip_tokens,
        text_encoder_2=t5_encoder(),
        tokenizer_2=t5_tokens,
        transformer=transformer(),
    )
    pipeline.save_pretrained(folder)
    return folder


def transformer() -> FluxTransformer2DModel:
    model = FluxTransformer2DModel(
        patch_size=1,
        in_channels=64,
        num_layers=1,
        num_single_layers=1,
        attention_head_dim=16,
        num_attention_heads=4,
        joint_attention_dim=WIDTH,
        pooled_projection_dim=WIDTH,
        axes_dims_rope=(4, 4, 8),
        guidance_embeds=True,
    )
    # Fresh weights move the noise by so little that neither prompt nor picture would be seen in the result.
    for block in (*model.transformer_blocks, *model.single_transformer_blocks):
        for parameter in block.attn.parameters():
            parameter.data *= AMPLIFIED
    model.proj_out.weight.data *= AMPLIFIED
    return model


def t5_encoder() -> T5EncoderModel:
    return T5EncoderModel(
        T5Config(vocab_size=128, d_model=WIDTH, d_ff=WIDTH, d_kv=16, num_layers=2, num_heads=4, pad_token_id=0)
    )


def autoencoder(latent_channels: int) -> AutoencoderKL:
    """Eight pixels to a latent, as the published ones."""
    return AutoencoderKL(
        sample_size=32,
        block_out_channels=(4, 8, 8, 8),
        down_block_types=("DownEncoderBlock2D",) * 4,
        up_block_types=("UpDecoderBlock2D",) * 4,
        layers_per_block=1,
        latent_channels=latent_channels,
        norm_num_groups=1,
        shift_factor=0.0609,
        scaling_factor=1.5035,
    )


def clip_encoder(tokens: CLIPTokenizer) -> CLIPTextModel:
    return CLIPTextModel(
        CLIPTextConfig(
            vocab_size=len(tokens),
            hidden_size=WIDTH,
            intermediate_size=WIDTH,
            num_hidden_layers=2,
            num_attention_heads=4,
            bos_token_id=tokens.bos_token_id,
            eos_token_id=tokens.eos_token_id,
            pad_token_id=tokens.pad_token_id,
        )
    )


def clip_tokenizer(folder: Path) -> CLIPTokenizer:
    """A token per byte: no word is unknown, and a word is as many tokens as letters."""
    folder.mkdir(parents=True, exist_ok=True)
    letters = sorted(pre_tokenizers.ByteLevel.alphabet())
    names = [*letters, *(letter + "</w>" for letter in letters), "<|startoftext|>", "<|endoftext|>"]
    vocabulary, merges = folder / "vocabulary.json", folder / "merges.txt"
    vocabulary.write_text(json.dumps({name: i for i, name in enumerate(names)}))
    merges.write_text("#version: 0.2\n")
    return CLIPTokenizer(vocab=str(vocabulary), merges=str(merges), model_max_length=77)


def t5_tokenizer() -> T5TokenizerFast:
    tokenizer = Tokenizer(models.Unigram())
    tokenizer.pre_tokenizer = pre_tokenizers.Metaspace()
    tokenizer.decoder = decoders.Metaspace()
    trainer = trainers.UnigramTrainer(
        vocab_size=120, special_tokens=["<pad>", "</s>", "<unk>"], unk_token="<unk>", show_progress=False
    )
    tokenizer.train_from_iterator(SENTENCES * 10, trainer)
    vocabulary = [(piece, score) for piece, score in json.loads(tokenizer.to_str())["model"]["vocab"]]
    return T5TokenizerFast(vocab=vocabulary, extra_ids=0, model_max_length=512)
