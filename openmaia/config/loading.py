"""Reads YAML files and key=value overrides into a complete, checked config."""

import copy
import dataclasses
import io
import re
from collections.abc import Callable, Collection, Generator, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import lru_cache
from operator import attrgetter
from pathlib import Path
from typing import Any, Literal, NamedTuple, cast, get_origin

import yaml
from omegaconf import DictConfig, ListConfig, OmegaConf
from omegaconf.errors import OmegaConfBaseException

from openmaia.config import environment, uses
from openmaia.config.checks import check
from openmaia.config.machine import MACHINE_SECTIONS, POOLS, TEST_GENERATOR
from openmaia.config.named import find_config, shipped_config, what_to_give
from openmaia.config.prices import fill_prices
from openmaia.config.schema import Config
from openmaia.config.sections import (
    Choice,
    Classes,
    choose,
    class_of,
    default_classes,
    hints,
    kinds_with,
    section_of,
    sections,
    stored_classes,
    users_machine_keys,
)
from openmaia.config.suggestions import suggest
from openmaia.core.components import ALIASES, ComponentConfig
from openmaia.core.documents import compose_yaml, parse_yaml
from openmaia.core.errors import UsageError

SWEEPS = "sweeps"  # a key of YAML files, not of configs

# Must be equal in all sweeps of a command, because they use the same pools.
SHARED = (
    *(section for section in MACHINE_SECTIONS if section != "sandbox"),
    *("pictures", "generator", "editor", "backbone", "viewer", "evaluate.generator"),
)

DIGESTS = "digests"
"""The key of a stored config that holds digests of the values from the environment. It is not in the schema."""
MACHINE_KEYS = "machine_keys"
"""The key of a stored config that holds the machine keys of the user's components. It is not in the schema."""
BESIDE = (DIGESTS, MACHINE_KEYS)
"""The keys of a stored config that are not in the schema."""

# Outside of the sections of components.
_FREE = (*(f"pools.{role}.node_labels" for role in (*POOLS, TEST_GENERATOR)),)


def is_free(key: str) -> bool:
    """Returns whether the value of a dotted key may be a mapping whose keys the user chooses."""
    return key in _FREE or section_of(key) is not None


def leaf(key: str) -> str:
    """Returns the config key that a dotted key is, or is inside of, as `backbone.arguments.seed` may be."""
    if section := section_of(key):
        return f"{section.key}.{key.removeprefix(f'{section.key}.').partition('.')[0]}"
    return next((free for free in _FREE if key.startswith(f"{free}.")), key)


def load(sources: Sequence[str], listing: str = "", *, exempt: Collection[str] = ()) -> Config:
    """Merges config files and overrides into one complete config.

    Args:
        sources: YAML files, names of shipped configs, and `key=value` overrides. Later ones win.
        listing: The source whose key `sweeps` is ignored (see `load_sweeps`), if one has it.
        exempt: Keys that are accepted even if the config does not use them, because the caller does.

    Raises:
        UsageError: A file is missing, a key is unknown (the message names the nearest one), a value has the wrong type
            or is out of range, a required value is missing, or keys contradict each other.
    """
    environment.watch()
    return _complete(_merge_all(_read_all(sources, listing)), exempt)


def find_left_out(sources: Sequence[str], listing: str = "") -> dict[str, str]:
    """Returns the keys that files among the sources set and the config does not use, so that they have their default.

    The value says what stands in the way, such as `backbone.kind=openai`. `openmaia.config.uses` says when such keys
    are not refused.
    """
    return _merge_all(_read_all(sources, listing)).excused


def given_keys(sources: Sequence[str], *, files: bool = False) -> list[str]:
    """Returns the dotted keys that the overrides among the sources set; with `files`, the YAML files, too."""
    read = [source for source in sources if files or find_config(source) is None]
    return [key for source in read for key in _written(_read(source).overlay)]


def refuse_unused_by(command: str, sources: Sequence[str]) -> None:
    """Refuses overrides that a command does not use. See `uses.refuse_of_command`."""
    uses.refuse_of_command(command, given_keys(sources))


def changed_keys(config: Config) -> list[str]:
    """Returns the dotted keys whose value is not the default."""
    defaults = _defaults(classes_of(config))
    return [key for key, value in _unresolved(to_dict(config)).items() if value != defaults.get(key)]


