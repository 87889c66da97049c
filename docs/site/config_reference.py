"""Writes the reference of all config keys from the schema: the docstrings under its fields, and its defaults."""

import ast
import dataclasses
import functools
import inspect
import itertools
import re
import sys
import typing
from collections.abc import Iterator
from typing import Any

from omegaconf import MISSING

from openmaia.config.machine import MACHINE_SECTIONS
from openmaia.config.schema import Config
from openmaia.core.components import ALIASES, ROLES, ComponentConfig, component, config_class

HEAD = """# Config keys

Every key of a config with its type, its default and its meaning. The page is generated from the schema
(`openmaia/config`), so it is complete.

A command takes YAML files and `key=value` overrides; later ones win. An unknown key is an error that names the nearest one.

```
openmaia run configs/demo.yaml seed=1 limits.turns=20
```

Keys marked *machine* say where and how fast a run is executed, not what is measured. They may change when a run is resumed.
"""
TYPES = {"str": "text", "int": "integer", "float": "number", "bool": "true or false"}


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Key:
    """A key of the config, or a section of it."""

    name: str
    type: Any
    default: Any
    text: str
    """The docstring under the field."""
    is_machine: bool = False
    kind: str = ""
    """The kind of component that has it, if not all kinds of its role have it."""

    @property
    def anchor(self) -> str:
        section, _, name = self.name.rpartition(".")
        return f"{section}.{self.kind}.{name}" if self.kind else self.name


def render() -> str:
    """Returns the page as Markdown: a heading for each section, and an entry with an anchor for each key."""
    top = list(keys(Config, "", None))
    page = [HEAD, "## Top level", *(_entry(key) for key in top if not _is_section(key))]
    page += [block for key in top if _is_section(key) for block in _section(key)]
    text, anchors = "\n\n".join(page) + "\n", dict(_anchors(top))

    def linked(match: re.Match[str]) -> str:
        return f"[{match[0]}](#{anchors[match[1]]})" if match[1] in anchors else match[0]

    return re.sub(r"(?<!\[)(?<!#{2} )`([a-z_]+\.[a-z_.]+)`", linked, text)


def keys(schema: type, prefix: str, defaults: Any) -> Iterator[Key]:
    """Yields the keys of a section.

    Args:
        schema: The dataclass of the section.
        prefix: What stands before the names of its keys, such as "target.".
        defaults: The instance that holds the defaults, or None for those of the dataclass.
    """
    texts, types = docstrings(schema), typing.get_type_hints(schema)
    for field in dataclasses.fields(schema):
        default = field.default_factory() if callable(field.default_factory) else field.default
        if defaults is not None:
            default = getattr(defaults, field.name)
        yield Key(
            name=prefix + field.name,
            type=types[field.name],
            default=default,
            text=texts.get(field.name, ""),
            is_machine=bool(field.metadata.get("machine")),
        )


def _of_kinds(section: Key) -> Iterator[tuple[str, type[ComponentConfig], list[Key]]]:
    """Yields (kind, its config, the keys that other kinds of the role need not have) of a section of a component."""
    role = _component(section)
    shared = {field.name for field in dataclasses.fields(ROLES[role])}
    for kind in ALIASES[role]:
        config = config_class(component(role, kind), role)
        own = [key for key in keys(config, f"{section.name}.", None) if key.name.rpartition(".")[2] not in shared]
        yield kind, config, [dataclasses.replace(key, kind=kind) for key in own]


def _component(key: Key) -> str:
    """The role of the component that a section holds; empty for another section or a key."""
    options = typing.get_args(key.type) or [key.type]
    return next((each.role for each in options if isinstance(each, type) and issubclass(each, ComponentConfig)), "")


@functools.cache
def docstrings(schema: type) -> dict[str, str]:
    """Returns the docstring under each field of a dataclass, those of its base classes included."""
    texts: dict[str, str] = {}
    for cls in reversed(schema.__mro__[:-1]):
        tree = ast.parse(inspect.getsource(sys.modules[cls.__module__]))
        (body,) = (node.body for node in tree.body if isinstance(node, ast.ClassDef) and node.name == cls.__name__)
        for field, below in itertools.pairwise(body):
            if isinstance(field, ast.AnnAssign) and isinstance(below, ast.Expr) and isinstance(field.target, ast.Name):
                texts[field.target.id] = " ".join(str(ast.literal_eval(below.value)).split())
    return texts


