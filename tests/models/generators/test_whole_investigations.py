"""Whole investigations with the pipelines of today, tiny and of random weights: a recorded agent draws and edits."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import openmaia
from tests.helpers.investigating import ANSWER, code, history, said
from tests.helpers.mine import TRANSFORM, redness
from tests.helpers.tiny.stable import save_pix2pix, save_sdxl_turbo
from tests.helpers.tiny.today import save_qwen_image, save_qwen_image_2_1, save_qwen_image_edit, save_z_image
from tests.prepare import CACHE

pytestmark = [pytest.mark.slow, pytest.mark.nightly]

DRAWS = """drawn = tools.text2image(["a red circle", "a blue circle that is much larger"])
print(len(drawn), system.call_neuron(drawn)[0])
edited, captions = tools.edit_images(drawn, ["make it green"] * 2)
print(len(edited), system.call_neuron(edited)[0])"""
"""`edit_images` returns each image before its edit."""
SHARED = None
"""The editor is the generator."""
PAIRS: dict[str, tuple[Callable[[Path], Path], Callable[[Path], Path] | None]] = {
    "qwen-image and its editor": (save_qwen_image, save_qwen_image_edit),
    "qwen-image 2.1": (save_qwen_image_2_1, SHARED),
    "sdxl-turbo and pix2pix": (save_sdxl_turbo, save_pix2pix),
    "z-image and pix2pix": (save_z_image, save_pix2pix),
}


def pipeline(folder: Path) -> dict[str, Any]:
    return {"kind": "diffusers", "model": str(folder), "dtype": "float32", "steps": 1}


@pytest.mark.parametrize("name", PAIRS)
def test_whole_investigation_draws_and_edits(name: str, settings: list[str], exemplars_folder: Path, tmp_path: Path):
    generator, editor = PAIRS[name]
    found = openmaia.investigate(
        redness(),
        "maps",
        0,
        images=sorted((CACHE / "packages-v1/photos").rglob("*.jpg"))[:40],
        preprocess=TRANSFORM,
        backbone={"kind": "replay", "record": str(history(tmp_path, (code(DRAWS), ANSWER)))},
        generator=pipeline(generator(tmp_path / "generator")) | {"size": 64},
        editor=pipeline(editor(tmp_path / "editor")) if editor else {"kind": "generator"},
        evaluate=False,
        task={"evidence": {"experiments": 0, "labels": 0, "words": 0, "drawable": 0}},
        paths={"cache": str(CACHE), "exemplars": str(exemplars_folder / "api"), "runs": str(tmp_path)},
        exemplars={"k": 6},
    )
    assert [line.split()[0] for line in said(found.record, 0).splitlines()] == ["2", "4"], said(found.record, 0)
    assert found.description == "red things"