def restore(
    values: Mapping[str, Any], source: str, overlays: Sequence[str] = (), *, exempt: Collection[str] = ()
) -> Config:
    """Returns the config that a run stored, with overrides if there are any.

    Args:
        values: The content of its config.yaml.
        source: The run's name, for messages.
        overlays: As the sources of `load`.
        exempt: As for `load`.

    Raises:
        UsageError: As `load`.
    """
    environment.watch()
    return _complete(_merge_all([_stored(values, source), *_read_all(overlays)]), exempt)


def load_sweeps(sources: Sequence[str]) -> list[Config]:
    """Returns the configs of a command: one, or one for each sweep if a source lists several.

    A YAML file with the key `sweeps` lists config files, with paths relative to its own folder. Each is merged, in this
    order, from the sources before the listing file, the listed file, the other keys of the listing file, and the
    sources after it.

    Raises:
        UsageError: As `load`, or if two sweeps have one name, or differ in a section of SHARED.
    """
    divided = sweep_sources(sources)
    configs = [load(each, listing) for each, listing in divided]
    source = divided[0][1]
    for number, config in enumerate(configs):
        if config.name in [other.name for other in configs[:number]]:
            raise UsageError(f"{source}: two sweeps have the name {config.name!r}, and with it one run directory")
        differing = differing_keys(to_dict(configs[0]), to_dict(config), SHARED)
        if differing:
            raise UsageError(
                f"{source}: sweeps of one command share their models and machines, but {', '.join(differing)} differ "
                f"between {configs[0].name} and {config.name}; give them after the listing file, or run the two one by one"
            )
    return configs


def sweep_sources(sources: Sequence[str]) -> list[tuple[list[str], str]]:
    """Returns (sources, listing), as for `load`, for each config of a command. Raises UsageError for two listings."""
    listing = [(position, paths) for position, source in enumerate(sources) if (paths := _listed(source))]
    if not listing:
        return [(list(sources), "")]
    if len(listing) > 1:
        raise UsageError(f"{sources[listing[0][0]]} and {sources[listing[1][0]]} both name sweeps; give one of them")
    position, paths = listing[0]
    return [([*sources[:position], path, *sources[position:]], sources[position]) for path in paths]


def _listed(source: str) -> list[str]:
    path = find_config(source)
    if path is None:
        return []
    with _errors_of(source):
        paths: Any = _read(source).overlay.get(SWEEPS)
        if paths is None:
            return []
        if not isinstance(paths, ListConfig) or not paths or not all(isinstance(each, str) for each in paths):
            raise UsageError(f"{source}: sweeps is a list of config files, such as [resnet152.yaml, dino_vits8.yaml]")
        return [_beside(path, cast(str, each)) for each in paths]


def _beside(listing: Path, name: str) -> str:
    """Returns the source that a listing names: a file beside it, or one that comes with the program."""
    file = listing.parent / name
    return name if shipped_config(name) and not file.is_file() else str(file)


UNREADABLE = (OSError, ValueError, yaml.YAMLError, TypeError, AttributeError, LookupError)
"""What `read_yaml` raises besides exceptions of OmegaConf. The last three are for values that do not have their
explicit type, such as `!!timestamp 5`."""


def read_yaml(path: Path) -> tuple[Any, yaml.Node | None]:
    """Reads a bounded YAML file (`openmaia.core.documents`): as an object of OmegaConf, and as nodes with values as
    written.

    Raises:
        One of UNREADABLE, or OmegaConfBaseException: The file is missing, no YAML, or beyond the bounds.
    """
    text = path.read_text("utf-8")
    written = compose_yaml(text)
    return OmegaConf.load(io.StringIO(text)), written


class _Source(NamedTuple):
    name: str
    overlay: DictConfig
    # The schema of its sections is known only when all sources are read. Until then both forms are kept, so that YAML's
    # reading of a text can be undone.
    written: yaml.Node | None
    is_file: bool
    is_stored: bool = False  # the whole config of a run


