"""Lets the CUDA builds of torchvision, torchaudio and torchcodec be imported beside a torch for CPUs.

The package index has no other builds for Linux, and transformers and vLLM import whatever of them is installed. torchvision
registers kernels for operators that only its own (unloadable) library declares, so the operators are declared here first;
the other two cannot do without their libraries and are made to look as if they were not there. `install` puts a line into
the environment's site-packages that runs this file in each of its processes; it imports nothing until one of the three is
imported, and does nothing beside a torch for GPUs.
"""

import importlib.abc
import importlib.machinery
import sys
import sysconfig
from pathlib import Path

NAME = "openmaia_cuda_builds_beside_cpu_torch"
OPERATORS = ("nms", "qnms")
KEPT = []
"""An operator is declared for as long as its library object lives."""


class Finder(importlib.abc.MetaPathFinder):
    def find_spec(self, fullname, path=None, target=None):
        if fullname not in ("torchvision", "torchaudio", "torchcodec"):
            return None
        spec = importlib.machinery.PathFinder.find_spec(fullname, path, target)
        if spec is None or spec.loader is None or not is_cuda_build(spec) or has_cuda():
            return spec
        if fullname == "torchvision":
            declare()
        else:
            spec.loader = Guarded(spec.loader)
        return spec


class Guarded(importlib.abc.Loader):
    def __init__(self, loader):
        self._loader = loader

    def create_module(self, spec):
        return self._loader.create_module(spec)

    def exec_module(self, module):
        try:
            self._loader.exec_module(module)
        except (OSError, RuntimeError) as error:
            if module.__name__ == "torchcodec":
                raise ImportError(f"torchcodec's libraries need CUDA: {error}") from error


def is_cuda_build(spec):
    version = Path(spec.origin).with_name("version.py") if spec.origin else None
    if version is None or not version.is_file():
        return True
    return spec.name != "torchvision" or "+cu" in version.read_text()


def has_cuda():
    import torch

    return bool(torch.version.cuda or torch.version.hip)


def declare():
    import torch

    if KEPT:  # a package is looked up more than once
        return
    library = torch.library.Library("torchvision", "FRAGMENT")
    for operator in OPERATORS:
        library.define(f"{operator}(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")
    KEPT.append(library)


def install():
    site = Path(sysconfig.get_path("purelib"))
    (site / f"{NAME}.py").write_text(Path(__file__).read_text(encoding="utf-8"), encoding="utf-8")
    (site / f"{NAME}.pth").write_text(f"import {NAME}; {NAME}.start()\n", encoding="utf-8")


def start():
    sys.meta_path.insert(0, Finder())


if __name__ == "__main__":
    install()
