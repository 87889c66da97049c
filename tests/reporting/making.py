"""Small runs for the tests of this folder, built through the real classes."""

import base64
import dataclasses
import io
import json
import re
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import numpy as np

from openmaia.config.loading import load
from openmaia.config.schema import Config
from openmaia.core.images import EncodedImage, pack_mask
from openmaia.core.units import Unit
from openmaia.evaluation.claims import Claim
from openmaia.evaluation.compared import Evaluation
from openmaia.evaluation.storage import to_parquet
from openmaia.evaluation.trials import Stimulus, Trial
from openmaia.runs.records import Did, ExperimentStatus, GivenImage, ImageEntry, Record, Stop, ToolCall, Turn, dumps
from openmaia.runs.run import InvestigationId, Run
from tests.helpers.samples import store_evaluation

HOSTILE = "</script><script>document.title='owned'</script>\"'><img src=x onerror=\"document.title='owned'\">{{ 7*7 }}"


def sample_image(seed: int) -> EncodedImage:
    coarse = np.random.default_rng(seed).integers(0, 256, (4, 4, 3), dtype=np.uint8)
    return EncodedImage.of(np.kron(coarse, np.ones((16, 16, 1), dtype=np.uint8)))


def entry(id: str, image: EncodedImage, did: Did, value: float | None = None, **facts: Any) -> ImageEntry:
    mask = np.zeros((64, 64), dtype=bool)
    mask[:32] = True
    activation = None if value is None else {"value": value, "percentile": 97.0, "z": 2.0, "fired": True}
    return ImageEntry(id=id, original=image.digest, did=did, mask=pack_mask(mask), activation=activation, **facts)


def call(ordinal: int, name: str, arguments: object, **values: object) -> ToolCall:
    plain = ToolCall(
        ordinal=ordinal,
        name=name,
        arguments=dumps(arguments),
        arguments_digest="",
        result="null",
        error=None,
        entries=(),
        shown=(),
        asked=(),
        seconds=0.1,
    )
    return dataclasses.replace(plain, **values)  # pyright: ignore[reportArgumentType]


def turn(index: int, reply: str, **values: object) -> Turn:
    plain = Turn(
        index=index,
        reply=reply,
        code="",
        hypotheses=(),
        forgiven=(),
        status=ExperimentStatus.NONE,
        calls=(),
        observation=(),
        output_digest="",
        prompt_tokens=1000,
        cached_tokens=0,
        generated_tokens=200,
        left_out="",
        backbone_seconds=1.5,
        experiment_seconds=0.5,
    )
    return dataclasses.replace(plain, **values)  # pyright: ignore[reportArgumentType]


def turns(text: str) -> tuple[Turn, ...]:
    """Exemplars, a drawn and measured image, and an answer; `text` wherever a text of others can stand."""
    top, drawn = sample_image(1), sample_image(2)
    code = f"print({text!r})  # an experiment"
    label = "[image-1, masked]"
    lines = 60 if len(text) < 100_000 else 1
    first = turn(
        0,
        f"{text}\n[HYPOTHESIS LIST]:\n1. {text}\n2. cats\n\n[CODE]:\n```python\n{code}\n```\n",
        code=code,
        reasoning=text,
        hypotheses=(text, "cats"),
        forgiven=(text,),
        status=ExperimentStatus.OK,
        calls=(
            call(0, "dataset_exemplars", ["top"], entries=(entry("image-1", top, Did.EXEMPLAR, 5.0, prompt="top"),)),
            call(
                1,
                "display",
                [[{"image": "image-1", "view": "masked"}]],
                given=(GivenImage(id="image-1", is_masked=True),),
                shown=(label, top),
            ),
        ),
        observation=(f"{text}\n{label}\n", top, "\n".join(f"line {n} {text}" for n in range(lines))),
        images={top.digest: top},
    )
    second = turn(
        1,
        f"[HYPOTHESIS LIST]:\n1. dogs\n2. Cats\n\n[CODE]:\n```python\n{code}\n```\n",
        code=code,
        hypotheses=("dogs", "Cats"),
        status=ExperimentStatus.ERROR,
        calls=(
            call(0, "text2image", [[text]], entries=(entry("image-2", drawn, Did.DREW, prompt=text),)),
            call(
                1,
                "call_neuron",
                [[{"image": "image-2", "view": ""}]],
                entries=(entry("image-3", drawn, Did.MEASURED, 7.25, of="image-2"),),
            ),
            call(2, text, [text], error=text),
        ),
        observation=(text,),
        images={drawn.digest: drawn},
    )
    return first, second, turn(2, f"[DESCRIPTION]: {text}\n[LABEL 1]: {text}")


