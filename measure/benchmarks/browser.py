"""The experiment browser at 100,000 units in headless Chromium, its wall at 2,048, and what its pages cost.

The rows are made from the records of a real run, with other numbers of units, other orders of labels and jittered scores:
`OPENMAIA_BENCH_RUN` names its directory, such as runs/closed-form; without it, a run of small made-up records is used.

    python -m measure.benchmarks.browser runs/demo

measures only what the pages of the run do in Chromium, which takes a minute, and writes browser_page.csv beside this file.
"""

import csv
import os
import random
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, TypeVar

import psutil

from measure.benchmarks.large_run import large_run
from openmaia.core.units import Unit
from openmaia.evaluation.analysis.verdict import judge
from openmaia.reporting.browser.data import SHARD, make_data_files
from openmaia.reporting.browser.going import make_live_file
from openmaia.reporting.browser.pages import ASSETS, read_assets
from openmaia.reporting.browser.report import Report
from openmaia.reporting.browser.serve import LiveSite
from openmaia.reporting.browser.similar import SimilarUnits, name_similar_file
from openmaia.reporting.browser.tiles import draw
from openmaia.reporting.browser.unit.page import render_unit
from openmaia.reporting.browser.write import PAGE_BYTES
from openmaia.reporting.tables import UnitRow, make_rows
from openmaia.runs.ids import InvestigationId
from openmaia.runs.run import Run
from tests.helpers.chromium import Tab, browser
from tests.reporting.making import run as small_run

Result = TypeVar("Result")
UNITS, LAYERS, WALL = 100_000, 8, 2_048
TIMED = """(() => {{
  const start = performance.now();
  {action};
  document.body.getBoundingClientRect();
  return performance.now() - start;
}})()"""
SCROLLED = """new Promise((done) => {
  const end = document.documentElement.scrollHeight - innerHeight, gaps = [], start = performance.now();
  let last = start;
  const step = (now) => {
    gaps.push(now - last);
    last = now;
    scrollBy(0, 40);
    if (now - start < 6000 && scrollY < end - 1) requestAnimationFrame(step);
    else done({ frames: gaps.length / ((last - start) / 1000), worst: Math.max(...gaps), pixels: scrollY });
  };
  requestAnimationFrame(step);
})"""
"""Scrolls 40 pixels a frame for six seconds, which are about 12 lines of large tiles a second."""
WHOLE = """(async () => {
  const end = () => document.documentElement.scrollHeight - innerHeight, frame = () => new Promise(requestAnimationFrame);
  scrollTo(0, 0);
  while (scrollY < end() - 1) {
    scrollBy(0, 600);
    await frame();
    await Promise.all([...document.querySelectorAll("#wall img")].map((image) => image.decode()));
    await frame();
  }
  return scrollY;
})()"""
"""Scrolls from the first line to the last, and waits everywhere until all images are decoded."""
FOCUS = "[...document.querySelectorAll('a[href], button, input, select, summary, [tabindex=\"0\"]')].filter((e) => !e.disabled && e.checkVisibility()).length"  # fmt: skip


def measure(smoke: bool) -> dict[str, Any]:
    """Seconds until the table of 100,000 units is shown, milliseconds of its answers, sizes, and CPU per unit."""
    with tempfile.TemporaryDirectory() as folder:
        given = os.environ.get("OPENMAIA_BENCH_RUN")
        run = Run.open(given) if given else small_run(f"{folder}/runs")
        report, read = _timed(lambda: Report([run]))
        render_unit(next(iter(report.pages.values())), PAGE_BYTES)  # compiles the template
        pages, rendered = _timed(lambda: [render_unit(page, PAGE_BYTES) for page in report.pages.values()])
        count = 2_000 if smoke else UNITS
        figures = {
            "units": count,
            "read_ms_per_unit": 1000 * read / len(report.summaries[0].rows),
            "page_ms_per_unit": 1000 * rendered / len(pages),
            "page_mb": max(len(page.html) for page in pages) / 1e6,
        }
        root = Path(folder) / "report"
        made = _many(report, count)
        _, written = _timed(lambda: write_page(report, made, root, has_tiles=False))
        figures |= {"data_s": written, "largest_mb": max(p.stat().st_size for p in root.rglob("*.*")) / 1e6}
        near = SimilarUnits(made)
        _, compared = _timed(lambda: [near.file(name) for name in near.names])
        figures |= {"similar_s": compared}
        # A whole report of so many units, which takes hours, is the sum of these.
        whole = figures["read_ms_per_unit"] + figures["page_ms_per_unit"] + 1000 * (written + compared) / count
        figures |= {"report_ms_per_unit": whole}
        figures |= _served(large_run(run, count, LAYERS, Path(folder) / "large"))
        wall = Path(folder) / "wall"
        _write_wall(report, min(count, WALL), wall)
        return figures | _pages(root, wall, Path(folder))


