"""Hands the sandboxed process the modules that it imports at its start in one piece.

Each file that the process opens, and each question about one, goes through sandlock's supervisor and costs 0.2 ms of CPU
time. The imports at its start would make 1,400 of them. So `main` packs the code of these modules, once for all
sandboxes of a parent, in a process that never runs the agent's code; and `run` imports them from the pack in each
sandboxed process. Nothing else changes there: sandlock has confined the process before, and its limits and second filter
are set before it imports numpy and Pillow. The process of `main` has the flags and the environment of the sandboxed one,
so that neither PYTHONPATH nor the user's folders are searched. It reads the files that the sandboxed process would read,
which the agent's code cannot write. Shared libraries are not packed, because the dynamic linker opens them by name. It
would look for those that they need in up to 22 places, so `load_libraries` opens these where they are.

A template of the sandboxed process itself, which imports once and is forked and confined for each sandbox, was
considered. sandlock confines a process fully only where it starts a program in it: its own fork leaves out hidden files,
fixed entropy and the limit on processes. (Supervisors, which run no code of the agent, are forked from one.)

The source of this module is sent to both processes. It is run before the pack can be used, so it may import only what is
built into the interpreter.
"""

import marshal
import sys
from _frozen_importlib import ModuleSpec
from _frozen_importlib_external import ExtensionFileLoader, SourceFileLoader

TYPE_CHECKING = False  # `typing` is not built in
if TYPE_CHECKING:
    from types import CodeType
    from typing import Any

Packed = tuple[str, str, "CodeType | None"]
"""The file of a module, its folder if it is a package, else an empty string, and its code if it is not a shared
library.
"""


class PackedLoader(SourceFileLoader):
    """Loads a module of the pack. It differs from the usual loader only in where the code comes from."""

    def __init__(self, name: str, file: str, code: "CodeType"):
        super().__init__(name, file)
        self._code: CodeType | None = code

    def get_code(self, fullname: str) -> "CodeType | None":
        """Returns the packed code the first time, and from then on what is in the file."""
        code, self._code = self._code, None
        return code or super().get_code(fullname)


class PackedFinder:
    """Meta path finder for modules of the pack. It finds each of them once.

    Args:
        modules: The packed modules by name.
        missing: Names of modules that do not exist. Imports of numpy and of the standard library try them, and a search
            for them looks through all folders.
        libraries: The files of shared libraries, each before those that need it.
    """

    def __init__(self, modules: dict[str, Packed], missing: list[str], libraries: list[str]):
        self._modules, self._missing, self._libraries = modules, missing, libraries

    def find_spec(self, fullname: str, path: object = None, target: object = None) -> ModuleSpec | None:
        """Returns the spec of a packed module; None for any other module. Raises ModuleNotFoundError for one that is
        missing.
        """
        if fullname in self._missing:
            raise ModuleNotFoundError(f"No module named {fullname!r}", name=fullname)
        if (packed := self._modules.pop(fullname, None)) is None:
            return None
        file, folder, code = packed
        loader = ExtensionFileLoader(fullname, file) if code is None else PackedLoader(fullname, file, code)
        spec = ModuleSpec(fullname, loader, origin=file, is_package=bool(folder))
        spec.has_location = True
        if spec.submodule_search_locations is not None:
            spec.submodule_search_locations.append(folder)
        return spec

    def load_libraries(self) -> None:
        """Loads the shared libraries, so that the dynamic linker finds them by name when extension modules need them."""
        import ctypes  # not built in

        for library in self._libraries:
            try:
                ctypes.CDLL(library)
            except OSError:  # the import that needs it says so
                pass


def run(own: "dict[str, CodeType]", modules: dict[str, Packed], missing: list[str], libraries: list[str]) -> None:
    """Runs the modules of this project, `own`, in their order, and then `main` of the last one. For the rest see
    `PackedFinder`.
    """
    sys.meta_path.insert(0, PackedFinder(modules, missing, libraries))
    _run(own)["main"]()


def _run(own: "dict[str, CodeType]") -> "dict[str, Any]":
    """Runs modules in their order and returns the namespace of the last one."""
    for name, code in own.items():
        sys.modules[name] = type(sys)(name)
        exec(code, sys.modules[name].__dict__)
    return sys.modules[next(reversed(own))].__dict__


class _Recorder:
    """Meta path finder that finds nothing and adds the names of modules that it is asked for to `missing`."""

    def __init__(self, missing: list[str]):
        self._missing = missing

    def find_spec(self, fullname: str, path: object = None, target: object = None) -> None:
        self._missing.append(fullname)


def main() -> None:
    """Writes a pack to stdout, the arguments of `run`: modules of this project and all that they import at the start.

    Reads from stdin the sources of the modules by name, in the order in which they import each other, and the argument
    of `import_early` of the last one. Both streams are in the format of `marshal`.
    """
    sources, packages = marshal.load(sys.stdin.buffer)
    before = set(sys.modules)  # every interpreter imports these before it runs a script
    own = {name: compile(source, name, "exec", dont_inherit=True) for name, source in sources.items()}
    last = _run(own)
    linked, missing = _list_libraries(), list[str]()
    last["import_early"](packages, _Recorder(missing))
    imported = [name for name in sys.modules if name not in before]
    modules = {name: packed for name in imported if (packed := _pack(name)) is not None}
    extensions = {file for file, _, code in modules.values() if code is None}
    # The linker lists a library before those that it loaded for it. Those of the system need none that are packaged.
    libraries = [file for file in reversed(_list_libraries()) if file not in linked and file not in extensions]
    libraries.sort(key=lambda file: any(file.startswith(folder.rpartition("/")[0]) for folder in packages.values()))
    marshal.dump((own, modules, missing, libraries), sys.stdout.buffer)


def _list_libraries() -> list[str]:
    """Returns the files of the shared libraries in this process, in the order in which they were loaded. Empty where the
    system keeps no such list.
    """
    import ctypes
    import os

    @ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p, ctypes.c_size_t, ctypes.c_void_p)
    def add(entry: int, size: int, data: int) -> int:
        # An entry begins with an address and a pointer to the name (struct dl_phdr_info).
        name = ctypes.c_char_p.from_address(entry + ctypes.sizeof(ctypes.c_void_p)).value or b""
        files.append(os.path.realpath(os.fsdecode(name)))
        return 0

    files: list[str] = []
    libc = ctypes.CDLL(None)
    if hasattr(libc, "dl_iterate_phdr"):
        libc.dl_iterate_phdr(add, None)
    return files


def _pack(name: str) -> Packed | None:
    spec: ModuleSpec | None = getattr(sys.modules[name], "__spec__", None)  # `typing.io` has none
    if spec is None or spec.name != name or not spec.has_location or not spec.origin:
        return None
    folder = (spec.submodule_search_locations or [""])[0]
    if isinstance(spec.loader, SourceFileLoader):
        return spec.origin, folder, spec.loader.get_code(name)
    return (spec.origin, folder, None) if isinstance(spec.loader, ExtensionFileLoader) else None
