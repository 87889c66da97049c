"""Names the models with which the images of a run were generated and edited."""

from collections.abc import Mapping
from typing import Any

from openmaia.core.components import stored, stored_remark


def name_image_model(service: Mapping[str, Any]) -> str:
    """Returns the name of the model of a generator or editor, by its section of a stored config."""
    return str(service.get("model") or service["kind"]).rstrip("/").rsplit("/", 1)[-1]


def name_editor(config: Mapping[str, Any]) -> str:
    """Returns the name of the model that edits, by a stored config: that of the generator if the editor stands for it."""
    found = stored(config["editor"], "editor")
    return name_image_model(config[(found[0].stands_for if found else "") or "editor"])


def image_model(service: Mapping[str, Any], role: str) -> str:
    """Returns the name of the model of a generator or editor, with what readers should know of it.

    Args:
        service: The section of a stored config, such as `generator`.
        role: "generator" or "editor".
    """
    name, remark = name_image_model(service), stored_remark(service, role)
    return f"{name} ({remark})" if remark else name