def _anchors(found: list[Key], shared: str = "") -> Iterator[tuple[str, str]]:
    """Yields each key with its anchor. The keys of a section that is described elsewhere have that of the section."""
    for key in found:
        yield key.name, shared or key.anchor
        if _component(key):
            elsewhere = shared or (key.name if _is_described_elsewhere(key) else "")
            for kind, config, several in reversed(list(_of_kinds(key))):
                for own in several[::-1]:
                    there = f"{config.role}.{kind}" if config.role != _component(key) else own.anchor
                    yield own.name, elsewhere or there
            for own in keys(ROLES[_component(key)], f"{key.name}.", None):
                yield own.name, elsewhere or own.anchor
        elif _is_section(key):
            within = list(keys(key.type, f"{key.name}.", key.default))
            yield from _anchors(within, shared or (key.name if _is_described_elsewhere(key) else ""))


def _is_section(key: Key) -> bool:
    return dataclasses.is_dataclass(key.type) or bool(_component(key))


def _is_described_elsewhere(key: Key) -> bool:
    return key.name != _component(key) in {each.name for each in dataclasses.fields(Config)}


def _section(section: Key) -> Iterator[str]:
    yield f"{'##' if '.' not in section.name else '###'} `{section.name}` {{ #{section.name} }}"
    yield section.text or _sentence(section.type)
    if _component(section) and _is_described_elsewhere(section):
        yield f"Its keys are those of [`{_component(section)}`](#{_component(section)}). null, the default: there is none."
        return
    if role := _component(section):
        first = None if type(None) in typing.get_args(section.type) else next(iter(ALIASES[role]))
        for key in keys(ROLES[role], f"{section.name}.", None):
            yield _entry(dataclasses.replace(key, default=first) if key.name.endswith(".kind") else key)
        for kind, config, own in _of_kinds(section):
            if config.role != role:
                yield f"**`{section.name}.kind={kind}`** Its keys are those of [`{config.role}.kind={kind}`](#{config.role}.{kind})."
                continue
            yield f"**`{section.name}.kind={kind}`**{{ #{section.name}.{kind} }} {_sentence(config)}"
            yield from (_entry(key) for key in own)
        return
    within = list(keys(section.type, f"{section.name}.", section.default))
    yield from (_entry(key) for key in within if not _is_section(key))
    for key in within:
        if _is_section(key):
            yield from _section(key)


def _sentence(schema: type) -> str:
    """Returns the docstring of a dataclass without the names of its keys in front."""
    text = " ".join((schema.__doc__ or "").split())
    text = re.sub(r"^(`[a-z_.]+`(, )?)+: ", "", text)
    return text[:1].upper() + text[1:]


def _entry(key: Key) -> str:
    facts = [_type(key.type), "required" if key.default == MISSING else f"default `{_value(key.default)}`"]
    if typing.get_origin(key.type) is typing.Literal:
        facts.append("one of " + ", ".join(f"`{choice}`" for choice in typing.get_args(key.type) if choice))
    if key.name.partition(".")[0] in MACHINE_SECTIONS or key.is_machine:
        facts.append("*machine*")
    return f"[`{key.name}`](#{key.anchor}){{ #{key.anchor} }} · {' · '.join(facts)}\n:   {key.text}"


def _type(annotation: Any) -> str:
    if typing.get_origin(annotation) is typing.Literal:
        return "text"
    if typing.get_origin(annotation) is list:
        return "list"
    if typing.get_origin(annotation) is dict:
        return "mapping"
    names = [TYPES[each.__name__] for each in typing.get_args(annotation) or [annotation] if each is not type(None)]
    return " or ".join(names) + (" or null" if type(None) in typing.get_args(annotation) else "")


def _value(default: Any) -> str:
    if default is None or isinstance(default, bool):
        return {None: "null", True: "true", False: "false"}[default]
    if isinstance(default, list):
        return f"[{', '.join(map(_value, default))}]"
    return str(default) if default != "" else '""'
