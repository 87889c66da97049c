"""Grounding DINO and SAM with few, random weights, in folders as transformers saves them."""

from pathlib import Path

import numpy as np
import torch
from PIL import Image
from transformers import (
    BertConfig,
    BertTokenizer,
    GroundingDinoConfig,
    GroundingDinoForObjectDetection,
    GroundingDinoImageProcessor,
    GroundingDinoProcessor,
    SamConfig,
    SamImageProcessor,
    SamMaskDecoderConfig,
    SamModel,
    SamProcessor,
    SamPromptEncoderConfig,
    SamVisionConfig,
    SwinConfig,
)

from openmaia.core.images import EncodedImage
from openmaia.models.targets.synthetic.rules import SIZE
from openmaia.models.targets.synthetic.units import read

SPECIAL = {"[PAD]": 0, "[UNK]": 100, "[CLS]": 101, "[SEP]": 102, "[MASK]": 103, ".": 1012, "?": 1029}
"""Where Grounding DINO expects them: it tells phrases apart by these numbers."""


def grounding_dino(folder: Path, seed: int = 0) -> str:
    torch.manual_seed(seed)
    vocabulary = _vocabulary()
    config = GroundingDinoConfig(
        backbone_config=SwinConfig(
            image_size=224,
            patch_size=8,
            embed_dim=16,
            depths=[1, 1, 1, 1],
            num_heads=[1, 2, 4, 8],
            window_size=7,
            drop_path_rate=0.0,
            out_indices=[2, 3, 4],
        ),
        text_config=BertConfig(
            vocab_size=len(vocabulary),
            hidden_size=32,
            num_hidden_layers=1,
            num_attention_heads=2,
            intermediate_size=32,
            max_position_embeddings=64,
            # Far from the usual 0.02, so that different words give different answers.
            initializer_range=0.5,
        ),
        d_model=32,
        num_queries=20,
        encoder_layers=1,
        decoder_layers=2,
        encoder_ffn_dim=32,
        decoder_ffn_dim=32,
        encoder_attention_heads=2,
        decoder_attention_heads=2,
        max_text_len=32,
        init_std=0.2,
    )
    model = GroundingDinoForObjectDetection(config)
    with torch.no_grad():
        # As initialised, the last layers of the box heads are zero and no box would depend on the picture.
        for name, weight in model.named_parameters():
            if "bbox_embed" in name:
                weight.normal_(std=0.1)
        # Smaller logits than by chance, so that scores are not all next to 1.
        model.model.decoder.layer_norm.weight.mul_(0.3)
    model.save_pretrained(folder)
    processor = GroundingDinoProcessor(GroundingDinoImageProcessor(), BertTokenizer(vocab=vocabulary))
    processor.save_pretrained(folder)
    return str(folder)


def sam(folder: Path, seed: int = 0) -> str:
    torch.manual_seed(seed)
    model = SamModel(
        SamConfig(
            vision_config=SamVisionConfig(
                hidden_size=16,
                output_channels=16,
                num_hidden_layers=1,
                num_attention_heads=2,
                image_size=64,
                patch_size=8,
                window_size=4,
                global_attn_indexes=[0],
                num_pos_feats=8,
                mlp_dim=16,
                initializer_range=0.2,
            ),
            prompt_encoder_config=SamPromptEncoderConfig(
                hidden_size=16, image_size=64, patch_size=8, mask_input_channels=4
            ),
            mask_decoder_config=SamMaskDecoderConfig(
                hidden_size=16, mlp_dim=16, num_hidden_layers=1, num_attention_heads=2, iou_head_hidden_dim=16
            ),
            initializer_range=0.2,
        )
    )
    model.save_pretrained(folder)
    side = {"height": 64, "width": 64}
    images = SamImageProcessor(
        size={"longest_edge": 64}, pad_size=side, mask_size={"longest_edge": 16}, mask_pad_size=dict.fromkeys(side, 16)
    )
    SamProcessor(images).save_pretrained(folder)
    return str(folder)


def pictures(count: int, size: tuple[int, int] = (SIZE, SIZE)) -> list[EncodedImage]:
    """Random blots, coarser from picture to picture."""
    random = np.random.default_rng(0)
    small = [random.integers(0, 256, (count + 1 - i, count + 1 - i, 3), dtype=np.uint8) for i in range(count)]
    return [EncodedImage.of(np.asarray(Image.fromarray(each).resize(size))) for each in small]


def _vocabulary() -> dict[str, int]:
    """The words of all concepts around the special tokens."""
    words = sorted(
        {
            word
            for preset in ("repo", "paper")
            for listed in read(preset).values()
            for concepts in listed
            for concept in concepts
            for word in concept.split()
        }
    )
    taken = {number: token for token, number in SPECIAL.items()}
    free = iter(words)
    tokens = [taken.get(number) or next(free, f"[unused{number}]") for number in range(1030)]
    return {token: number for number, token in enumerate(tokens)}
