"""Pages of `openmaia view --live --control`."""

import re

from starlette.testclient import TestClient

from openmaia.runs.run import Run
from openmaia.serving.laboratory import Laboratory
from openmaia.serving.live import live_application
from tests.helpers.living import living

__all__ = ["living"]


def test_pages_that_are_live_and_give_orders_have_both_and_their_requests_are_answered(living: Run):
    app = live_application(living, Laboratory.open(living), token="t", allows=["control"])
    with TestClient(app, base_url="http://127.0.0.1", headers={"authorization": "Bearer t"}) as client:
        index, unit = client.get("/").text, client.get("/units/scenes_resnet/stage4/0-0.html").text
        for html in (index, unit):
            assert html.count("assets/live.js") == html.count("assets/control.js") == html.count('class="ask"') == 1
            assert "connect-src" in html
            for name in re.findall(r'(?:src|href)="[./]*(assets/[^"]+)"', html):
                assert client.get(f"/{name}").status_code == 200, name
        assert 'id="orders"' in index and 'id="again"' in unit
        order = {"run": living.name, "action": "pause", "unit": ""}
        assert "no command executes" in client.post("/control", json=order).json()["error"]
        assert client.post("/live/units", json={"prompt": "a red square"}).json()["units"]
        kind = {"content-type": "application/json"}
        for path, body in (
            ("/live/units", b'{"prompt": "\\ud800"}'),
            ("/control", b'{"run": "", "action": "\\ud800", "unit": ""}'),
        ):
            assert client.post(path, content=body, headers=kind).status_code == 400
            assert client.post(path, content=b"{}", headers=kind | {"origin": "http://["}).status_code == 403
