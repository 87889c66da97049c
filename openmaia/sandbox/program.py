"""What a sandboxed process runs and imports, as compiled code that its parent hands it.

The standard library, numpy and Pillow are some 180 files, and the filters ask about every file that is looked for, opened
or measured; the parent has imported most of them itself. The child is the same Python, so code may travel compiled.
"""

import contextlib
import functools
import importlib
import importlib.resources
import marshal
import sys
import threading
from importlib.machinery import ExtensionFileLoader, SourceFileLoader

from openmaia.sandbox.imports import EARLY, Module

FILE = "program"
"""In the scratch folder; the child reads it and removes it before anything else."""

BOOT = f"""
import marshal, os, sys
with open("{FILE}", "rb") as file:
    (program, modules), code = marshal.load(file), file.read()
os.unlink("{FILE}")
for name, own in program.items():
    sys.modules[name] = type(sys)(name)
    exec(own, sys.modules[name].__dict__)
    if name == "openmaia.sandbox.imports":
        handed_over = sys.modules[name].HandedOver(modules, code)
del code
sys.modules["openmaia.sandbox.child"].main(handed_over)
"""

_SOURCES = ("imports", "frames", "confine", "executor", "child")


_once = threading.Lock()


def program() -> bytes:
    """For BOOT: the child's own modules in the order in which they run, and those that it may import."""
    with _once:  # investigations start in several threads together
        return _program()


@functools.cache
def _program() -> bytes:
    package = importlib.resources.files("openmaia.sandbox")
    sources = {"openmaia": "", "openmaia.sandbox": ""}
    sources |= {f"openmaia.sandbox.{name}": (package / f"{name}.py").read_text("utf-8") for name in _SOURCES}
    codes = {name: compile(source, name, "exec", dont_inherit=True) for name, source in sources.items()}
    modules, code = _imported()
    return marshal.dumps((codes, modules)) + code


def _imported() -> tuple[dict[str, Module], bytearray]:
    """Of the standard library and of what is imported early, and all their code in one piece, which both ends can give back to
    the system in one piece. What this process has not imported, the child looks for by itself."""
    for name in EARLY:
        with contextlib.suppress(ImportError):
            importlib.import_module(name)
    tops = {*(name.split(".")[0] for name in EARLY), *sys.stdlib_module_names}
    found: dict[str, Module] = {}
    code = bytearray()
    for name, module in list(sys.modules.items()):
        spec = getattr(module, "__spec__", None)
        if name.split(".")[0] not in tops or spec is None or spec.name != name or not spec.origin:
            continue
        start = len(code)
        if type(spec.loader) is SourceFileLoader:
            with contextlib.suppress(ImportError, OSError, SyntaxError):
                code += marshal.dumps(spec.loader.get_code(name))
        if len(code) > start or type(spec.loader) is ExtensionFileLoader:
            found[name] = spec.origin, spec.submodule_search_locations is not None, start, len(code)
    return found, code
