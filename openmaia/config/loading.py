"""Reads YAML files and key=value overrides into a complete, checked config."""

import copy
import dataclasses
import io
import re
from collections.abc import Collection, Generator, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple, cast, get_type_hints

import yaml
from omegaconf import DictConfig, ListConfig, OmegaConf
from omegaconf.errors import OmegaConfBaseException

from openmaia.config import environment, uses
from openmaia.config.checks import check
from openmaia.config.machine import MACHINE_KEYS, MACHINE_SECTIONS, POOLS, TEST_GENERATOR
from openmaia.config.schema import Config
from openmaia.config.suggestions import suggestions
from openmaia.core.documents import compose_yaml, parse_yaml
from openmaia.core.errors import UsageError

SWEEPS = "sweeps"
"""Key under which a YAML file lists the config files of several sweeps. It is not a key of a config.

A sweep is the execution of one config: the investigations of all its units.
"""

SHARED = (
    *(section for section in MACHINE_SECTIONS if section != "sandbox"),
    *("pictures", "generator", "editor", "backbone", "viewer", "evaluate.generator"),
)
"""Sections that must be equal in all sweeps of a command, because the sweeps use the same pools of models."""

DIGESTS = "digests"
"""Key of a stored config, beside those of the schema: digests of the values that came from the environment."""

FREE = (
    *(f"{section}.vllm.arguments" for section in ("backbone", "viewer", "evaluate.writer")),
    *(f"{section}.api.arguments" for section in ("generator", "editor", "evaluate.generator")),
    "target.directions",
    "target.entries",
    *(f"pools.{role}.node_labels" for role in (*POOLS, TEST_GENERATOR)),
)
"""Config keys whose value is a mapping with keys that the user chooses."""


def load(sources: Sequence[str], listing: str = "", *, exempt: Collection[str] = ()) -> Config:
    """Merges config files and overrides into one complete config.

    Args:
        sources: YAML files and `key=value` overrides. Later ones win.
        listing: The source that has the key `sweeps` (see `load_sweeps`), which is ignored here. Empty if no source has
            this key.
        exempt: Keys that are accepted even if the config does not use them, because the caller does.

    Raises:
        UsageError: A file is missing, a key is unknown (the message names the nearest one), a value has the wrong type
            or is out of range, a required value is missing, or keys contradict each other.
    """
    environment.watch()
    merged = copy.deepcopy(_schema())
    return _complete(merged, _merge_all(merged, sources, listing), exempt)


def left_out(sources: Sequence[str], listing: str = "") -> dict[str, str]:
    """Returns the keys that files among the sources set and that the resulting config does not use.

    They have their default in the config. See `openmaia.config.uses` for when such keys are not refused.

    Args:
        sources: As for `load`.
        listing: As for `load`.

    Returns:
        The setting that stands in the way, such as `backbone.kind=openai`, by dotted key.
    """
    merged = copy.deepcopy(_schema())
    return _merge_all(merged, sources, listing).excused


def given_keys(sources: Sequence[str]) -> list[str]:
    """Returns the dotted keys that `key=value` overrides among the sources set."""
    overrides = [source for source in sources if not is_file(Path(source))]
    return [key for source in overrides for key in _written(_overlay(source))]


def refuse_unused_by(command: str, sources: Sequence[str]) -> None:
    """Checks that a command uses the keys that overrides among its sources set. See `uses.refuse_of_command`."""
    uses.refuse_of_command(command, given_keys(sources))


def changed_keys(config: Config) -> list[str]:
    """Returns the dotted keys whose value in a config is not the default."""
    return [key for key, value in _unresolved(to_dict(config)).items() if value != _defaults()[key]]


def restore(
    values: Mapping[str, Any], source: str, overlays: Sequence[str] = (), *, exempt: Collection[str] = ()
) -> Config:
    """Returns the config that a run stored, with overrides if there are any.

    Args:
        values: The content of the run's config.yaml.
        source: The name of the run in error messages.
        overlays: YAML files and `key=value` overrides that change it. Later ones win.
        exempt: As for `load`.

    Raises:
        UsageError: As `load`.
    """
    environment.watch()
    merged = _stored(values, source)
    return _complete(merged, _merge_all(merged, overlays), exempt)