def record(unit: Unit, config: Config, *, text: str = "a striped cat", stop: Stop = Stop.ANSWER) -> Record:
    return Record(
        unit=unit,
        replicate=0,
        stop=stop,
        cause="limits.turns=3" if stop is Stop.LIMIT else "",
        description=text if stop is Stop.ANSWER else "",
        labels=(text, "second label") if stop is Stop.ANSWER else (),
        backbone=f"scripted (no language model; eyes: {text})",
        task=text,
        sandbox="full",
        prompts=(text, "user"),
        turns=turns(text),
        config=dataclasses.asdict(config),
        started=0.0,
        notes=(text,),
    )


def evaluation(unit: Unit, text: str = "a striped cat", best: float = 9.0) -> bytes:
    activations = (best, 4.0, 2.0, 5.0)
    roles = ("positive", "positive", "neutral", "neutral")
    stimuli = tuple(
        Stimulus(
            role=role,
            label=text,
            prompt=text,
            digest=sample_image(n).digest,
            missing_terms=(text,) if n == 3 else (),
            shows=(True, None, True, False)[n],
            verified_by=text,
            data=sample_image(n).packed().data,
            activation=activations[n],
        )
        for n, role in enumerate(roles)
    )
    trial = Trial(
        claim=Claim(unit=unit, description=text, labels=(text,)),
        outcome="tested",
        cause=text,
        writer=text,
        protocol="labels",
        stimuli=stimuli,
        matrix=np.array([activations] * 64, np.float16).T,
        location=np.zeros(64),
        scale=np.ones(64),
        standard="exemplars",
        exemplars=2.5,
        detection={"judge": text, "judged": 2, "known": 2, "shown": 1, "auprc": 0.5, "f1": None, "marks": []},
    )
    other = dataclasses.replace(trial, claim=Claim(unit=dataclasses.replace(unit, index=unit.index + 1)))
    return to_parquet(Evaluation(trial=trial, others=(other,)))


def run(
    folder: Path | str,
    *,
    name: str = "tiny",
    text: str = "a striped cat",
    layer: str = "layer4",
    answers: int = 2,
) -> Run:
    """The first units are answered and evaluated; of the three after them one is at a limit, one failed, one pending."""
    config = load(
        [f"name={name}", "units=all", "target.name=net", f"target.layers={json.dumps([layer])}", f"paths.runs={folder}"]
    )
    made = Run.create(config)
    units = [Unit(target=text[:120] if "<" in text else "net", layer=layer, index=n) for n in range(answers + 3)]
    made.set_plan(units, 1)
    for unit in units[:answers]:
        made.publish(record(unit, config, text=text))
        store_evaluation(
            made, InvestigationId(unit=unit, replicate=0), evaluation(unit, text, best=9.0 if unit.index else 1.0)
        )
    made.publish(record(units[answers], config, text=text, stop=Stop.LIMIT))
    made.fail(
        InvestigationId(unit=units[answers + 1], replicate=0),
        f"ServiceError: the generator died {text}\nTraceback {text}",
    )
    return made


def table(index: Path) -> tuple[dict[str, list[Any]], list[list[Any]]]:
    """The data of the table beside a report's index: its columns, with names for categories, and its texts."""
    *packed, last = (index.parent / "data/table.js").read_text().splitlines(keepends=True)
    data = json.loads(_text(last))
    found = [re.fullmatch(r'openmaia\.receiveValues\("(\w+)", "(\w+)", "(.*)"\);\n', line) for line in packed]
    arrays = {each[1]: np.frombuffer(base64.b64decode(each[3]), f"<{each[2]}") for each in found if each}
    columns = {name: _named(column, arrays[name]) for name, column in data["columns"].items()}
    shards = [(index.parent / f"data/texts-{shard}.js").read_text() for shard in range(data["shards"])]
    return columns, [json.loads(row) for shard in shards for row in _text(shard).split("\n")]


def _text(script: str) -> str:
    found = re.fullmatch(r'openmaia\.\w+\((?:\d+, )?(".*")\);\n', script)
    assert found
    return json.loads(found[1])


def _named(column: dict[str, Any], packed: "np.ndarray[Any, Any]") -> list[Any]:
    """The values of a column, with 7 digits; None for NaN."""
    names, numbers = column.get("names"), packed.tolist()
    values = [None if one != one else one if isinstance(one, int) else float(f"{one:.7g}") for one in numbers]
    return [names[int(value)] if names and value is not None else value for value in values]


class Page(HTMLParser):
    """What a browser would make of a page: elements with attributes, and the text outside of scripts and styles."""

    def __init__(self, html: str):
        super().__init__()
        self.elements: list[tuple[str, dict[str, str]]] = []
        self._text = io.StringIO()
        self._raw = False
        self.feed(html)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, {name: value or "" for name, value in attrs}))
        self._raw = tag in ("script", "style")

    def handle_endtag(self, tag: str) -> None:
        self._raw = False

    def handle_data(self, data: str) -> None:
        if not self._raw:
            self._text.write(data)

    @property
    def text(self) -> str:
        return self._text.getvalue()

    def all(self, tag: str) -> list[dict[str, str]]:
        return [attributes for name, attributes in self.elements if name == tag]
