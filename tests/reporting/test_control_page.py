"""The pages of `openmaia view --control` in Chromium: a run is paused and goes on, and the page of a running unit follows it."""

import dataclasses
import json
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
import uvicorn

from openmaia.config.loading import load
from openmaia.reporting.browser.serve import application
from openmaia.runs.control import obeyed, read_orders
from openmaia.runs.lease import held
from openmaia.runs.progress import ProgressFile
from openmaia.runs.run import Run
from tests.helpers.chromium import CHROMIUM, Tab, browser
from tests.reporting.making import HOSTILE, record, run, turns
from tests.reporting.test_accessibility import axe, findings

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(CHROMIUM is None, reason="no chromium on this machine: apt-get install chromium"),
]


@contextmanager
def served(made: Run) -> Iterator[str]:
    """The address of the pages, with the token."""
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        app = application([made], token="secret", allows=["control", "votes"])
        server = uvicorn.Server(uvicorn.Config(app, log_level="warning", ws="none"))
        thread = threading.Thread(target=server.run, kwargs={"sockets": [listener]})
        thread.start()
        try:
            yield f"http://127.0.0.1:{listener.getsockname()[1]}"
        finally:
            server.should_exit = True
            thread.join()


def press(tab: Tab, text: str) -> None:
    buttons = "[...document.querySelectorAll('.orders button')]"
    tab.wait(f"{buttons}.some((one) => one.textContent === {json.dumps(text)} && !one.disabled)")
    tab.run(f"{buttons}.find((one) => one.textContent === {json.dumps(text)}).click()")


def says(tab: Tab, text: str) -> None:
    tab.wait(f"document.body?.innerText.includes({json.dumps(text)})")


def test_run_is_paused_from_the_page_and_a_running_unit_is_followed_turn_by_turn(tmp_path: Path):
    source, made = axe(), run(tmp_path)
    going = next(each for each in made.pending() if each.unit.index == 4)
    for each in turns(HOSTILE)[:2]:
        made.journal(going).append(each)
    with held(made.investigations), obeyed(made, lambda line: None), served(made) as address:
        ProgressFile(made).write([(going, time.time() - 60)])
        with browser(tmp_path / "profile") as tab:
            tab.open(f"{address}/?token=secret", "document.body?.dataset.ready === 'texts'")
            press(tab, "Pause")
            says(tab, "paused since")
            assert read_orders(made).pause is not None
            assert findings(tab, source) == []
            press(tab, "Resume")
            tab.wait("!document.querySelector('#going-on').textContent.includes('paused')")
            assert read_orders(made).pause is None

            tab.run("document.querySelector('.now a').click()")
            says(tab, "Being investigated")
            assert tab.run("document.querySelectorAll('details.turn').length") == 2
            tab.run("document.querySelector('#turn-1').open = true")
            assert findings(tab, source) == []
            made.journal(going).append(turns("stripes")[2])
            opened = "[...document.querySelectorAll('details.turn')].map((one) => one.open).join()"
            tab.wait(f"{opened} === 'true,false,false'")

            config = dataclasses.replace(load(["name=tiny", "units=all", "target.name=net"]))
            made.publish(record(going.unit, config, text="striped things"))
            says(tab, "striped things")
            assert "Being investigated" not in tab.run("document.body.innerText")
            press(tab, "Investigate again")
            says(tab, "Ordered.")
            assert list(read_orders(made).retries) == [going]
            assert tab.run("document.title") != "owned"
