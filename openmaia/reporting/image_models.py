"""Names the models with which the images of a run were generated and edited."""

from collections.abc import Mapping
from typing import Any, cast


def image_model(service: Mapping[str, Any]) -> str:
    """Returns the name of the model in a config's section `generator` or `editor`.

    A remark follows if the images cannot be reproduced, because they come from an API that takes no seed.
    """
    kind = str(service["kind"])
    section = cast(Mapping[str, Any], service.get({"diffusers": "diffusion", "openai": "api"}.get(kind, "")) or {})
    name = str(section.get("model", "")).rstrip("/").rsplit("/", 1)[-1] or kind
    return name if kind != "openai" or section.get("seed") else f"{name} without seeds, not reproducible"
