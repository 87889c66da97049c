"""Renders the questions as one HTML file that works without network."""

import base64
import hashlib
import secrets
from collections.abc import Sequence
from importlib.resources import files

import jinja2
from markupsafe import Markup

from openmaia.recipes.choices.questions import ChoiceQuestion


def render_page(questions: Sequence[ChoiceQuestion], name: str) -> bytes:
    """Renders a page that saves the answers to a file and reveals no units, runs or methods: images and questions have
    random names.
    """
    names = {data: secrets.token_hex(6) for question in questions for data in question.pair.exemplars}
    order = sorted(names, key=lambda data: names[data])
    content = {
        "page": name,
        "pictures": {names[data]: "data:image/webp;base64," + base64.b64encode(data).decode() for data in order},
        "items": [
            {
                "name": each.name,
                "pictures": [names[data] for data in each.pair.exemplars],
                "truth": each.pair.truth,
                "texts": each.texts,
            }
            for each in questions
        ],
    }
    style, script = _source("page.css"), _source("page.js")
    environment = jinja2.Environment(autoescape=True, undefined=jinja2.StrictUndefined)
    return (
        environment.from_string(_source("page.html.j2"))
        .render(
            questions=content,
            is_told=any(each.pair.truth for each in questions),
            style=Markup(style),
            script=Markup(script),
            policy=_policy(style, script),
        )
        .encode("utf-8", "replace")
    )


def _policy(style: str, script: str) -> str:
    # The progress bar's width is set by the script, which the CSSOM allows under any policy.
    return (
        f"default-src 'none'; img-src data:; style-src '{_digest(style)}'; script-src '{_digest(script)}'; "
        "base-uri 'none'; form-action 'none'"
    )


def _digest(text: str) -> str:
    return "sha256-" + base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()


def _source(name: str) -> str:
    return (files("openmaia.recipes.choices") / name).read_text(encoding="utf-8")
