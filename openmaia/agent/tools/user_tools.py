"""Imports tools of the user, and calls them with arguments in the form in which the sandbox sends values."""

import inspect
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from typing import Any, cast

import numpy as np
from PIL import Image

from openmaia.agent.sandbox.frames import MAX_INT
from openmaia.agent.tools.api import Tools
from openmaia.agent.tools.arguments import MAX_TEXT, abbreviate, check_list, check_named
from openmaia.core.errors import ToolError, UsageError
from openmaia.core.images import EncodedImage
from openmaia.core.importing import import_object
from openmaia.core.secrets import redacted


def import_tools(names: Sequence[str]) -> dict[str, Callable[..., Any]]:
    """Returns the functions that `package.module:function` names, by their own names.

    Raises:
        UsageError: One cannot be imported, is no function, or has the name of another tool.
    """
    found: dict[str, Callable[..., Any]] = {}
    for name in names:
        tool, attribute = import_object(name, "tools"), name.partition(":")[2]
        if not callable(tool):
            raise UsageError(f"tools: {name!r} is no function; expected package.module:function")
        if attribute in found or hasattr(Tools, attribute):
            raise UsageError(f"tools: there is another tool named {attribute!r}; give {name!r} a name of its own")
        found[attribute] = tool
    return found


def call_user_tool(
    tools: Mapping[str, Callable[..., Any]],
    arguments: tuple[Any, Any, Any],
    check: Callable[[list[Any]], object],
    resolve: Callable[[Any], EncodedImage],
    register: Callable[[EncodedImage], dict[str, Any]],
    called: Callable[[], AbstractContextManager[None]],
) -> Any:
    """Calls a tool of the user and returns its result in the form that is sent to the sandbox.

    Args:
        arguments: The tool's name, its positional and its keyword arguments, as the sandbox sent them.
        check: Raises ToolError if some arguments are no images, without decoding them.
        resolve: Returns the image to which an argument refers.
        register: Registers an image and returns the reference to it that is sent to the sandbox.
        called: Makes a context manager for the call of the user's function.

    Raises:
        ToolError: The name is unknown, the arguments do not fit, or the tool raised an exception.
    """
    name, args, kwargs = arguments
    tool = tools.get(name) if isinstance(name, str) else None
    if tool is None:
        raise ToolError(f"there is no tool {abbreviate(name)}")
    try:
        inspect.signature(tool).bind(*check_list(args), **check_named(kwargs))
    except TypeError as error:
        raise ToolError(f"{name}: {error}"[:MAX_TEXT]) from error
    check([image for argument in (args, *kwargs.values()) for image in _images(argument)])
    given = [_decoded(argument, resolve) for argument in args]
    named = {key: _decoded(argument, resolve) for key, argument in kwargs.items()}
    try:
        with called():
            result = tool(*given, **named)
        return _encoded(result, register)
    except Exception as error:  # the user's code, called with the agent's arguments: the agent gets to see the error
        raise ToolError(_whole(redacted(f"{name}: {type(error).__name__}: {error}")[:MAX_TEXT])) from error


def _images(argument: Any) -> Iterator[Any]:
    """Yields the parts of an argument that must be images, if it is valid."""
    if isinstance(argument, list):
        for part in cast(list[Any], argument):
            yield from _images(part)
    elif argument is not None and not isinstance(argument, (str, bool, int, float)):
        yield argument


def _decoded(argument: Any, resolve: Callable[[Any], EncodedImage]) -> Any:
    """Converts an argument to texts, numbers and Pillow images, in lists of any depth."""
    if isinstance(argument, list):
        return [_decoded(part, resolve) for part in cast(list[Any], argument)]
    if argument is None or isinstance(argument, (str, bool, int, float)):
        return argument
    return resolve(argument).pil()


def _encoded(value: Any, register: Callable[[EncodedImage], dict[str, Any]]) -> Any:
    if isinstance(value, Image.Image):
        return {"$image": register(EncodedImage.of(np.asarray(value.convert("RGB"))))}
    if isinstance(value, (list, tuple)):
        return [_encoded(item, register) for item in cast(Sequence[Any], value)]
    if isinstance(value, dict):
        return {_whole(str(key)): _encoded(item, register) for key, item in cast(dict[Any, Any], value).items()}
    if isinstance(value, np.ndarray):
        return _encoded(cast(Any, value).tolist(), register)
    if isinstance(value, np.generic):
        value = cast(Any, value).item()
    if isinstance(value, int) and not -MAX_INT < value < MAX_INT:
        raise ValueError("the result has an integer of more than 256 bits")
    return value if value is None or isinstance(value, (bool, int, float)) else _whole(str(value))


def _whole(text: str) -> str:
    """Replaces halves of characters (surrogates), which neither the sandbox nor a record can hold."""
    return text.encode("utf-8", "replace").decode("utf-8")
