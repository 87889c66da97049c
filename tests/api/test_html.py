"""Results in notebooks: what IPython would display, with hostile texts."""

from dataclasses import replace
from html.parser import HTMLParser

from IPython.core.formatters import DisplayFormatter

import openmaia
from openmaia.api.html import render_parts
from tests.helpers.samples import noise

HOSTILE = "<script>alert(1)</script><img src=x onerror='alert(1)'>\" onload=\"alert(1)"


class Tags(HTMLParser):
    """Collects the tags of a page, with the names of their attributes, and its text."""

    def __init__(self, page: str):
        super().__init__()
        self.tags: list[tuple[str, set[str]]] = []
        self.text = ""
        self.feed(page)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, {name for name, _ in attrs}))

    def handle_data(self, data: str) -> None:
        self.text += data


def displayed(value: object) -> str:
    """The HTML that a notebook shows for the value of a cell."""
    formats, _ = DisplayFormatter().format(value)
    return formats["text/html"]


def test_result_shows_images_with_prompts_and_activations(result: openmaia.UnitResult):
    page = Tags(displayed(result))
    best = result.images().query("prompt.str.startswith('a plain red')").iloc[0]
    assert result.description in page.text
    assert f"{best.activation:.4g}" in page.text
    assert best.prompt in page.text
    assert f"AUC {result.scores['auc']:.2f}" in page.text
    assert sum(tag == "img" for tag, _ in page.tags) > 20
    assert len(displayed(result)) < 2_000_000


def test_hostile_texts_are_escaped(result: openmaia.UnitResult):
    assert result.evaluation is not None
    trial = result.evaluation.trial
    record = replace(result.record, description=HOSTILE, labels=(HOSTILE,), backbone=HOSTILE, preprocessing=HOSTILE)
    stimuli = tuple(replace(each, prompt=HOSTILE) for each in trial.stimuli)
    evaluation = replace(result.evaluation, trial=replace(trial, stimuli=stimuli))
    page = Tags(displayed(replace(result, record=record, evaluation=evaluation)))
    assert HOSTILE in page.text
    assert {tag for tag, _ in page.tags} <= {
        "div",
        "style",
        "h3",
        "h4",
        "p",
        "figure",
        "img",
        "figcaption",
        "span",
        "pre",
    }
    assert {name for _, names in page.tags for name in names} <= {"class", "src", "alt"}


def test_displayed_parts_form_a_grid():
    page = Tags(
        render_parts(
            [HOSTILE, "[image-1, masked]\n", noise(0, 40, 40), noise(1, 40, 40), "the end"], ["[image-1, masked]", ""]
        )
    )
    assert [tag for tag, _ in page.tags if tag in ("pre", "img")] == ["pre", "img", "img", "pre"]
    assert "[image-1, masked]" in page.text
    assert "script" not in {tag for tag, _ in page.tags}
