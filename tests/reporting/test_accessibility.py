"""No page of a report has a finding of axe-core that is serious or critical, in light and in dark.

axe-core is fetched from the npm registry once, because its licence (MPL-2.0) is not ours.
"""

import json
import shutil
import subprocess
import tarfile
from pathlib import Path

import pytest

from openmaia.reporting.browser.write import write_report
from tests.helpers.chromium import CHROMIUM, Tab, browser
from tests.prepare import CACHE
from tests.reporting.making import run

VERSION = "4.14.1"

pytestmark = pytest.mark.skipif(CHROMIUM is None, reason="no chromium on this machine: apt-get install chromium")


def axe() -> str:
    """The source of axe-core. Skips the test if it can be neither found nor fetched."""
    kept = CACHE / f"axe-core-{VERSION}.min.js"
    npm = shutil.which("npm")
    if not kept.is_file() and npm:
        CACHE.mkdir(parents=True, exist_ok=True)
        command = [npm, "pack", f"axe-core@{VERSION}", "--pack-destination", str(CACHE), "--silent"]
        if subprocess.run(command, capture_output=True, timeout=120).returncode == 0:
            with tarfile.open(CACHE / f"axe-core-{VERSION}.tgz") as packed:
                source = packed.extractfile("package/axe.min.js")
                assert source
                kept.write_bytes(source.read())
    if not kept.is_file():
        pytest.skip(f"axe-core {VERSION} cannot be fetched: npm or its registry is missing")
    return kept.read_text()


def findings(tab: Tab, source: str) -> list[str]:
    tab.run(source + "; 0")
    result = json.loads(tab.run("axe.run().then((found) => JSON.stringify(found.violations))"))
    return [
        f"{one['impact']} {one['id']}: {one['nodes'][0]['html'][:120]}"
        for one in result
        if one["impact"] in ("serious", "critical")
    ]


@pytest.mark.slow
@pytest.mark.parametrize("width", [1440, 390])
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_no_page_has_a_serious_finding(tmp_path: Path, scheme: str, width: int):
    source = axe()
    index = write_report([run(tmp_path), run(tmp_path / "other", name="other", text="blue dogs")])
    pages = [
        index,
        index.with_name("index.html#size=table"),
        index.with_name("run.html"),
        index.with_name("compare.html"),
        index.with_name("papers.html"),
        *sorted(index.parent.rglob("0-0.html")),
    ]
    with browser(tmp_path / "profile") as tab:
        tab.scheme(scheme)
        tab.resize(width)
        for page in pages:
            is_index = page.name.startswith("index.html")
            tab.open(page.as_uri().replace("%23", "#"), "document.body?.dataset.ready === 'texts'" if is_index else "document.readyState === 'complete'")  # fmt: skip
            tab.run("document.querySelectorAll('details').forEach((one) => { one.open = true; })")
            assert findings(tab, source) == [], page.name
