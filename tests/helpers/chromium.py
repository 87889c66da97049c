"""A headless Chromium that tests drive through its debugging protocol, with the pages exactly as they were written."""

import base64
import itertools
import json
import shutil
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from websockets.sync.client import ClientConnection, connect

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
FLAGS = (
    "--headless --no-sandbox --disable-gpu --disable-quic --no-first-run --disable-background-networking "
    "--disable-component-update --disable-sync --hide-scrollbars --remote-debugging-port=0 --disable-dev-shm-usage"
).split()
SECONDS = 60.0


class LeftPage(Exception):
    """The protocol refused a call, for example because the tab opens another page."""


class Tab:
    """One tab of a browser."""

    def __init__(self, connection: ClientConnection):
        self._connection = connection
        self._numbers = itertools.count(1)
        self.call("Page.enable")
        self.call("Runtime.enable")

    def call(self, method: str, **parameters: Any) -> Any:
        """Calls a method of the protocol and returns its result. Events are ignored."""
        number = next(self._numbers)
        self._connection.send(json.dumps({"id": number, "method": method, "params": parameters}))
        while True:
            answer = json.loads(self._connection.recv(timeout=SECONDS))
            if answer.get("id") == number:
                if "error" in answer:
                    raise LeftPage(answer["error"]["message"])
                return answer["result"]

    def run(self, script: str) -> Any:
        """Returns the value of an expression, also of a promise. The policy of the page does not apply to it."""
        result = self.call("Runtime.evaluate", expression=script, awaitPromise=True, returnByValue=True)
        assert "exceptionDetails" not in result, result["exceptionDetails"]
        return result["result"].get("value")

    def leave(self, script: str) -> None:
        """Runs an expression that may leave the page before it can answer, such as a click on a link."""
        with suppress(LeftPage):
            self.run(script)

    def wait(self, condition: str, seconds: float = SECONDS) -> None:
        """Waits until an expression is true."""
        end = time.monotonic() + seconds
        while not self._holds(condition):
            assert time.monotonic() < end, f"never true: {condition}"
            time.sleep(0.02)

    def _holds(self, condition: str) -> bool:
        try:
            return self.run(f"Boolean({condition})")
        except LeftPage:
            return False

    def open(self, address: str, ready: str = "document.readyState === 'complete'") -> None:
        """Opens an address and waits until its page is ready."""
        # From another page, because a new fragment of the same address would load nothing.
        self.call("Page.navigate", url="about:blank")
        self.wait("location.href === 'about:blank'")
        self.call("Page.navigate", url=address)
        self.wait(f"location.href !== 'about:blank' && ({ready})")

    def resize(self, width: int, height: int = 900) -> None:
        """Sets the size of the visible area, also below the smallest window of a desktop."""
        self.call(
            "Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=width < 600
        )

    def scheme(self, name: str) -> None:
        """Shows pages in the colour scheme light or dark."""
        self.call("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": name}])

    def press(self, key: str) -> None:
        """Presses and releases a key."""
        self.call("Input.dispatchKeyEvent", type="keyDown", key=key, text=key)
        self.call("Input.dispatchKeyEvent", type="keyUp", key=key)

    def picture(self, path: Path, *, whole: bool = False) -> None:
        """Writes what is visible, or the whole page, as PNG."""
        shot = self.call("Page.captureScreenshot", format="png", captureBeyondViewport=whole)
        path.write_bytes(base64.b64decode(shot["data"]))


@contextmanager
def browser(profile: Path) -> Iterator[Tab]:
    """Starts Chromium with a new profile and yields its tab."""
    process = subprocess.Popen(
        [str(CHROMIUM), *FLAGS, f"--user-data-dir={profile}", "about:blank"],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    try:
        with connect(_address(process, profile), max_size=None) as connection:
            yield Tab(connection)
    finally:
        process.terminate()
        process.wait(timeout=30)


def _address(process: "subprocess.Popen[bytes]", profile: Path) -> str:
    """Returns the address of the first tab's debugging protocol."""
    from urllib.request import urlopen

    port, end = profile / "DevToolsActivePort", time.monotonic() + SECONDS
    while time.monotonic() < end:
        assert process.poll() is None, "Chromium ended"
        if port.is_file() and (number := port.read_text().split("\n")[0]):
            with urlopen(f"http://127.0.0.1:{number}/json") as answer:
                tabs = [tab for tab in json.load(answer) if tab["type"] == "page"]
            if tabs:
                return tabs[0]["webSocketDebuggerUrl"]
        time.sleep(0.05)
    raise AssertionError("Chromium does not answer")
