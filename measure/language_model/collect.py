"""Collects real replies of language models for the parser's corpus.

    python -m measure.language_model.collect url=http://127.0.0.1:8000/v1 model=NAME [each=20] >> tests/agent/replies.jsonl
    python -m measure.language_model.collect run=FOLDER >> tests/agent/replies.jsonl

Each line holds a model, a temperature, the kind of message that it replies to, and the reply: of a server as the model wrote
it, of a run as the loop received it. Equal replies of a run are written once. How each reply is to be understood is added by
people who read them: `code` (whether it holds an experiment), `answer` (answer, abstain or none) and `labels`.
"""

import json
import sys
from collections.abc import Iterator
from itertools import product

import openai

from openmaia.agent.evidence.demands import MEASURED
from openmaia.agent.tasks.task import load
from openmaia.agent.tools.api_text import api_text
from openmaia.core.units import Unit
from openmaia.runs.run import Run

TEMPERATURES = (0.2, 0.7, 1.0, 1.3)
EXPERIMENT = """[HYPOTHESIS LIST]:
1. not known yet

[CODE]:
```python
for activation, image in tools.dataset_exemplars(system):
    tools.display(activation, image)
```"""
OUTPUT = """15.89 (percentile 100)
[image-1, masked] spaghetti squash (0.33); where the unit responds: yellow (0.61), rings (0.28).
14.36 (percentile 99)
[image-2, masked] citrus (0.55), orange (0.51); where the unit responds: orange (0.70).
13.87 (percentile 99)
[image-3, masked] baguette (0.50), sand (0.89); where the unit responds: yellow (0.48), sand (0.36).
"""
TRACEBACK = """Traceback (most recent call last):
  File "<experiment 1>", line 3, in <module>
ValueError: too many values to unpack (expected 2)
"""


def main() -> None:
    given = dict(argument.partition("=")[::2] for argument in sys.argv[1:])
    for line in of_run(given["run"]) if "run" in given else of_server(**given):
        print(json.dumps(line, ensure_ascii=False), flush=True)


def of_server(url: str, model: str, each: str = "20") -> Iterator[dict[str, object]]:
    """Yields replies to each kind of message at each temperature."""
    client = openai.OpenAI(base_url=url, api_key="none", timeout=600)
    for temperature, (kind, messages), seed in product(TEMPERATURES, conversations(), range(int(each))):
        answer = client.chat.completions.create(
            model=model, messages=messages, temperature=temperature, seed=seed, max_tokens=400
        )
        reply = answer.choices[0].message.content or ""
        yield {"model": model, "temperature": temperature, "after": kind, "seed": seed, "reply": reply}


def of_run(folder: str) -> Iterator[dict[str, object]]:
    """Yields the replies of the investigations of a run."""
    run = Run.open(folder)
    backbone = run.config()["backbone"]
    seen = set[str]()
    for investigation in sorted(run.done(), key=str):
        before = "question"
        for turn in run.record(investigation).turns:
            if turn.reply not in seen:
                seed = f"{investigation.unit.layer}/{investigation.unit.index}/{turn.index}"
                yield {
                    "model": backbone["model"],
                    "temperature": backbone["temperature"],
                    "after": before,
                    "seed": seed,
                    "reply": turn.reply,
                }
            seen.add(turn.reply)
            before = "refusal" if not turn.code else "traceback" if turn.status == "error" else "output"


def conversations() -> Iterator[tuple[str, list]]:
    """Yields the kinds of messages that models reply to: the question, an output, an error, a refusal, the last call."""
    task = load("description")
    opening = [
        {"role": "system", "content": task.instructions(api_text({}))},
        {"role": "user", "content": task.question(Unit(target="network", layer="layer", index=0))},
    ]
    told = {
        "output": OUTPUT,
        "traceback": TRACEBACK,
        "refusal": task.missing.replace("{missing}", f"- 0 of 2 {MEASURED}"),
        "final": OUTPUT + task.final,
    }
    yield "question", opening
    for kind, text in told.items():
        yield kind, [*opening, {"role": "assistant", "content": EXPERIMENT}, {"role": "user", "content": text}]


if __name__ == "__main__":
    main()