def _main() -> None:
    """Writes browser_page.csv from the run that the command line names."""
    report = Report([Run.open(sys.argv[1])])
    with tempfile.TemporaryDirectory() as folder:
        big, wall = Path(folder) / "report", Path(folder) / "wall"
        write_page(report, _many(report, UNITS), big, has_tiles=False)
        _write_wall(report, WALL, wall)
        figures = _pages(big, wall, Path(folder))
    with (Path(__file__).parent / "browser_page.csv").open("w", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(("figure", "value"))
        writer.writerows((name, f"{value:.4g}") for name, value in figures.items())


def _pages(big: Path, wall: Path, folder: Path) -> dict[str, Any]:
    """The page of many units, and the wall of 2,048: in a browser of its own, and (`after_wall_…`) in the process that has shown the
    page of many before."""
    with browser(folder / "profile") as tab:
        figures = _opened(tab, big / "index.html")
        after = {f"after_{name}": value for name, value in _scrolled(tab, wall / "index.html").items()}
    with browser(folder / "own") as tab:
        return figures | _scrolled(tab, wall / "index.html") | after


def _served(run: Run) -> dict[str, float]:
    """CPU seconds until `openmaia view` has made all that the first page loads, and then a page of a unit."""
    site, started = _timed(lambda: LiveSite([run]))
    names = ["index.html", "data/table.js", *(f"data/texts-{n}.js" for n in range(-(-run.planned() // SHARD)))]
    pages, shown = _timed(lambda: [site.file(name) for name in names])
    assert all(pages)
    row = make_rows(run, run.name, "units/")[0]
    near = f"data/{name_similar_file(row.page, run.planned())}"
    unit, opened = _timed(lambda: (site.file(row.page), site.file(near)))
    assert all(unit)
    return {"view_index_s": started + shown, "view_unit_s": opened}


def write_page(report: Report, rows: Sequence[UnitRow], root: Path, *, has_tiles: bool) -> None:
    """Writes the first page of a report of other units."""
    whole = replace(report.summaries[0], rows=tuple(rows))
    files = {f"data/{name}": data for name, data in make_data_files([whole], "", lambda row: has_tiles, report.lexicon)}
    files |= {"data/live.js": make_live_file(report.runs)}
    files |= {f"{ASSETS}/{name}": data for name, data in read_assets().items()} | {"index.html": report.index()}
    for name, data in files.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_bytes(data)


def _many(report: Report, count: int) -> list[UnitRow]:
    draw, real = random.Random(0), [row for row in report.summaries[0].rows if row.header]
    texts = [(row.header["labels"], row.header["description"]) for row in real]

    def row(number: int) -> UnitRow:
        base, (labels, description) = draw.choice(real), draw.choice(texts)
        unit = Unit(target=base.unit.target, layer=f"layer{number * LAYERS // count}", index=number)
        scores = {
            key: value * draw.random() if isinstance(value, float) else value for key, value in base.scores.items()
        }
        header = base.header | {"labels": [*labels, f"unit {number % 977}"], "description": description}
        page = f"units/net/{unit.layer}/{number}-0.html"
        return replace(
            base, investigation=InvestigationId(unit=unit, replicate=0), scores=scores, header=header, page=page,
            verdict=judge(base.stop, scores, base.cause),
        )  # fmt: skip

    return [row(number) for number in range(count)]


def _write_wall(report: Report, count: int, root: Path) -> None:
    rows = _many(report, count)
    write_page(report, rows, root, has_tiles=True)
    write_tiles(report, rows, root)


def write_tiles(report: Report, rows: Sequence[UnitRow], root: Path) -> None:
    """Writes a tile of each unit, which is one of the real run's. The browser decodes each file by itself."""
    real = [
        [draw(shots, is_marked=is_marked) for is_marked in (False, True)]
        for tile in report.tiles.values()
        if (shots := tile.shots())
    ]
    for number, row in enumerate(rows):
        stem = root / row.page.removesuffix(".html")
        stem.parent.mkdir(parents=True, exist_ok=True)
        for end, image in zip((".webp", ".part.webp"), real[number % len(real)], strict=True):
            stem.with_name(f"{stem.name}{end}").write_bytes(image)


def _scrolled(tab: Tab, index: Path) -> dict[str, float]:
    """Frames a second while the wall is scrolled for some seconds, the longest frame, and the memory of the page after the whole
    wall was shown, without and then with the parts marked."""
    tab.resize(1440)
    tab.open(index.as_uri(), "document.body?.dataset.ready === 'texts'")
    found = tab.run(SCROLLED)
    pixels, memory = tab.run(WHOLE), _memory()
    tab.run("document.getElementById('parts').click()")
    tab.run(WHOLE)
    marked = _memory()
    sizes = {
        f"wall_{size}_ms": float(tab.run(TIMED.format(action=f"state.size = '{size}'; redraw()")))
        for size in ("small", "map")
    }
    return {
        "wall_fps": found["frames"],
        "wall_worst_ms": found["worst"],
        "wall_pixels": pixels,
        **{f"wall_{name}": value for name, value in memory.items()},
        **{f"wall_marked_{name}": value for name, value in marked.items()},
        **sizes,
    }


def _memory() -> dict[str, float]:
    """Returns the megabytes of the process of the page: what is its own, and with what it shares with other processes, such as
    the code of Chromium (about 100)."""
    mine = psutil.Process().children(recursive=True)
    found = [one.memory_full_info() for one in mine if "--type=renderer" in one.cmdline()]
    return {"memory_mb": max(one.uss for one in found) / 1e6, "memory_resident_mb": max(one.rss for one in found) / 1e6}


def _opened(tab: Tab, index: Path) -> dict[str, Any]:
    tab.resize(1440)
    tab.call("Performance.enable", timeDomain="threadTicks")
    start = time.perf_counter()
    tab.open(index.as_uri(), "document.body?.dataset.ready")
    opened, used = time.perf_counter() - start, _cpu(tab)
    tab.wait("document.body.dataset.ready === 'texts'")
    whole = time.perf_counter() - start
    tab.wait("shards.every((shard) => shard.things)")
    read = time.perf_counter() - start
    type_text = "search().value = '{}'; search().dispatchEvent(new Event('input'))"
    sort = "document.getElementById('sort').value = '{}'; document.getElementById('sort').dispatchEvent(new Event('change'))"
    size = "state.size = '{}'; redraw()"
    actions = {
        "type_letter": type_text.format("r"),
        "type_words": type_text.format("red unit 97 -blue"),
        "type_numbers": type_text.format("auc_other>0.2 turns>1"),
        "type_synonym": type_text.format("vehicle"),
        "type_wider_word": type_text.format("animal"),
        "ask_question": type_text.format("which units respond to boats?"),
        "ask_common_question": type_text.format("which units respond to animals?"),
        "type_nothing": type_text.format(""),
        "sort_score": sort.format("-worst"),
        "sort_concept": sort.format("concept"),
        "sort_alike": sort.format("alike"),
        "filter_verdict": "document.querySelector('#verdicts button').click()",
        "filter_concept": "document.querySelector('#concepts button').click()",
        "show_table": size.format("table"),
        "show_wall": size.format("large"),
    }
    answers: dict[str, float] = {}
    for name, action in actions.items():
        before = _cpu(tab)
        answers[f"{name}_ms"] = float(tab.run(TIMED.format(action=action)))
        answers[f"{name}_cpu_ms"] = 1000 * (_cpu(tab) - before)
    tab.run(type_text.format(""))
    return {
        "open_s": opened,
        "open_cpu_s": used,
        "texts_s": whole,
        "words_s": read,
        **_memory(),
        "focus_stops": int(tab.run(FOCUS)),
        **answers,
    }


def _cpu(tab: Tab) -> float:
    """Returns the CPU seconds of the page's thread, which do not depend on what else the machine does."""
    metrics = {one["name"]: one["value"] for one in tab.call("Performance.getMetrics")["metrics"]}
    return metrics["TaskDuration"]


def _timed(work: Callable[[], Result]) -> tuple[Result, float]:
    """Returns the result and the CPU seconds of this process."""
    start = time.process_time()
    return work(), time.process_time() - start


if __name__ == "__main__":
    _main()