def load_sweeps(sources: Sequence[str]) -> list[Config]:
    """Returns the configs of a command: one, or one for each sweep if a source lists several.

    A sweep is the execution of one config. A YAML file with the key `sweeps` lists config files, with paths relative to
    its own folder. Each listed file gives one config. It is merged, in this order, from the sources before the listing
    file, the listed file, the other keys of the listing file, and the sources after the listing file.

    Args:
        sources: YAML files and `key=value` overrides. Later ones win.

    Raises:
        UsageError: As `load`, or if two sweeps have the same name, or if they differ in a section that must be equal in
            all sweeps of a command (see SHARED).
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
    """Returns, for each config of a command, the sources that are merged into it.

    A command has several configs if one of its YAML files has the key `sweeps`, which lists other config files.

    Args:
        sources: The YAML files and `key=value` overrides of the command.

    Returns:
        (sources, listing) for each config. `listing` is the file with the key `sweeps`, or "" if no file has it.

    Raises:
        UsageError: Two files have the key `sweeps`.
    """
    listing = [(position, paths) for position, source in enumerate(sources) if (paths := _listed(source))]
    if not listing:
        return [(list(sources), "")]
    if len(listing) > 1:
        raise UsageError(f"{sources[listing[0][0]]} and {sources[listing[1][0]]} both name sweeps; give one of them")
    position, paths = listing[0]
    return [([*sources[:position], path, *sources[position:]], sources[position]) for path in paths]


def _listed(source: str) -> list[str]:
    """Returns the paths of the config files that a source lists under the key `sweeps`; empty if it has no such key.

    Raises:
        UsageError: The value of the key is not a list of texts, or is empty.
    """
    path = Path(source)
    if not is_file(path):
        return []
    with _errors_of(source):
        paths: Any = _overlay(source).get(SWEEPS)
        if paths is None:
            return []
        if not isinstance(paths, ListConfig) or not paths or not all(isinstance(each, str) for each in paths):
            raise UsageError(f"{source}: sweeps is a list of config files, such as [resnet152.yaml, dino_vits8.yaml]")
        return [str(path.parent / cast(str, each)) for each in paths]


UNREADABLE = (OSError, ValueError, yaml.YAMLError, TypeError, AttributeError, LookupError)
"""Exceptions of `read_yaml`, other than those of OmegaConf. The last three are raised for a value that does not have its
explicit type, such as `!!timestamp 5`."""


def read_yaml(path: Path) -> tuple[Any, yaml.Node | None]:
    """Reads a YAML file whose size, nesting and aliases are bounded (`openmaia.core.documents`).

    Returns:
        The content as an object of OmegaConf, and the nodes of YAML, in which values are as they are written.

    Raises:
        One of UNREADABLE, or OmegaConfBaseException: The file is missing, no YAML, or beyond the bounds.
    """
    text = path.read_text("utf-8")
    written = compose_yaml(text)
    return OmegaConf.load(io.StringIO(text)), written


def _overlay(source: str) -> DictConfig:
    path = Path(source)
    if "=" in source and not is_file(path):
        return _override(source)
    if not is_file(path):
        raise UsageError(
            f"config {source!r} is neither a file nor key=value; give a YAML file such as configs/demo.yaml"
        )
    try:
        loaded, written = read_yaml(path)
    except OmegaConfBaseException:  # some are ValueErrors; `_errors_of` translates them
        raise
    except UNREADABLE as error:
        raise UsageError(f"{source} is not valid YAML: {' '.join(str(error).split())}") from None
    if not isinstance(loaded, DictConfig):
        raise UsageError(f"{source} holds a list; a config is a mapping of keys to values")
    if isinstance(written, yaml.MappingNode):
        _keep_texts(loaded, written)
    return loaded


_INHERITED = "<<"
"""The key under which YAML takes the content of another mapping."""


def _keep_texts(
    config: DictConfig, written: yaml.MappingNode, section: str = "", hidden: frozenset[str] = frozenset()
) -> None:
    """Sets the values of all keys for text as they are written, in place. YAML reads 010 as 8, 0.10 as 0.1, no as False.

    Args:
        config: The content of a YAML file, or a section of it.
        written: The same content before YAML interpreted it.
        section: What stands before its keys, such as "target.".
        hidden: Keys of `written` that do not count, because a mapping that inherits from it has them.
    """
    own = hidden | {name.value for name, _ in written.value}
    for name, value in written.value:
        if name.value in hidden:
            continue
        if name.value == _INHERITED:
            for inherited in value.value if isinstance(value, yaml.SequenceNode) else [value]:
                _keep_texts(config, inherited, section, own)
                own |= {name.value for name, _ in inherited.value}
        elif f"{section}{name.value}" in _text_keys():
            config[name.value] = _text(value)
        elif isinstance(value, yaml.MappingNode) and isinstance(config.get(name.value), DictConfig):
            _keep_texts(config[name.value], value, f"{section}{name.value}.")


def _text(written: yaml.Node) -> Any:
    if isinstance(written, yaml.MappingNode):
        return {name.value: _text(value) for name, value in written.value}
    if isinstance(written, yaml.SequenceNode):
        return [_text(value) for value in written.value]
    return None if written.tag == "tag:yaml.org,2002:null" else written.value


@cache
def _text_keys(section: type = Config, prefix: str = "") -> frozenset[str]:
    """Returns the dotted keys whose value is a text, a list of texts, or a mapping to texts."""
    found = set[str]()
    for name, kind in get_type_hints(section).items():
        if dataclasses.is_dataclass(kind):
            found |= _text_keys(cast(type, kind), f"{prefix}{name}.")
        elif kind is str or kind in (list[str], dict[str, str]):
            found.add(f"{prefix}{name}")
    return frozenset(found)


def is_file(path: Path) -> bool:
    """Returns whether the path is an existing file. Returns False if the system does not accept it as a file name."""
    try:
        return path.is_file()
    except OSError:  # a long list of units, for example, is too long for the name of a file
        return False


def _override(source: str) -> DictConfig:
    try:
        source.encode()
    except UnicodeEncodeError:
        raise UsageError(f"{source!a} is not UTF-8, in which configs are stored; rename the file or folder") from None
    key, _, value = source.partition("=")
    try:
        written = compose_yaml(value)  # first, because it bounds what aliases stand for
        overlay = OmegaConf.from_dotlist([source])
        if {key, key.rpartition(".")[0]} & _text_keys() and written is not None:
            OmegaConf.update(overlay, key, _text(written), merge=False)
        return overlay
    except OmegaConfBaseException:
        raise
    except UNREADABLE as error:
        raise UsageError(f"{source} has a value that is not valid YAML: {' '.join(str(error).split())}") from None


@contextmanager
def _errors_of(source: str) -> Generator[None]:
    """Translates errors of OmegaConf inside the block into a UsageError that names the source."""
    try:
        yield
    except OmegaConfBaseException as error:
        raise UsageError(f"{source}: {_message(error)}") from None  # what OmegaConf quotes may be a secret
    except ArithmeticError as error:  # a whole number that is too large for a key with a float
        raise UsageError(f"{source}: {str(error).splitlines()[0]}") from None


class _Unused(NamedTuple):
    """The keys that the sources of a config set and that the config does not use."""

    excused: dict[str, str]
    """Keys of files, with the setting that stands in the way. They have got their default."""
    refused: list[str]


def _merge_all(merged: DictConfig, sources: Sequence[str], listing: str = "") -> _Unused:
    """Merges sources into a config in place.

    Args:
        merged: The config.
        sources: YAML files and `key=value` overrides.
        listing: The source whose key `sweeps` is ignored.
    """
    is_override: dict[str, bool] = {}
    was_used: set[str] = set()
    for source in sources:
        is_from_file = is_file(Path(source))
        with _errors_of(source):
            overlay = _overlay(source)
            if source == listing:
                overlay.pop(SWEEPS)
            if is_from_file and DIGESTS in overlay:
                overlay.pop(DIGESTS)  # it is the config.yaml of a run
            _merge(merged, overlay, source)
            given = _written(overlay)
            # A file that lists all keys, such as the config.yaml of a run, sets those that have no default.
            is_override |= {
                key: not is_from_file for key in given if not is_from_file or given[key] != _defaults()[key]
            }
            if is_from_file:
                was_used |= is_override.keys() - uses.unused(is_override, merged).keys()
    try:
        found = uses.unused(is_override, merged)
        excused = {
            key: f"{rule.chooser}={OmegaConf.select(merged, rule.chooser)}"
            for key, rule in found.items()
            if not is_override[key] and (key in was_used or uses.is_machine_key(key))
        }
        for key in excused:
            OmegaConf.update(merged, key, copy.deepcopy(_defaults()[key]), merge=False)
    except OmegaConfBaseException as error:
        raise UsageError(_message(error)) from error
    return _Unused(excused, sorted(found.keys() - excused.keys()))


def _merge(config: DictConfig, overlay: DictConfig, source: str) -> None:
    """Merges an overlay into a config in place, because copying the whole config for each override takes 20 ms."""
    _refuse_unknown(overlay, source)
    config.merge_with(overlay)


def _refuse_unknown(overlay: DictConfig, source: str) -> None:
    known = _defaults()
    for key in _written(overlay):
        if key == SWEEPS:
            raise UsageError(f"{source} names several sweeps, and one is needed here; give one of its files")
        if key not in known:
            if within := [name for name in known if name.startswith(f"{key}.")]:
                raise UsageError(f"{source}: {key} is a section; give one of its keys, such as {min(within)}")
            meant = " or ".join(repr(name) for name in suggestions(key, known))
            raise UsageError(f"{source}: unknown key {key!r}; did you mean {meant}?")


def _written(overlay: DictConfig) -> dict[str, Any]:
    """Returns the values of an overlay by dotted key. Interpolations are not resolved, as they may name other keys."""
    return _unresolved(cast("dict[str, Any]", OmegaConf.to_container(overlay)))


@cache
def _schema() -> DictConfig:
    """Returns the default config with its types. It is cached: building it takes five times as long as copying it."""
    return OmegaConf.structured(Config)


@cache
def _defaults() -> dict[str, Any]:
    return _values(_schema())


def config_keys() -> list[str]:
    """Returns all config keys, such as "target.name", in alphabetical order."""
    return sorted(_defaults())


def _values(config: DictConfig) -> dict[str, Any]:
    """Returns the values of all leaves by dotted key. The value of a required key that is missing is None."""
    return dict(leaves(config))


def leaves(config: DictConfig, prefix: str = "") -> Iterator[tuple[str, Any]]:
    """Yields all leaves of a config or section: (dotted name, value). A mapping with keys of the user's choice is a leaf.

    The value of a required key that is missing is None.

    Args:
        config: The config or a section of it.
        prefix: Text before each name, such as "target." if `config` is the section `target`.
    """
    for name in config:
        value = None if OmegaConf.is_missing(config, name) else config[name]
        if isinstance(value, DictConfig) and len(value) and f"{prefix}{name}" not in FREE:
            yield from leaves(value, f"{prefix}{name}.")
        else:
            yield f"{prefix}{name}", value


def _complete(merged: DictConfig, unused: _Unused, exempt: Collection[str]) -> Config:
    try:
        missing = sorted(OmegaConf.missing_keys(merged))
    except OmegaConfBaseException as error:
        raise UsageError(_message(error)) from None
    if missing:
        raise UsageError(f"the config leaves out {', '.join(missing)}; add it to the file or as {missing[0]}=VALUE")
    try:
        expressions = environment.expressions(merged)
        config = cast(Config, OmegaConf.to_object(merged))
        values = _values(merged)
    except OmegaConfBaseException as error:
        raise UsageError(_message(error)) from None  # what OmegaConf quotes may be a secret
    check(config, values, _defaults(), {".".join(map(str, path)) for path in expressions})
    environment.mark(config, expressions)
    uses.refuse([key for key in unused.refused if key not in exempt], config)
    return config


def _message(error: OmegaConfBaseException) -> str:
    """Returns a message of one line: the config key that an error of OmegaConf is about, and what is wrong."""
    key, message = error.full_key or "", str(error).splitlines()[0]
    if "Incompatible value 'None'" in message:
        message = "a value is missing"
    elif "is not a ListConfig" in message:
        message = f"a list is needed, such as {key}=[a,b]"
    return f"{key}: {message}" if key else message


def to_dict(config: Config) -> dict[str, Any]:
    """Returns the config as nested dicts, as it is stored and shown.

    Values from the environment are the expressions that read them, and secret parts of URLs are asterisks. If there are
    such expressions, the key DIGESTS has the digests of their values.
    """
    values, digests = environment.stored(config)
    return values | ({DIGESTS: digests} if digests else {})


def stored_values(values: Mapping[str, Any], source: str) -> dict[str, Any]:
    """Returns the config that a run stored, as nested dicts.

    Unlike `restore`, it does not check whether values are in range or whether keys contradict each other. A key that
    did not exist yet when the config was stored has its default.

    Args:
        values: The content of the run's config.yaml.
        source: The name of the file in error messages.

    Raises:
        UsageError: A key is unknown, a value has the wrong type, or a required value is missing.
    """
    merged = _stored(values, source)
    if missing := sorted(OmegaConf.missing_keys(merged)):
        raise UsageError(f"{source} lacks {missing[0]}")
    digests = {DIGESTS: values[DIGESTS]} if DIGESTS in values else {}
    with _errors_of(source):
        return cast("dict[str, Any]", OmegaConf.to_container(merged)) | digests


_REFERENCE = re.compile(r"\$\{(?!oc\.env:)")


def _stored(values: Mapping[str, Any], source: str) -> DictConfig:
    for key, value in _flat(values):
        # A config is stored with its references resolved. In one that was not, a few of them can stand for gigabytes.
        if isinstance(value, str) and _REFERENCE.search(value):
            raise UsageError(f"{source}: {key} has an interpolation, {value[:60]!r}; a stored config holds values")
    merged = copy.deepcopy(_schema())
    with _errors_of(source):
        _merge(merged, OmegaConf.create({name: value for name, value in values.items() if name != DIGESTS}), source)
    return merged


def to_yaml(config: Config) -> str:
    """Returns the config as YAML."""
    return OmegaConf.to_yaml(OmegaConf.create(to_dict(config)))


def differing_keys(one: dict[str, Any], other: dict[str, Any], sections: Sequence[str] | None = None) -> list[str]:
    """Returns the dotted keys in which two complete configs differ.

    Args:
        one: A config as nested dicts.
        other: Another one.
        sections: Sections to compare, such as "evaluate.generator". None: everything except the sections and keys
            that say where a run is executed (MACHINE_SECTIONS and MACHINE_KEYS).
    """

    def is_compared(key: str) -> bool:
        if sections is None:
            return key.split(".")[0] not in MACHINE_SECTIONS and key not in MACHINE_KEYS
        return any(f"{key}.".startswith(f"{section}.") for section in sections)

    a, b = (_unresolved(values) for values in (one, other))
    for key, digest in one.get(DIGESTS, {}).items():
        if key in (digests := other.get(DIGESTS, {})):
            a[key], b[key] = a.get(key), b.get(key)
            a[key], b[key] = (a[key], digest), (b[key], digests[key])
    return sorted(key for key in a.keys() | b.keys() if a.get(key) != b.get(key) and is_compared(key))


def defining_values(values: Mapping[str, Any], without: Collection[str] = ()) -> dict[str, Any]:
    """Returns the keys of a stored config that the results of its run depend on, by dotted name.

    These are all keys but `name` and those that say where a run is executed. Keys with their default are left out: a
    version of OpenMAIA with a new key would otherwise take all earlier results for those of another config.

    Args:
        values: The content of a config.yaml, as it is written: interpolations and secrets are not resolved.
        without: Further keys to leave out.
    """
    skipped = {"name", *MACHINE_SECTIONS, *MACHINE_KEYS, *without}
    return {
        key: value
        for key, value in _flat(values)
        if (own := key.removeprefix(f"{DIGESTS}.")) not in skipped
        and own.split(".")[0] not in skipped
        and value != _written_defaults().get(key)
    }


@cache
def _written_defaults() -> dict[str, Any]:
    return dict(_flat(parse_yaml(OmegaConf.to_yaml(_schema()))))


def _flat(values: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    for name, value in values.items():
        if isinstance(value, Mapping) and value:
            yield from _flat(cast("Mapping[str, Any]", value), f"{prefix}{name}.")
        else:
            yield f"{prefix}{name}", value


def _unresolved(values: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """Returns the leaves of nested dicts by dotted key, without DIGESTS. Interpolations are not resolved."""
    found: dict[str, Any] = {}
    for name, value in values.items():
        if isinstance(value, Mapping) and value and f"{prefix}{name}" not in FREE:
            found |= _unresolved(cast("Mapping[str, Any]", value), f"{prefix}{name}.") if name != DIGESTS else {}
        else:
            found[f"{prefix}{name}"] = value
    return found