def _read_all(sources: Sequence[str], listing: str = "") -> list[_Source]:
    found: list[_Source] = []
    for name in sources:
        with _errors_of(name):
            source = _read(name)
            if name == listing:
                source.overlay.pop(SWEEPS)
            for key in BESIDE if source.is_file else ():
                source.overlay.pop(key, None)  # it is the config.yaml of a run
            found.append(source)
    return found


def _read(source: str) -> _Source:
    path = find_config(source)
    if path is None and "=" in source:
        return _Source(source, *_override(source), is_file=False)
    if path is None:
        raise UsageError(f"config {source!r} is neither a file nor key=value; {what_to_give(source)}")
    try:
        loaded, written = read_yaml(path)
    except OmegaConfBaseException:  # some are ValueErrors; `_errors_of` translates them
        raise
    except UNREADABLE as error:
        raise UsageError(f"{source} is not valid YAML: {' '.join(str(error).split())}") from None
    if not isinstance(loaded, DictConfig):
        raise UsageError(f"{source} holds a list; a config is a mapping of keys to values")
    return _Source(source, loaded, written, is_file=True)


_INHERITED = "<<"  # YAML takes the content of another mapping under this key


def _keep_texts(
    config: DictConfig,
    written: yaml.MappingNode,
    texts: Collection[str],
    section: str = "",
    hidden: frozenset[str] = frozenset(),
) -> None:
    """Sets the values of all keys for text as they are written, in place. YAML reads 010 as 8, 0.10 as 0.1, no as
    False.

    Args:
        config: A source, or a section of it.
        written: The same before YAML interpreted it.
        texts: The dotted keys for text.
        section: What stands before its keys, such as "target.".
        hidden: Keys of `written` that do not count, because a mapping that inherits from it has them.
    """
    own = hidden | {name.value for name, _ in written.value}
    for name, value in written.value:
        if name.value in hidden or (name.value != _INHERITED and name.value not in config):  # it was set aside
            continue
        if name.value == _INHERITED:
            for inherited in value.value if isinstance(value, yaml.SequenceNode) else [value]:
                _keep_texts(config, inherited, texts, section, own)
                own |= {name.value for name, _ in inherited.value}
        elif f"{section}{name.value}" in texts:
            config[name.value] = _text(value)
        elif isinstance(value, yaml.MappingNode) and isinstance(config.get(name.value), DictConfig):
            _keep_texts(config[name.value], value, texts, f"{section}{name.value}.")


def _text(written: yaml.Node) -> Any:
    if isinstance(written, yaml.MappingNode):
        return {name.value: _text(value) for name, value in written.value}
    if isinstance(written, yaml.SequenceNode):
        return [_text(value) for value in written.value]
    return None if written.tag == "tag:yaml.org,2002:null" else written.value


def _text_keys(schema: type, classes: Classes, prefix: str = "") -> frozenset[str]:
    """The dotted keys of a text, a list of texts, or a mapping to texts."""
    found = set[str]()
    for name, kind in hints(schema, classes, prefix).items():
        if dataclasses.is_dataclass(kind):
            found |= _text_keys(cast(type, kind), classes, f"{prefix}{name}.")
        elif kind is str or get_origin(kind) is Literal or kind in (list[str], dict[str, str]):
            found.add(f"{prefix}{name}")
    return frozenset(found)


def _override(source: str) -> tuple[DictConfig, yaml.Node | None]:
    try:
        source.encode()
    except UnicodeEncodeError:
        raise UsageError(f"{source!a} is not UTF-8, in which configs are stored; rename the file or folder") from None
    key, _, value = source.partition("=")
    try:
        written = compose_yaml(value)  # first, because it bounds what aliases stand for
        overlay = OmegaConf.from_dotlist([source])
    except OmegaConfBaseException:
        raise
    except UNREADABLE as error:
        raise UsageError(f"{source} has a value that is not valid YAML: {' '.join(str(error).split())}") from None
    for name in reversed(key.split(".") if written is not None else ()):
        written = yaml.MappingNode("tag:yaml.org,2002:map", [(yaml.ScalarNode("tag:yaml.org,2002:str", name), written)])
    return overlay, written


@contextmanager
def _errors_of(source: str) -> Generator[None]:
    """Translates errors of OmegaConf into a UsageError that names the source."""
    try:
        yield
    except OmegaConfBaseException as error:
        raise UsageError(f"{source}: {_message(error)}") from None  # what OmegaConf quotes may be a secret
    except ArithmeticError as error:  # a whole number that is too large for a key with a float
        raise UsageError(f"{source}: {str(error).splitlines()[0]}") from None


