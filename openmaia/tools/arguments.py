"""Validation of what the agent's code hands over. Raises ToolError, which the agent sees."""

from typing import Any, cast

import numpy as np

from openmaia.errors import ToolError
from openmaia.images import Picture, decode

MAX_TEXT = 2_000
"""Characters of one prompt, instruction or title."""

MAX_ASPECT = 8
"""A longer picture becomes huge where a network's preprocessing enlarges the shorter side and crops nothing."""


def brief(value: Any) -> str:
    """A value in a message, whatever its size."""
    shown = repr(value)
    return shown if len(shown) <= 60 else f"{shown[:60]}…"


def list_of(values: Any) -> list[Any]:
    if not isinstance(values, list):
        raise ToolError(f"expected a list, not {type(values).__name__}")
    return cast(list[Any], values)


def named_values(values: Any) -> dict[str, Any]:
    if not isinstance(values, dict):
        raise ToolError(f"expected arguments by name, not {type(values).__name__}")
    return cast(dict[str, Any], values)


def texts(values: list[Any], tool: str) -> list[str]:
    if not values:
        raise ToolError(f"{tool}: an empty list; give at least one text")
    return [text(value) for value in values]


def text(value: Any) -> str:
    if not isinstance(value, str) or not value.strip() or len(value) > MAX_TEXT:
        raise ToolError(f"expected a text of 1 to {MAX_TEXT} characters, not {brief(value)}")
    return value


def hypotheses(given: Any, count: int) -> list[str]:
    """Which hypothesis each of so many images tests: one name for all, or a list with one, or none, for each."""
    listed: list[Any] = list_of(given) if isinstance(given, list) else [given] * count
    if len(listed) != count:
        raise ToolError(f"hypothesis: {len(listed)} names for {count} images; give one for all, or one for each")
    return ["" if name is None else text(str(name)).strip() for name in listed]


def view(name: Any) -> str:
    if name not in ("", "original", "masked"):
        raise ToolError(f"view {brief(name)}; expected original or masked")
    return name


def own_picture(data: Any) -> Picture:
    """A picture that the agent's code made or changed."""
    if not isinstance(data, bytes):
        raise ToolError(f"expected the bytes of an image, not {type(data).__name__}")
    try:
        pixels = np.asarray(decode(data))
    except ValueError as error:
        raise ToolError(str(error)) from error
    if min(pixels.shape[:2]) < 8 or max(pixels.shape[:2]) > 2048:
        raise ToolError(f"an image of {pixels.shape[1]} x {pixels.shape[0]} pixels; expected 8 to 2048 on each side")
    if max(pixels.shape[:2]) > MAX_ASPECT * min(pixels.shape[:2]):
        raise ToolError(
            f"an image of {pixels.shape[1]} x {pixels.shape[0]} pixels; one side may be at most {MAX_ASPECT} times the other"
        )
    return Picture.of(pixels)
