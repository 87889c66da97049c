"""The sections of a config that hold a component, and the class that each has by the sources of the config.

Such a section's schema is known when all sources are read, because a later one may choose another kind. A key that an
earlier source wrote for another kind is set aside.
"""

import dataclasses
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from operator import attrgetter
from typing import Any, get_args, get_type_hints

from omegaconf import DictConfig, OmegaConf

from openmaia.config.machine import TEST_GENERATOR
from openmaia.config.schema import Config, pools_by_role
from openmaia.core.components import (
    ALIASES,
    Component,
    ComponentConfig,
    Site,
    component,
    config_class,
    is_users,
    machine_keys,
    of_config,
)
from openmaia.core.errors import UsageError
from openmaia.core.paths import user_path

Classes = Mapping[str, type[ComponentConfig] | None]
"""The config class of each section. None: the section is absent."""
Kinds = Mapping[str, str]


@dataclass(frozen=True, slots=True)
class Section:
    """Section of a component."""

    key: str
    role: str
    is_optional: bool
    """Whether it may be absent. It then has no default kind."""

    @property
    def default(self) -> str:
        """The kind if no source names one."""
        return "" if self.is_optional else next(iter(ALIASES[self.role]))


@cache
def sections() -> dict[str, Section]:
    """Returns them by dotted key."""
    return {each.key: each for each in _sections(Config, "")}


def _sections(schema: type, prefix: str) -> Iterator[Section]:
    for name, hint in get_type_hints(schema).items():
        options = [each for each in get_args(hint) or [hint] if isinstance(each, type)]
        config = next((each for each in options if issubclass(each, ComponentConfig)), None)
        if config is not None:
            yield Section(prefix + name, config.role, type(None) in options)
        elif dataclasses.is_dataclass(hint) and isinstance(hint, type):
            yield from _sections(hint, f"{prefix}{name}.")


def section_of(key: str) -> Section | None:
    """Returns the section that holds a dotted key."""
    return next((each for each in sections().values() if key.startswith(f"{each.key}.")), None)


@dataclass(frozen=True, slots=True)
class Choice:
    """The components that the sources of a config choose."""

    kinds: Kinds
    classes: Classes
    aside: Sequence[frozenset[str]]
    """For each layer, the dotted keys that were written for another kind."""


def choose(layers: Sequence[Sequence[DictConfig]], files: Sequence[bool]) -> Choice:
    """Finds the components that a config has.

    Args:
        layers: The overlays of each layer. Within a layer the order does not matter; later layers win.
        files: Whether each layer is a file. Its machine keys are for whatever component has them.

    Raises:
        UsageError: A kind is unknown, cannot be imported or has another role, or a section has keys and no kind.
    """
    kinds: dict[str, str] = {}
    classes: dict[str, type[ComponentConfig] | None] = {}
    aside: list[set[str]] = [set() for _ in layers]
    backbone = sections()["backbone"]
    backbones = _in_force(backbone, layers, [backbone.default] * len(layers))
    for section in sections().values():
        in_force = _in_force(section, layers, [_default(section, each) for each in backbones])
        kind = in_force[-1] if in_force else _default(section, backbone.default)
        given = [(at, name) for at, layer in enumerate(layers) for name in _names(section, layer)]
        reset = _last_reset(section, layers)
        aside_here = {(at, name) for at, name in given if at < reset or (name == "kind" and in_force[at] != kind)}
        kept = [(at, name) for at, name in given if at >= reset and name != "kind"]
        if not kind and kept:
            raise UsageError(f"{section.key} needs {section.key}.kind, such as {next(iter(ALIASES[section.role]))}")
        kinds[section.key] = kind
        classes[section.key] = final = class_of(section, kind) if kind else None
        then = {each: class_of(section, each) for each in {*in_force} - {kind, ""}}
        for at, name in kept:
            writer = then.get(in_force[at])
            is_for_other = writer is not None and _owner(writer, name) not in (None, _owner(final, name))
            is_for_any = files[at] and _owner(final, name) is None and name in _machine_names(section.role)
            if is_for_other or is_for_any:
                aside_here.add((at, name))
        for at, name in aside_here:
            aside[at].add(f"{section.key}.{name}")
    return Choice(kinds, classes, [frozenset(each) for each in aside])


def class_of(section: Section, kind: str) -> type[ComponentConfig]:
    """Imports the config class of a kind. Raises UsageError as `choose`."""
    made = config_class(component(section.role, kind, section.key), section.role)
    assert made is not None, "component() checks it"
    return made


def default_classes() -> Classes:
    """Returns the config classes if no source names a kind."""
    return {each.key: class_of(each, each.default) if each.default else None for each in sections().values()}


def stored_classes(kinds: Kinds) -> Classes:
    """Returns the config classes for the kinds of a stored config, those of the user left out: they are not imported."""
    return {
        key: None if not kinds.get(key) else class_of(section, kinds[key])
        for key, section in sections().items()
        if not is_users(kinds.get(key, "")) and (not kinds.get(key) or kinds[key] in ALIASES[section.role])
    }


def is_machine_key(key: str, kinds: Kinds) -> bool:
    """Returns whether a dotted key of a built-in component may change on resume. A stored config says it of the user's
    (`users_machine_keys`), which are not imported to read it."""
    section, name = section_of(key), key.rpartition(".")[2]
    if section is None:
        return False
    return name in _machine_names(section.role, kinds.get(section.key, ""))