class _Merged(NamedTuple):
    config: DictConfig
    classes: Classes
    # By key of a file, the setting that stands in the way. The key got its default.
    excused: dict[str, str]
    refused: list[str]


class _Overlaid(NamedTuple):
    """Sources merged, whether the config uses their keys or not."""

    config: DictConfig
    choice: Choice
    is_override: dict[str, bool]
    """The keys that sources set, and whether the last of them is no file."""
    aside: dict[str, str]
    """Keys that were written for another kind, with the setting that stands in the way."""


def _merge_all(sources: Sequence[_Source]) -> _Merged:
    config, choice, is_override, aside = _overlay(sources)
    defaults = _defaults(choice.classes)
    try:
        found = uses.find_unused(is_override, config)
        of_files = {key for key in found if not is_override[key]}
        was_used = _used_before(of_files, sources) if of_files else set[str]()
        own = users_machine_keys(choice.kinds, choice.classes)
        unused = {
            key: uses.chosen(found[key], config)
            for key in of_files
            if key in was_used or key in own or uses.is_machine_key(key, choice.kinds)
        }
        for key in unused:
            OmegaConf.update(config, key, copy.deepcopy(defaults[key]), merge=False)
    except OmegaConfBaseException as error:
        raise UsageError(_message(error)) from error
    return _Merged(config, choice.classes, aside | unused, sorted(found.keys() - unused.keys()))


def _overlay(sources: Sequence[_Source]) -> _Overlaid:
    layers = _layers([each._replace(overlay=copy.deepcopy(each.overlay)) for each in sources])
    try:
        choice = choose(
            [[source.overlay for source in layer] for layer in layers], [layer[0].is_file for layer in layers]
        )
    except OmegaConfBaseException as error:
        raise UsageError(_message(error)) from None
    defaults = _defaults(choice.classes)
    merged, texts = copy.deepcopy(_schema(choice.classes)), _text_keys(Config, choice.classes)
    for key in [key for key, kind in choice.kinds.items() if kind]:
        OmegaConf.update(merged, f"{key}.kind", choice.kinds[key])
    is_override: dict[str, bool] = {}
    excused: dict[str, str] = {}
    for layer, aside in zip(layers, choice.aside, strict=True):
        for source in layer:
            with _errors_of(source.name):
                set_aside = _set_aside(source, aside)
                if not source.is_stored:
                    excused |= {key: _standing_in_the_way(key, choice.kinds) for key in set_aside}
                if isinstance(source.written, yaml.MappingNode):
                    _keep_texts(source.overlay, source.written, texts)
                _refuse_unknown(source, choice)
                # In place, because copying the whole config for each override takes 20 ms.
                merged.merge_with(source.overlay)
                if source.is_stored:
                    continue
                given = _written(source.overlay)
                # A file that lists all keys, such as the config.yaml of a run, sets those that have no default.
                is_override |= {
                    key: not source.is_file for key in given if not source.is_file or given[key] != defaults.get(key)
                }
    return _Overlaid(merged, choice, is_override, excused)


def _used_before(keys: Collection[str], sources: Sequence[_Source]) -> set[str]:
    """Returns those of some keys that the sources up to and including one of the files use."""
    used = set[str]()
    for number in [number for number, source in enumerate(sources[:-1], 1) if source.is_file]:
        try:
            part = _overlay(sources[:number])
        except UsageError:  # A later source brings what this one needs, such as the kind that has its keys.
            continue
        given = part.is_override.keys() & keys
        used |= given - uses.find_unused(given, part.config).keys()
    return used


def _layers(sources: Sequence[_Source]) -> list[list[_Source]]:
    """A layer is a file, or all overrides between two files, whose order does not matter."""
    layers: list[list[_Source]] = []
    for source in sources:
        if layers and not source.is_file and not layers[-1][-1].is_file:
            layers[-1].append(source)
        else:
            layers.append([source])
    return layers


