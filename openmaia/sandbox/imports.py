"""How the sandboxed process comes by what it imports. The first of its modules to run, so it imports next to nothing."""

import marshal
import sys
from importlib.machinery import ExtensionFileLoader, ModuleSpec, SourceFileLoader
from types import CodeType

EARLY = ("numpy", "numpy.random", "PIL.Image")
"""What nearly every experiment imports."""


Module = tuple[str, bool, int, int]
"""The file, whether it is a package, and where its code begins and ends; extensions have none."""


class HandedOver:
    """Finds modules whose compiled code the parent has handed over (`openmaia.sandbox.program`), until `end`."""

    def __init__(self, modules: dict[str, Module], code: bytes):
        self._modules, self._code = modules, memoryview(code)
        sys.meta_path.insert(0, self)

    def find_spec(self, name: str, path: object = None, target: object = None) -> ModuleSpec | None:
        if name not in self._modules:
            return None
        file, is_package, start, end = self._modules[name]
        loader = _Loader(name, file, self._code[start:end]) if end > start else ExtensionFileLoader(name, file)
        spec = ModuleSpec(name, loader, origin=file)
        spec.has_location = True
        if is_package:
            spec.submodule_search_locations = [file.rpartition("/")[0]]
        return spec

    def end(self) -> None:
        sys.meta_path.remove(self)
        self._modules, self._code = {}, memoryview(b"")


class _Loader(SourceFileLoader):
    def __init__(self, name: str, file: str, code: memoryview):
        super().__init__(name, file)
        self._code = code

    def get_code(self, fullname: str) -> CodeType | None:
        """Handed out once; whoever asks again has it from the file."""
        code, self._code = self._code, memoryview(b"")
        return marshal.loads(code) if len(code) else super().get_code(fullname)


class Packages:
    """Finds numpy, Pillow and scipy where they lie, without the rest of their site-packages or its .pth files."""

    def __init__(self, homes: dict[str, str]):
        self._homes = homes

    def find_spec(self, name: str, path: object = None, target: object = None) -> ModuleSpec | None:
        home = self._homes.get(name)
        if home is None:
            return None
        file = f"{home}/__init__.py"
        spec = ModuleSpec(name, SourceFileLoader(name, file), origin=file)
        spec.has_location, spec.submodule_search_locations = True, [home]
        return spec
