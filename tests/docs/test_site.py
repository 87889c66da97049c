"""The documentation builds without a warning, every link within it leads somewhere, and it loads nothing from elsewhere."""

import os
import subprocess
import sys
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit

import pytest
from omegaconf import OmegaConf

from openmaia.config.loading import leaves
from openmaia.config.schema import Config
from tests.conftest import REPOSITORY

LOADED = {"script": "src", "img": "src", "iframe": "src", "link": "href", "source": "src"}
"""Elements that make a browser fetch something, with the attribute that says what."""


class Page(HTMLParser):
    """What a page links to, what it loads, and its anchors."""

    def __init__(self, path: Path):
        super().__init__()
        self.links: list[str] = []
        self.loaded: list[str] = []
        self.anchors: set[str] = set()
        self.feed(path.read_text())

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        values = dict(attrs)
        self.anchors |= {value for key in ("id", "name") if (value := values.get(key))}
        if tag == "a" and (link := values.get("href")):
            self.links.append(link)
        if tag in LOADED and (link := values.get(LOADED[tag])):
            self.loaded.append(link)


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> dict[Path, Page]:
    folder = tmp_path_factory.mktemp("site").resolve()
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--quiet", "--site-dir", str(folder)]
    environment = os.environ | {"NO_MKDOCS_2_WARNING": "1", "PYTHONPATH": str(REPOSITORY)}
    built = subprocess.run(command, cwd=REPOSITORY, env=environment, capture_output=True, text=True)
    assert built.returncode == 0, built.stdout + built.stderr
    return {path: Page(path) for path in folder.rglob("*.html")}


def test_internal_links_resolve(site: dict[Path, Page]) -> None:
    broken: list[str] = []
    for path, page in site.items():
        for link in [*page.links, *page.loaded]:
            parts = urlsplit(link)
            if parts.scheme or parts.netloc or path.name == "404.html":
                continue
            to = (path.parent / unquote(parts.path)).resolve() if parts.path else path
            to = to / "index.html" if to.is_dir() else to
            anchor = unquote(parts.fragment)
            if not to.is_file() or (anchor and to in site and anchor not in site[to].anchors):
                broken.append(f"{path.name}: {link}")
    assert len(site) > 15
    assert not broken


def test_pages_load_nothing_from_elsewhere(site: dict[Path, Page]) -> None:
    elsewhere = {link for page in site.values() for link in page.loaded if urlsplit(link).netloc}
    assert not elsewhere


def test_reference_has_every_key(site: dict[Path, Page]) -> None:
    (page,) = (page for path, page in site.items() if path.match("reference/config.html"))
    wanted = {
        key for key, _ in leaves(OmegaConf.structured(Config)) if not key.startswith(("viewer.", "evaluate.writer."))
    }
    assert len(wanted) > 150
    assert wanted <= page.anchors


def test_reference_has_every_command(site: dict[Path, Page]) -> None:
    (page,) = (page for path, page in site.items() if path.match("reference/cli.html"))
    assert {"run", "investigate", "submit-slurm", "pools-up", "import", "export-maia", "study-bias"} <= page.anchors
