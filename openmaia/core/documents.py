"""Reads JSON and YAML that anybody may have written: size, nesting and the expansion of YAML aliases are bounded."""

import json
from collections.abc import Generator, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, cast

import yaml

MAX_JSON = 256 * 2**20  # bytes; characters of a text

MAX_YAML = 4 * 2**20  # likewise

# Code that copies or prints a document calls itself at each level.
_MAX_DEPTH = 100

MAX_NODES = 50_000  # values of a YAML document, each alias written out


def parse_json(data: bytes | str) -> Any:
    """Parses a JSON document. Raises ValueError if it is none, or beyond the bounds."""
    if len(data) > MAX_JSON:
        raise ValueError(f"it has {len(data):,} bytes, and at most {MAX_JSON:,} are read")
    try:
        value: Any = json.loads(data)
    except RecursionError:
        raise ValueError(_TOO_DEEP) from None
    brackets = (b"[", b"{") if isinstance(data, bytes) else ("[", "{")
    if sum(data.count(cast(Any, bracket)) for bracket in brackets) > _MAX_DEPTH and _is_deep(value):
        raise ValueError(_TOO_DEEP)
    return value


_TOO_DEEP = f"it is nested more than {_MAX_DEPTH} levels deep"


def _is_deep(value: Any) -> bool:
    level = [value]
    for _ in range(_MAX_DEPTH):
        level = [item for each in level for item in _items(each)]
        if not level:
            return False
    return True


def _items(value: Any) -> Sequence[Any]:
    parts: Any = cast("dict[str, Any]", value).values() if isinstance(value, dict) else value
    return [part for part in parts if isinstance(part, (dict, list))]


class _Loader(yaml.SafeLoader):
    # Counted while parsing: PyYAML would otherwise recurse through all of a deep document before it could be refused.
    depth = 0

    def compose_node(self, parent: yaml.Node | None, index: int) -> yaml.Node | None:
        self.depth += 1
        if self.depth > _MAX_DEPTH:
            raise ValueError(_TOO_DEEP)
        node = super().compose_node(parent, index)
        self.depth -= 1
        return node


def parse_yaml(data: bytes | str) -> Any:
    """Parses a YAML document; None if it is empty. Raises ValueError if it is none, or beyond the bounds."""
    documents = parse_yaml_documents(data)
    if len(documents) > 1:
        raise ValueError(f"it holds {len(documents)} documents, and one is expected")
    return documents[0] if documents else None


def parse_yaml_documents(data: bytes | str) -> list[Any]:
    """Parses all documents of a YAML file. Raises ValueError as `parse_yaml`."""
    with _loading(data) as loader:
        untyped: Any = loader
        return [untyped.construct_document(node) for node in _nodes(loader)]


def compose_yaml(data: bytes | str) -> yaml.Node | None:
    """Returns the nodes of a document, with values as written; None if it is empty. Raises as `parse_yaml`."""
    with _loading(data) as loader:
        return next(_nodes(loader), None)


@contextmanager
def _loading(data: bytes | str) -> Generator[_Loader]:
    if len(data) > MAX_YAML:
        raise ValueError(f"it has {len(data):,} bytes, and at most {MAX_YAML:,} are read")
    try:
        loader = _Loader(data.decode("utf-8-sig") if isinstance(data, bytes) else data)
        try:
            yield loader
        finally:
            loader.dispose()
    except (yaml.YAMLError, ArithmeticError, AttributeError, LookupError, TypeError) as error:
        # PyYAML raises the others for a value that does not have its explicit type, such as `!!timestamp 5`.
        raise ValueError(" ".join(str(error).split())) from error
    except RecursionError:
        raise ValueError(_TOO_DEEP) from None


def _nodes(loader: _Loader) -> Iterator[yaml.Node]:
    while loader.check_node():
        node: Any = loader.get_node()
        _check_expansion(node)
        yield node


def _check_expansion(root: yaml.Node) -> None:
    sizes: dict[int, tuple[int, int]] = {}
    _measure(root, sizes, set())
    if sizes[id(root)][0] > MAX_NODES:
        raise ValueError(f"it holds more than {MAX_NODES:,} values, if its aliases are written out")


def _measure(node: yaml.Node, sizes: dict[int, tuple[int, int]], above: set[int]) -> tuple[int, int]:
    """Returns the number of values that a node stands for, and their depth."""
    if (known := sizes.get(id(node))) is not None:
        return known
    if id(node) in above:
        raise ValueError("an alias stands for something that contains it")
    if len(above) > _MAX_DEPTH:
        raise ValueError(_TOO_DEEP)
    above.add(id(node))
    parts: list[yaml.Node] = []
    if isinstance(node, yaml.MappingNode):
        parts = [part for pair in node.value for part in pair]
    elif isinstance(node, yaml.SequenceNode):
        parts = node.value
    measured = [_measure(part, sizes, above) for part in parts]
    above.discard(id(node))
    depth = 1 + max((depth for _, depth in measured), default=0)
    if depth > _MAX_DEPTH:
        raise ValueError(_TOO_DEEP)
    sizes[id(node)] = 1 + sum(size for size, _ in measured), depth
    return sizes[id(node)]