def _set_aside(source: _Source, aside: Collection[str]) -> list[str]:
    """Removes the keys of another kind from a source, and sections that are null. Returns the keys that had a value."""
    found: list[str] = []
    for key in sections():
        above, _, name = key.rpartition(".")
        parent: Any = OmegaConf.select(source.overlay, above) if above else source.overlay
        if not isinstance(parent, DictConfig) or name not in parent:
            continue
        section = parent[name]
        for own in [own for own in section if f"{key}.{own}" in aside] if isinstance(section, DictConfig) else []:
            section.pop(own)
            found += [f"{key}.{own}"] if own != "kind" else []
        if section is None or section == {}:
            _drop(source.overlay, key)
    return found


def _standing_in_the_way(key: str, kinds: Mapping[str, str]) -> str:
    section = section_of(key)
    return f"{section.key}.kind={kinds[section.key] or 'null'}" if section else ""


def _refuse_unknown(source: _Source, choice: Choice) -> None:
    known = _defaults(choice.classes)
    # The value of an override is not repeated: behind a mistyped key it may be a secret.
    name = source.name if source.is_file else source.name.partition("=")[0]
    for key in _written(source.overlay):
        if key == SWEEPS:
            raise UsageError(f"{name} names several sweeps, and one is needed here; give one of its files")
        if key not in known:
            if within := [each for each in known if each.startswith(f"{key}.")]:
                raise UsageError(f"{name}: {key} is a section; give one of its keys, such as {min(within)}")
            if (section := section_of(key)) and (others := kinds_with(key)):
                raise UsageError(
                    f"{name}: {section.key}.kind={choice.kinds[section.key] or 'null'} has no key "
                    f"{key.rpartition('.')[2]!r}; {section.key}.kind={' or '.join(others)} has it"
                )
            # A key of no section may mean one of any kind.
            near = known if section else sorted({*known, *config_keys()})
            meant = " or ".join(repr(each) for each in suggest(key, near))
            raise UsageError(f"{name}: unknown key {key!r}; did you mean {meant}?")


def _written(overlay: DictConfig) -> dict[str, Any]:
    # Not resolved: interpolations may name keys of other sources.
    return _unresolved(cast("dict[str, Any]", OmegaConf.to_container(overlay)))


def _schema(classes: Classes) -> DictConfig:
    return _structured(tuple(classes.items()))


@lru_cache(32)
def _structured(classes: tuple[tuple[str, type[ComponentConfig] | None], ...]) -> DictConfig:
    # Cached, because building it takes five times as long as copying it.
    schema = OmegaConf.structured(Config)
    for key, config in classes:
        if config is not None:
            OmegaConf.update(schema, key, OmegaConf.structured(config), merge=False)
            if default := sections()[key].default:
                OmegaConf.update(schema, f"{key}.kind", default)
    return schema


def _defaults(classes: Classes) -> dict[str, Any]:
    return _default_values(tuple(classes.items()))


@lru_cache(32)
def _default_values(classes: tuple[tuple[str, type[ComponentConfig] | None], ...]) -> dict[str, Any]:
    return _values(_structured(classes))


def classes_of(config: Config) -> dict[str, type[ComponentConfig] | None]:
    """Returns the class of each section that holds a component."""
    found: dict[str, type[ComponentConfig] | None] = {}
    for key in sections():
        value = attrgetter(key)(config)
        found[key] = None if value is None else type(value)
    return found


def config_keys() -> list[str]:
    """Returns all config keys in alphabetical order, those of all built-in kinds."""
    found = set(_defaults(default_classes()))
    for key, section in sections().items():
        found |= {f"{key}.{name}" for kind in ALIASES[section.role] for name in hints(class_of(section, kind), {})}
    return sorted(found - sections().keys())


def _values(config: DictConfig) -> dict[str, Any]:
    return dict(leaves(config))


def leaves(config: DictConfig, prefix: str = "") -> Iterator[tuple[str, Any]]:
    """Yields (name, value), dotted. A mapping with the user's keys is a leaf; a missing required value is None."""
    for name in config:
        value = None if OmegaConf.is_missing(config, name) else config[name]
        if isinstance(value, DictConfig) and len(value) and not is_free(f"{prefix}{name}"):
            yield from leaves(value, f"{prefix}{name}.")
        else:
            yield f"{prefix}{name}", value


