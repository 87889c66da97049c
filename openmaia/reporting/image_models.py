"""Names the models that made the images of a run."""

from collections.abc import Mapping
from typing import Any, cast


def image_model(service: Mapping[str, Any]) -> str:
    """Returns the name of a generator or an editor, with a remark if its images cannot be reproduced.

    Args:
        service: The section `generator` or `editor` of a config.
    """
    kind = str(service["kind"])
    section = cast(Mapping[str, Any], service.get({"diffusers": "diffusion", "openai": "api"}.get(kind, "")) or {})
    name = str(section.get("model", "")).rstrip("/").rsplit("/", 1)[-1] or kind
    return name if kind != "openai" or section.get("seed") else f"{name} without seeds, not reproducible"
