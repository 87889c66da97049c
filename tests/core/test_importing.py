"""Objects that a user names: found in the current folder, here and in worker processes."""

import pickle
import subprocess
import sys
from pathlib import Path

import pytest

from openmaia.assembly import ConfigAssembly
from openmaia.core.errors import UsageError
from openmaia.core.importing import import_object


def test_module_of_the_current_folder_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    (tmp_path / "own_module_a.py").write_text("import own_module_b\n\ndef made():\n    return own_module_b.VALUE\n")
    (tmp_path / "own_module_b.py").write_text("VALUE = 7\n")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    assert import_object("own_module_a:made", "tools")() == 7


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("nowhere:make", "ModuleNotFoundError"),
        ("broken_module:make", "ZeroDivisionError"),
        ("ending_module:make", "SystemExit"),
        ("os:nothing", "AttributeError"),
        ("os:", "names no object"),
        ("os.path.join", "names no object"),
    ],
)
def test_object_that_cannot_be_imported_is_one_error(
    name: str, message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    (tmp_path / "broken_module.py").write_text("1 / 0\n")
    (tmp_path / "ending_module.py").write_text("raise SystemExit(2)\n")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    with pytest.raises(UsageError, match=f"target.network={name!r}.*{message}.*|.*{message}.*expected package.module"):
        import_object(name, "target.network")


def test_worker_finds_modules_of_the_users_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    (tmp_path / "own_module_c.py").write_text("VALUE = 9\n")
    monkeypatch.chdir(tmp_path)
    sent = pickle.dumps(ConfigAssembly()).hex()
    code = f"import pickle; pickle.loads(bytes.fromhex({sent!r})); import own_module_c; print(own_module_c.VALUE)"
    worker = subprocess.run([sys.executable, "-c", code], cwd="/", capture_output=True, text=True, check=True)
    assert worker.stdout.strip() == "9"