def _complete(found: _Merged, exempt: Collection[str]) -> Config:
    merged = found.config
    try:
        missing = sorted(OmegaConf.missing_keys(merged))
    except OmegaConfBaseException as error:
        raise UsageError(_message(error)) from None
    if missing:
        raise UsageError(f"the config leaves out {', '.join(missing)}; add it to the file or as {missing[0]}=VALUE")
    try:
        expressions = environment.find_expressions(merged)
        config = cast(Config, OmegaConf.to_object(merged))
        values = _values(merged)
    except OmegaConfBaseException as error:
        raise UsageError(_message(error)) from None  # what OmegaConf quotes may be a secret
    check(config, values, _defaults(found.classes), {".".join(map(str, path)) for path in expressions})
    fill_prices(config)
    environment.mark(config, expressions)
    uses.refuse([key for key in found.refused if key not in exempt], config)
    return config


def _message(error: OmegaConfBaseException) -> str:
    # The lines below say the key and the type again, in OmegaConf's words.
    key, message = error.full_key or "", str(error).splitlines()[0]
    if "Incompatible value 'None'" in message:
        message = "a value is missing"
    elif "is not a ListConfig" in message:
        message = f"a list is needed, such as {key}=[a,b]"
    return f"{key}: {message}" if key else message


def to_dict(config: Config) -> dict[str, Any]:
    """Returns the config as it is stored and shown: expressions for values from the environment, asterisks for secret
    parts of URLs, DIGESTS if there are such expressions, and MACHINE_KEYS if components of the user have some."""
    values, digests = environment.stored(config)
    machine = users_machine_keys(kinds_of(values), classes_of(config))
    return values | ({DIGESTS: digests} if digests else {}) | ({MACHINE_KEYS: machine} if machine else {})


def stored_values(values: Mapping[str, Any], source: str) -> dict[str, Any]:
    """Returns the config that a run stored, as nested dicts.

    Unlike `restore`, it checks neither ranges nor contradictions. A key that is younger than the run has its default.

    Args:
        values: The content of the run's config.yaml.
        source: Its name, for messages.

    Raises:
        UsageError: A key is unknown, a value has the wrong type, or a required value is missing.
    """
    source_read = _stored(values, source)
    overlay, kinds = source_read.overlay, kinds_of(values)
    classes = stored_classes(kinds)
    # What a user's component wrote is taken as it is: opening a run imports nothing that it names.
    own = {key: OmegaConf.to_container(OmegaConf.select(overlay, key)) for key in sections() if key not in classes}
    merged = copy.deepcopy(_schema(dict.fromkeys(sections()) | dict(classes)))
    with _errors_of(source):
        for key in sections():
            if key in own or OmegaConf.select(overlay, key) is None:
                _drop(overlay, key)
        _refuse_unknown(source_read, Choice(kinds, dict.fromkeys(sections()) | dict(classes), []))
        merged.merge_with(overlay)
        if missing := sorted(
            key for key in OmegaConf.missing_keys(merged) if not key.startswith(tuple(f"{each}." for each in own))
        ):
            raise UsageError(f"{source} lacks {missing[0]}")
        found = cast("dict[str, Any]", OmegaConf.to_container(merged))
    for key, value in own.items():
        above, _, name = key.rpartition(".")
        (found[above] if above else found)[name] = value
    return found | {key: values[key] for key in BESIDE if key in values}


def kinds_of(values: Mapping[str, Any]) -> dict[str, str]:
    """Returns the kind of each component; "" for one that is absent."""
    found: dict[str, str] = {}
    for key, section in sections().items():
        value: Any = values
        for name in key.split("."):
            value = cast("Mapping[str, Any]", value).get(name) if isinstance(value, Mapping) else None
        kind: Any = cast("Mapping[str, Any]", value).get("kind", section.default) if isinstance(value, Mapping) else ""
        found[key] = kind if isinstance(kind, str) else ""
    return found


def _drop(overlay: DictConfig, key: str) -> None:
    """Removes a section, and those around it that are empty without it."""
    above, _, name = key.rpartition(".")
    parent: Any = OmegaConf.select(overlay, above) if above else overlay
    if isinstance(parent, DictConfig) and name in parent:
        parent.pop(name)
        if above and not len(parent):
            _drop(overlay, above)


_REFERENCE = re.compile(r"\$\{(?!oc\.env:)")


