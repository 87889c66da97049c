"""A CLIP, a SigLIP and an OWL-ViT with few, random weights, in folders as transformers saves them."""

from pathlib import Path
from typing import Any

import torch
from tokenizers import Tokenizer, models, normalizers, pre_tokenizers, processors
from transformers import (
    CLIPConfig,
    CLIPImageProcessor,
    CLIPModel,
    CLIPTextConfig,
    CLIPTokenizer,
    CLIPVisionConfig,
    OwlViTConfig,
    OwlViTForObjectDetection,
    OwlViTImageProcessor,
    OwlViTTextConfig,
    OwlViTVisionConfig,
    PreTrainedTokenizerFast,
    SiglipConfig,
    SiglipImageProcessor,
    SiglipModel,
    SiglipTextConfig,
    SiglipVisionConfig,
)

# Far from the usual 0.02, so that different texts and images give different answers.
WIDE: dict[str, Any] = {"initializer_factor": 20.0}
SIZES: dict[str, Any] = {"hidden_size": 16, "intermediate_size": 32, "num_hidden_layers": 2, "num_attention_heads": 2}
LONGEST = 32  # tokens of a text


def clip(folder: Path, seed: int = 3, vocabulary: int = 514) -> str:
    torch.manual_seed(seed)
    texts = CLIPTextConfig(
        **SIZES,
        **WIDE,
        vocab_size=vocabulary,
        max_position_embeddings=LONGEST,
        bos_token_id=512,
        eos_token_id=513,
        pad_token_id=513,
    )
    images = CLIPVisionConfig(**SIZES, **WIDE, image_size=32, patch_size=8)
    config = CLIPConfig(text_config=texts.to_dict(), vision_config=images.to_dict(), projection_dim=12)
    CLIPModel(config).save_pretrained(folder)
    _letters(folder)
    size = {"shortest_edge": 32}
    CLIPImageProcessor(size=size, crop_size={"height": 32, "width": 32}).save_pretrained(folder)
    return str(folder)


def owlvit(folder: Path, seed: int = 0) -> str:
    torch.manual_seed(seed)
    texts = OwlViTTextConfig(
        **SIZES, vocab_size=514, max_position_embeddings=LONGEST, bos_token_id=512, eos_token_id=513, pad_token_id=0
    )
    images = OwlViTVisionConfig(**SIZES, image_size=32, patch_size=8)
    config = OwlViTConfig(text_config=texts.to_dict(), vision_config=images.to_dict(), projection_dim=16)
    model = OwlViTForObjectDetection(config)
    with torch.no_grad():
        for each in model.parameters():
            each.normal_(std=0.3)
    model.save_pretrained(folder)
    _letters(folder)
    OwlViTImageProcessor(size={"height": 32, "width": 32}).save_pretrained(folder)
    return str(folder)


def _letters(folder: Path) -> None:
    """A tokenizer of bytes."""
    letters = sorted(pre_tokenizers.ByteLevel.alphabet())
    names = [*letters, *(f"{letter}</w>" for letter in letters), "<|startoftext|>", "<|endoftext|>"]
    CLIPTokenizer(vocab={name: n for n, name in enumerate(names)}, merges=[]).save_pretrained(folder)


def siglip(folder: Path, seed: int = 0) -> str:
    torch.manual_seed(seed)
    texts = SiglipTextConfig(**SIZES, vocab_size=130, max_position_embeddings=LONGEST, projection_size=16)
    images = SiglipVisionConfig(**SIZES, image_size=32, patch_size=8)
    model = SiglipModel(SiglipConfig(text_config=texts.to_dict(), vision_config=images.to_dict()))
    with torch.no_grad():
        for each in model.parameters():
            each.normal_(std=0.3)
        model.logit_scale.fill_(2.0)
        model.logit_bias.fill_(-3.0)
    model.save_pretrained(folder)
    SiglipImageProcessor(size={"height": 32, "width": 32}).save_pretrained(folder)
    letters = Tokenizer(models.WordLevel({chr(n): n for n in range(128)} | {"<e>": 128, "<u>": 129}, unk_token="<u>"))
    letters.normalizer = normalizers.Lowercase()
    letters.pre_tokenizer = pre_tokenizers.Split("", "isolated")
    letters.post_processor = processors.TemplateProcessing(single="$A <e>", special_tokens=[("<e>", 128)])
    PreTrainedTokenizerFast(
        tokenizer_object=letters,
        eos_token="<e>",
        pad_token="<e>",
        unk_token="<u>",
        model_input_names=["input_ids"],
    ).save_pretrained(folder)
    return str(folder)
