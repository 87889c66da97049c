"""Detection networks with few, random weights, in folders as transformers saves them."""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import torch
from transformers import (
    ConditionalDetrConfig,
    ConditionalDetrForObjectDetection,
    ConditionalDetrImageProcessor,
    DeformableDetrConfig,
    DeformableDetrForObjectDetection,
    DeformableDetrImageProcessor,
    DetrConfig,
    DetrForObjectDetection,
    DetrImageProcessor,
    ResNetConfig,
    RTDetrConfig,
    RTDetrForObjectDetection,
    RTDetrImageProcessor,
    RTDetrResNetConfig,
    YolosConfig,
    YolosForObjectDetection,
    YolosImageProcessor,
)

LABELS = {0: "N/A", 1: "person", 2: "red boat"}
SIZE = {"shortest_edge": 64, "longest_edge": 107}


def _sizes() -> dict[str, Any]:
    backbone: Any = ResNetConfig(embedding_size=8, hidden_sizes=[8] * 4, depths=[1] * 4, layer_type="basic")
    backbone.out_features = ["stage4"]
    return {
        "use_timm_backbone": False,
        "use_pretrained_backbone": False,
        "backbone": None,
        "backbone_config": backbone,
        "d_model": 16,
        "encoder_layers": 1,
        "decoder_layers": 2,
        "encoder_attention_heads": 2,
        "decoder_attention_heads": 2,
        "encoder_ffn_dim": 16,
        "decoder_ffn_dim": 16,
        "num_queries": 7,
        "id2label": LABELS,
    }


def _detr() -> tuple[Any, Any]:
    return DetrForObjectDetection(DetrConfig(**_sizes())), DetrImageProcessor(size=SIZE)


def _conditional() -> tuple[Any, Any]:
    made = ConditionalDetrForObjectDetection(ConditionalDetrConfig(**_sizes()))
    return made, ConditionalDetrImageProcessor(size=SIZE)


def _deformable() -> tuple[Any, Any]:
    """Of the kind whose queries are boxes that its encoder proposes."""
    given = _sizes() | {"d_model": 32}
    given["backbone_config"].out_features = ["stage2", "stage3", "stage4"]
    levels = {"num_feature_levels": 3, "two_stage": True, "two_stage_num_proposals": 7, "with_box_refine": True}
    made = DeformableDetrForObjectDetection(DeformableDetrConfig(**given, **levels))
    return made, DeformableDetrImageProcessor(size=SIZE)


def _yolos() -> tuple[Any, Any]:
    config = YolosConfig(
        hidden_size=16,
        num_hidden_layers=2,
        num_attention_heads=2,
        intermediate_size=32,
        image_size=[64, 64],
        patch_size=16,
        num_detection_tokens=7,
        id2label=LABELS,
    )
    return YolosForObjectDetection(config), YolosImageProcessor(size=SIZE)


def _rt_detr() -> tuple[Any, Any]:
    backbone = RTDetrResNetConfig(
        embedding_size=8,
        hidden_sizes=[8] * 4,
        depths=[1] * 4,
        layer_type="basic",
        out_features=["stage2", "stage3", "stage4"],
    )
    config = RTDetrConfig(
        backbone_config=backbone,
        encoder_hidden_dim=16,
        encoder_in_channels=[8] * 3,
        encoder_attention_heads=2,
        encoder_ffn_dim=16,
        d_model=16,
        decoder_in_channels=[16] * 3,
        decoder_layers=2,
        decoder_attention_heads=2,
        decoder_ffn_dim=16,
        num_queries=7,
        id2label=LABELS,
    )
    return RTDetrForObjectDetection(config), RTDetrImageProcessor(size={"height": 64, "width": 64})


KINDS: Mapping[str, Callable[[], tuple[Any, Any]]] = {
    "detr": _detr,
    "conditional_detr": _conditional,
    "deformable_detr": _deformable,
    "yolos": _yolos,
    "rt_detr": _rt_detr,
}


def detector(kind: str, folder: Path, seed: int = 0) -> str:
    torch.manual_seed(seed)
    model, processor = KINDS[kind]()
    with torch.no_grad():  # far from the usual weights, so that different images give different answers
        for each in model.parameters():
            each.normal_(std=0.3)
    model.save_pretrained(folder)
    processor.save_pretrained(folder)
    return str(folder)