def _stored(values: Mapping[str, Any], source: str) -> _Source:
    for key, value in _flat(values):
        # A config is stored with its references resolved. In one that was not, a few of them can stand for gigabytes.
        if isinstance(value, str) and _REFERENCE.search(value):
            raise UsageError(f"{source}: {key} has an interpolation, {value[:60]!r}; a stored config holds values")
    with _errors_of(source):
        overlay = OmegaConf.create({name: value for name, value in values.items() if name not in BESIDE})
    return _Source(source, overlay, None, is_file=True, is_stored=True)


def to_yaml(config: Config) -> str:
    """Returns `to_dict` as YAML."""
    return OmegaConf.to_yaml(OmegaConf.create(to_dict(config)))


def differing_keys(one: dict[str, Any], other: dict[str, Any], within: Sequence[str] | None = None) -> list[str]:
    """Returns the dotted keys in which two complete configs differ.

    Args:
        within: Sections to compare, such as "evaluate.generator". None: everything but machine keys.
    """

    kinds = kinds_of(one), kinds_of(other)
    machine = _machine_keys_of(one), _machine_keys_of(other)

    def is_compared(key: str) -> bool:
        if within is None:
            return not any(is_machine(key) for is_machine in machine)
        return any(f"{key}.".startswith(f"{section}.") for section in within)

    a, b = (_unresolved(values) for values in (one, other))
    for key, digest in one.get(DIGESTS, {}).items():
        if key in (digests := other.get(DIGESTS, {})):
            a[key], b[key] = a.get(key), b.get(key)
            a[key], b[key] = (a[key], digest), (b[key], digests[key])
    differing = {key for key in a.keys() | b.keys() if a.get(key) != b.get(key) and is_compared(key)}
    for key in [key for key in sections() if kinds[0][key] != kinds[1][key]]:
        # Components of two kinds differ in their kind; that their other keys differ says nothing more.
        if own := {each for each in differing if each == key or each.startswith(f"{key}.")}:
            differing = differing - own | {f"{key}.kind"}
    return sorted(differing)


def defining_values(values: Mapping[str, Any], without: Collection[str] = ()) -> dict[str, Any]:
    """Returns the keys of a stored config that its results depend on: all but `name`, machine keys and those in
    `without`.

    Args:
        values: The content of a config.yaml, with interpolations as they are written.
    """
    # Defaults are left out: a version with a new key would take all earlier results for those of another config.
    skipped, is_machine = {"name", MACHINE_KEYS, *without}, _machine_keys_of(values)
    defaults = _written_defaults(tuple(stored_classes(kinds_of(values)).items()))
    return {
        key: value
        for key, value in _flat(values)
        if (own := key.removeprefix(f"{DIGESTS}.")) not in skipped
        and own.split(".")[0] not in skipped
        and not is_machine(own)
        and value != defaults.get(key)
    }


def _machine_keys_of(values: Mapping[str, Any]) -> Callable[[str], bool]:
    """Returns a function that says whether a key of a stored config is a machine key. It imports nothing that the
    config names."""
    kinds, stored = kinds_of(values), values.get(MACHINE_KEYS)
    own = cast("list[Any]", stored) if isinstance(stored, list) else []
    return lambda key: key in own or uses.is_machine_key(key, kinds)


@lru_cache(32)
def _written_defaults(classes: tuple[tuple[str, type[ComponentConfig] | None], ...]) -> dict[str, Any]:
    return dict(_flat(parse_yaml(OmegaConf.to_yaml(_structured(classes)))))


def _flat(values: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    for name, value in values.items():
        if isinstance(value, Mapping) and value:
            yield from _flat(cast("Mapping[str, Any]", value), f"{prefix}{name}.")
        else:
            yield f"{prefix}{name}", value


def _unresolved(values: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """The leaves by dotted key, without what stands BESIDE."""
    found: dict[str, Any] = {}
    for name, value in values.items():
        if not prefix and name in BESIDE:
            continue
        if isinstance(value, Mapping) and value and not is_free(f"{prefix}{name}"):
            found |= _unresolved(cast("Mapping[str, Any]", value), f"{prefix}{name}.")
        else:
            found[f"{prefix}{name}"] = value
    return found
