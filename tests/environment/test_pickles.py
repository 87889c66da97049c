"""Nothing that is read from a disk is unpickled: a search of the source for everything that would do it."""

import ast
import re
from collections.abc import Iterator

import pytest

from tests.conftest import REPOSITORY

PICKLING = {
    "pickle",
    "_pickle",
    "cPickle",
    "cloudpickle",
    "dill",
    "shelve",
    "joblib",
    "marshal",
    "diskcache",
    "jsonpickle",
}
HARMLESS = {("pickle", name) for name in ("UnpicklingError", "PicklingError", "dumps")}
"""What may be used of these modules."""
FORBIDDEN = {"read_pickle", "load_pickle", "unsafe_load", "full_load", "UnsafeLoader", "FullLoader", "unsafe_load_all"}
"""Names of functions of pandas, PyYAML and others that unpickle or build any object."""
ARGUMENTS: dict[tuple[str, ...], tuple[str, bool]] = {
    ("torch", "load"): ("weights_only", True),
    ("np", "load"): ("allow_pickle", False),
}
SAFE_YAML = {"SafeLoader", "CSafeLoader", "BaseLoader"}


def dotted(node: ast.expr) -> tuple[str, ...]:
    if isinstance(node, ast.Attribute):
        return (*dotted(node.value), node.attr)
    return (node.id,) if isinstance(node, ast.Name) else ()


def unpickling(source: str) -> Iterator[str]:
    """Yields what in a module may unpickle data."""
    for node in ast.walk(ast.parse(source)):
        match node:
            case ast.ImportFrom(module=str(module)) if module.split(".")[0] in PICKLING:
                yield f"from {module}"
            case ast.Import(names=names):
                yield from (one.name for one in names if one.name in PICKLING and (one.name != "pickle" or one.asname))
            case ast.Attribute(value=ast.Name(id=module), attr=name) if module in PICKLING:
                if (module, name) not in HARMLESS:
                    yield f"{module}.{name}"
            case ast.Attribute(attr=name) | ast.Name(id=name) if name in FORBIDDEN:
                yield name
            case ast.Call(func=function, keywords=keywords):
                yield from unsafe_call(dotted(function), {one.arg: one.value for one in keywords if one.arg})
            case _:
                pass


def unsafe_call(name: tuple[str, ...], given: dict[str, ast.expr]) -> Iterator[str]:
    if name in ARGUMENTS:
        argument, expected = ARGUMENTS[name]
        value = given.get(argument)
        if not isinstance(value, ast.Constant) or value.value is not expected:
            yield f"{'.'.join(name)} without {argument}={expected}"
    for argument, unsafe in {"allow_pickle": True, "trust_remote_code": True, "weights_only": False}.items():
        value = given.get(argument)
        if isinstance(value, ast.Constant) and value.value is unsafe:
            yield f"{argument}={unsafe}"
    loader = dotted(given["Loader"])[-1:] if "Loader" in given else ()
    if name in (("yaml", "load"), ("yaml", "load_all")) and not {*loader} & SAFE_YAML:
        yield "yaml.load without a safe Loader"


PIPED = {"openmaia/agent/sandbox/launch.py": "marshal.dumps", "openmaia/agent/sandbox/packing.py": "marshal.load"}
"""Modules that hand code of installed packages from one process to another through a pipe. No disk holds it."""


@pytest.mark.parametrize("package", ["openmaia", "ray_jobs", "cluster"])
def test_package_unpickles_nothing(package: str):
    files = {path.relative_to(REPOSITORY).as_posix(): path for path in (REPOSITORY / package).rglob("*.py")}
    found = {name: [*unpickling(path.read_text())] for name, path in files.items()}
    assert {name: names for name, names in found.items() if names and name not in PIPED} == {}
    assert all(call in found[name] for name, call in PIPED.items() if name in found)
    assert not any(
        re.search(r"\bopen\(|read_bytes|write_bytes", files[name].read_text()) for name in PIPED if name in files
    )


@pytest.mark.parametrize(
    "source",
    [
        "import pickle\npickle.loads(data)",
        "from pickle import loads",
        "import pickle as p",
        "import dill",
        "import diskcache",
        "import shelve\nshelve.open(path)",
        "from joblib import load",
        "torch.load(path)",
        "torch.load(path, weights_only=False)",
        "np.load(path)",
        "np.load(path, allow_pickle=True)",
        "pd.read_pickle(path)",
        "yaml.load(text)",
        "yaml.load(text, Loader=yaml.Loader)",
        "yaml.unsafe_load(text)",
        "timm.create_model(name, weights_only=False)",
    ],
)
def test_search_finds_what_unpickles(source: str):
    assert [*unpickling(source)]


@pytest.mark.parametrize("name", ["pyproject.toml", "cluster/requirements.lock"])
def test_library_that_unpickles_its_files_is_no_dependency(name: str):
    assert "diskcache" not in (REPOSITORY / name).read_text()
