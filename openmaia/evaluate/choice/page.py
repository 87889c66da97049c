"""The blind page: one HTML file that fetches and sends nothing. Who answers it saves a file of answers."""

import base64
import hashlib
import secrets
from collections.abc import Sequence
from importlib.resources import files

import jinja2
from markupsafe import Markup

from openmaia.evaluate.choice.blind import Asked


def page(asked: Sequence[Asked], name: str) -> bytes:
    """name: of the page, by which its key is found. Nothing else in it is connected with a unit, a run or a method: pictures
    and questions have random names."""
    names = {data: secrets.token_hex(6) for one in asked for data in one.pair.exemplars}
    order = sorted(names, key=lambda data: names[data])
    questions = {
        "page": name,
        "pictures": {names[data]: "data:image/webp;base64," + base64.b64encode(data).decode() for data in order},
        "items": [
            {"name": one.name, "pictures": [names[data] for data in one.pair.exemplars], "texts": one.texts}
            for one in asked
        ],
    }
    style, script = _source("page.css"), _source("page.js")
    environment = jinja2.Environment(autoescape=True, undefined=jinja2.StrictUndefined)
    return (
        environment.from_string(_source("page.html.j2"))
        .render(questions=questions, style=Markup(style), script=Markup(script), policy=_policy(style, script))
        .encode("utf-8", "replace")
    )


def _policy(style: str, script: str) -> str:
    # The progress bar's width is set by the script, which the CSSOM may do under any policy.
    return (
        f"default-src 'none'; img-src data:; style-src '{_digest(style)}'; script-src '{_digest(script)}'; "
        "base-uri 'none'; form-action 'none'"
    )


def _digest(text: str) -> str:
    return "sha256-" + base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()


def _source(name: str) -> str:
    return (files("openmaia.evaluate.choice") / name).read_text(encoding="utf-8")
