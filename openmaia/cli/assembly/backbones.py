"""Builds the backbone (the model that plays the agent) and the viewer (which describes images to it) of a config."""

from dataclasses import replace

from openmaia.cli.assembly.errors import unknown_value
from openmaia.config.schema import Config
from openmaia.core.errors import session_object_error
from openmaia.core.services import Backbone


def backbone(config: Config, section: str = "backbone") -> Backbone:
    """Returns the backbone (the model that plays the agent) that `config.backbone` describes.

    If `config.backbone.sees` is "text", the backbone cannot process images. It is then combined with the viewer,
    another model that describes images to it in words.

    Args:
        config: The config.
        section: The config section that error messages name. It differs from "backbone" only if the caller has
            replaced `config.backbone` by another section, such as "evaluate.writer".
    """
    agent = _language_model(config, section)
    if config.backbone.sees == "images":
        return agent
    from openmaia.models.backbones.viewer import BackboneWithViewer

    return BackboneWithViewer(agent, viewer(config))


def viewer(config: Config) -> Backbone:
    """Returns the viewer: the model that describes images in words for a backbone that cannot process images."""
    from openmaia.models.backbones.viewer import NoViewer

    if config.viewer.kind == "none":
        return NoViewer()
    if config.viewer.kind != "scripted":
        return _language_model(replace(config, backbone=config.viewer), "viewer")
    from openmaia.models.targets.networks import classifier
    from openmaia.models.targets.networks.efficientnet import imagenet_labels
    from openmaia.offline.experimenter.viewer import EyesViewer

    return EyesViewer(classifier(config.viewer.eyes), imagenet_labels())


def _language_model(config: Config, section: str) -> Backbone:
    match config.backbone.kind:
        case "scripted":
            from openmaia.models.targets.networks import classifier
            from openmaia.offline.experimenter import ScriptedBackbone
            from openmaia.offline.experimenter.eyes import Eyes

            return ScriptedBackbone(Eyes(classifier(config.backbone.eyes)))
        case "replay":
            from openmaia.models.backbones.replay import ReplayBackbone

            return ReplayBackbone(config.backbone.record)
        case "labels":
            from openmaia.interop.label_backbone import LabelBackbone

            return LabelBackbone(config.backbone.record, config.target.name, config.backbone.model)
        case "vllm":
            from openmaia.models.backbones.vllm.engine import VllmBackbone

            return VllmBackbone(config.backbone, config.pools.backbone.num_gpus, config.pools.backbone.kv_cache_gb)
        case "openai":
            from openmaia.models.backbones.openai_server import OpenAiBackbone

            return OpenAiBackbone(config.backbone, section)
        case "anthropic":
            from openmaia.models.backbones.anthropic_server import AnthropicBackbone

            return AnthropicBackbone(config.backbone, section)
        case "python":
            raise session_object_error("backbone.kind", "backbone.kind=scripted or a language model")
        case kind:
            raise unknown_value("backbone.kind", kind)


def backbone_name(config: Config) -> str:
    """Returns the name by which records of investigations call the backbone, the model that plays the agent.

    The name of the scripted experimenter, which is no language model, includes the network that it sees with. The name
    of a backbone that cannot process images includes the viewer, which describes images to it in words.
    """
    if config.backbone.sees == "text":
        seeing = replace(config.backbone, sees="images")
        viewer = {"scripted": f"text of eyes {config.viewer.eyes}", "none": "no images"}.get(
            config.viewer.kind, f"text of {config.viewer.model}"
        )
        return f"{backbone_name(replace(config, backbone=seeing))}, sees {viewer}"
    match config.backbone.kind:
        case "scripted":
            return f"scripted (no language model; eyes: {config.backbone.eyes})"
        case "vllm" | "openai" | "anthropic":
            return f"{config.backbone.model} ({config.backbone.kind})"
        case "labels":
            return config.backbone.model
        case kind:
            return kind