def users_machine_keys(kinds: Kinds, classes: Classes) -> list[str]:
    """Returns the dotted machine keys of the user's components, whose classes are imported."""
    found = ((key, config) for key, config in classes.items() if config is not None and is_users(kinds.get(key, "")))
    return [f"{key}.{name}" for key, config in found for name in sorted(machine_keys(config))]


@cache
def _machine_names(role: str, kind: str = "") -> frozenset[str]:
    found: frozenset[str] = frozenset()
    for alias in [kind] if kind in ALIASES[role] else [] if kind else ALIASES[role]:
        found |= machine_keys(config_class(component(role, alias), role) or ComponentConfig)
    return found


def kinds_with(key: str) -> list[str]:
    """Returns the built-in kinds whose config has the last part of a dotted key."""
    section, name = section_of(key), key.rpartition(".")[2]
    if section is None:
        return []
    return [kind for kind in ALIASES[section.role] if name in class_of(section, kind).__dataclass_fields__]


def hints(schema: type, classes: Classes, prefix: str = "") -> dict[str, Any]:
    """Returns the types of a section's keys, with the class that each section of a component has."""
    own = get_type_hints(schema)
    return {name: classes.get(prefix + name) or hint for name, hint in own.items() if name != "role"}


def _value(section: Section, overlay: DictConfig) -> tuple[bool, Any]:
    """Returns (whether an overlay has a section, its value)."""
    node: Any = overlay
    for name in section.key.split("."):
        if not isinstance(node, DictConfig) or name not in node:
            return False, None
        node = None if OmegaConf.is_missing(node, name) else node[name]
    return True, node


def _names(section: Section, layer: Sequence[DictConfig]) -> list[str]:
    values = [value for overlay in layer for has, value in [_value(section, overlay)] if has]
    if wrong := [value for value in values if value is not None and not isinstance(value, DictConfig)]:
        raise UsageError(f"{section.key} is a section; give one of its keys, such as {section.key}.kind={wrong[0]}")
    return [str(name) for value in values if isinstance(value, DictConfig) for name in value]


def _default(section: Section, backbone: str) -> str:
    return component("backbone", backbone, "backbone").companions.get(section.key, section.default)


def _in_force(section: Section, layers: Sequence[Sequence[DictConfig]], defaults: Sequence[str]) -> list[str]:
    """The kind after each layer, of which each has a default."""
    named, found = "", list[str]()
    for layer, default in zip(layers, defaults, strict=True):
        for overlay in layer:
            has, value = _value(section, overlay)
            if has and value is None:
                named = ""
            elif isinstance(value, DictConfig) and value.get("kind") is not None:
                named = str(value["kind"])
        found.append(named or default)
    return found


def _last_reset(section: Section, layers: Sequence[Sequence[DictConfig]]) -> int:
    """The first layer that counts, because null forgets what earlier layers wrote."""
    resets = [at for at, layer in enumerate(layers) for each in layer if _value(section, each) == (True, None)]
    return max(resets, default=0)


def _owner(config: type[ComponentConfig] | None, name: str) -> type | None:
    # Two kinds that inherit a key from one class mean the same by it, so that its value may pass from one to the other.
    for cls in reversed(config.__mro__ if config else ()):
        if name in getattr(cls, "__dataclass_fields__", {}):
            return cls
    return None


def is_viewed(config: Any) -> bool:
    """Returns whether the viewer is asked, of a complete config or its form in OmegaConf."""
    asks = component("backbone", config.backbone.kind, "backbone").asks_viewer
    return asks or "text" in (getattr(each, "sees", "") for each in (config.backbone, config.evaluate.writer))


def find_components(config: Config) -> Iterator[tuple[type[Component], ComponentConfig, Site]]:
    """Yields (class, its section, its site) for each component that a complete config uses."""
    found = {key: attrgetter(key)(config) for key in sections() if attrgetter(key)(config) is not None}
    if not is_viewed(config):
        del found["viewer"]
    for key, settings in found.items():
        yield of_config(settings, key), settings, site(config, key)


def site(
    config: Config, key: str, pictures: Callable[[], Any] = lambda: None, say: Callable[[str], None] = lambda line: None
) -> Site:
    """Returns what a component's section does not say. For `pictures` and `say` see `Site`."""
    # A viewer and a writer are in the processes of the backbone, or take its place.
    role = {"evaluate.generator": TEST_GENERATOR, "viewer": "backbone", "evaluate.writer": "backbone"}.get(key, key)
    pool = pools_by_role(config).get(role, "")
    return Site(
        key=key,
        pool=pool,
        gpus=getattr(config.pools, pool).num_gpus if pool else 0.0,
        cache=user_path(config.paths.cache),
        pictures=pictures,
        say=say,
        generator=config.generator,
        target=config.target,
        viewer=config.viewer,
    )


def component_files(config: Config) -> Iterator[tuple[str, str, str]]:
    """Yields what components read: (dotted key, path, `file` or `folder`)."""
    for cls, settings, place in find_components(config):
        for name, path, what in cls.files(settings, place):
            yield f"{place.key}.{name}", path, what
