"""Every config key that the user sets is used by what the config chooses, or refused."""

from functools import cache
from pathlib import Path

import pytest

from openmaia.config import uses
from openmaia.config.loading import config_keys, find_left_out, load, refuse_unused_by, restore, to_dict
from openmaia.config.schema import Config, model_of, pool_names, pools_by_role
from openmaia.config.sections import site
from openmaia.core.errors import UsageError
from tests.config.test_config import LEAST

ALL = "all"
SERVED = "vllm openai anthropic"
SERVERS = "openai anthropic"
AGENTS = f"scripted replay python {SERVED}"

USED: dict[str, dict[str, str]] = {
    "backbone.kind=scripted replay labels python vllm openai anthropic": {
        "backbone.sees": AGENTS,
        "backbone.outage_minutes": f"python {SERVED}",
        "backbone.": ALL,
        "tools": f"replay python {SERVED}",
        "task.hypotheses.": f"replay python {SERVED}",
        "task.effects": f"replay python {SERVED}",
        "without": AGENTS,
        "limits.reply_tokens": f"python {SERVED}",
        "limits.": AGENTS,
        "sandbox.": AGENTS,
        "task.evidence.confirm": ALL,
        "task.evidence.": AGENTS,
        "pools.backbone.max_batch": "scripted replay labels",
        "pools.backbone.": ALL,
    },
    "backbone.sees=images text": {"viewer.kind": "text", "viewer.eyes": "text"},
    "viewer.kind=scripted scenes openai anthropic none": {
        "viewer.sees": "",
        "viewer.protocol": "",
        "viewer.outage_minutes": "",
        "viewer.": ALL,
    },
    "evaluate.writer.kind=rules vllm openai anthropic replay": {
        "evaluate.writer.outage_minutes": "",
        "evaluate.writer.": ALL,
    },
    "evaluate.judge.kind=eyes detector none": {
        "evaluate.detect": "eyes detector",
        "evaluate.pictures": ALL,
        "evaluate.n": ALL,
    },
    "generator.kind=collage scenes diffusers openai": {
        "pools.generator.min_replicas": ALL,
        "pools.generator.": ALL,
    },
    "editor.kind=collage scenes diffusers openai": {
        "pools.editor.": ALL,
    },
    "bank.images=0 9": {"bank.images": ALL, "bank.": "9"},
    "shared.images=0 9": {"shared.images": ALL, "shared.": "9"},
    "ray.address=local auto": {"ray.num_cpus": "local", "ray.wait_seconds": "auto", "ray.": ALL},
    "tracking.kind=none wandb": {"tracking.kind": ALL, "tracking.": "wandb"},
}
"""For each choice, the keys that depend on it, and the values with which they are used. The first beginning counts."""

OTHERWISE = {
    "viewer.kind": ["backbone.sees=text"],
    "shared.images": ["backbone.kind=openai", "backbone.model=m"],
}
"""What the values of a choice are combined with."""

NEEDS = {
    **{kind: [f"SECTION.kind={kind}", "SECTION.model=m"] for kind in SERVED.split()},
    "labels": ["SECTION.kind=labels", "SECTION.model=m", "SECTION.record=r"],
    "replay": ["SECTION.kind=replay", "SECTION.record=r"],
    "diffusers": ["SECTION.kind=diffusers", "SECTION.model=m"],
}

CASES = [
    (key, value)
    for key, values in (choice.partition("=")[::2] for choice in USED)
    for value in (values.split(" ") if values.startswith(" ") else values.split())
]


@cache
def chosen(key: str, value: str) -> Config:
    section, _, name = key.rpartition(".")
    given = NEEDS.get(value, [f"{key}={value}"]) if name == "kind" else [f"{key}={value}"]
    return load([*LEAST, *OTHERWISE.get(key, ()), *(each.replace("SECTION", section) for each in given)])


def keys() -> list[str]:
    return config_keys()


@pytest.mark.parametrize(("choice", "value"), CASES)
def test_key_is_used_or_refused(choice: str, value: str):
    config = chosen(choice, value)
    table = next(table for text, table in USED.items() if text.partition("=")[0] == choice)
    wrong: list[str] = []
    for key in keys():
        own = next((start for start in table if key == start or (start.endswith(".") and key.startswith(start))), None)
        if own is None:
            continue
        is_used = not uses.find_unused([key], config)
        if is_used != (table[own] == ALL or value in table[own].split()):
            wrong.append(f"{key} is {'used' if is_used else 'refused'}")
    assert wrong == []


def test_every_key_of_a_component_is_in_the_table():
    sections = (
        "backbone.",
        "viewer.",
        "evaluate.writer.",
        "tracking.",
    )
    starts = [start for table in USED.values() for start in table]
    free = {f"{section}kind" for section in sections}
    left = [
        key
        for key in keys()
        if key.startswith(sections)
        and key not in free
        and not any(key == start or (start.endswith(".") and key.startswith(start)) for start in starts)
    ]
    assert left == []


@pytest.mark.parametrize(
    ("given", "key", "component", "user"),
    [
        (["tools=[mine:look]"], "tools", "backbone.kind=scripted", "a language model"),
        (["backbone.kind=labels", "backbone.model=m", "backbone.record=r", "without=[text2image]"], "without", "labels", "experiments"),
        (["pools.test_generator.max_batch=2"], "pools.test_generator.max_batch", "evaluate.generator=null", "evaluate.generator.kind"),
        (["viewer.kind=none"], "viewer.kind", "backbone.sees=images", "text"),
        (["evaluate.judge.kind=none", "evaluate.detect=3"], "evaluate.detect", "evaluate.judge.kind=none", "a judge"),
        (["evaluate.pictures=0", "evaluate.detect=3"], "evaluate.detect", "evaluate.pictures=0", "photographs"),
        (["tracking.project=x"], "tracking.project", "tracking.kind=none", "wandb"),
    ],
)  # fmt: skip
def test_refusal_names_key_component_and_user(given: list[str], key: str, component: str, user: str):
    with pytest.raises(UsageError) as caught:
        load([*LEAST, *given])
    assert caught.value.message.startswith(f"{key}: ")
    assert component in caught.value.message and user in caught.value.message


@pytest.mark.parametrize("kind", ["scripted", "labels"])
def test_prompts_of_the_user_are_refused_without_a_reader(kind: str, tmp_path: Path):
    (tmp_path / "user.md").write_text("Which texture?")
    kinds = {"scripted": [], "labels": ["backbone.kind=labels", "backbone.model=m", "backbone.record=r"]}
    with pytest.raises(UsageError, match=f"task.name: backbone.kind={kind} cannot use it"):
        load([*LEAST, *kinds[kind], f"task.name={tmp_path}"])
    load([*LEAST, "backbone.kind=openai", "backbone.model=m", f"task.name={tmp_path}"])


def test_all_unused_keys_are_one_error():
    with pytest.raises(UsageError) as caught:
        load([*LEAST, "tools=[mine:look]", "viewer.kind=none", "tracking.project=x"])
    assert all(key in caught.value.message for key in ("tools", "viewer.kind", "tracking.project"))


def test_key_in_a_file_is_refused_like_an_override(tmp_path: Path):
    (tmp_path / "mine.yaml").write_text("limits: {reply_tokens: 9}\n")
    with pytest.raises(UsageError, match=r"limits.reply_tokens: backbone.kind=scripted cannot use it"):
        load([*LEAST, str(tmp_path / "mine.yaml")])
    served = ["backbone.kind=openai", "backbone.model=m"]
    assert load([*LEAST, str(tmp_path / "mine.yaml"), *served]).limits.reply_tokens == 9


def test_keys_of_a_component_that_a_later_source_replaces_get_their_default():
    sources = ["configs/efficientnet-lite0.yaml", "configs/models/local-cpu.yaml"]
    assert find_left_out(sources) == {
        "backbone.eyes": "backbone.kind=openai",
        "evaluate.detect": "evaluate.judge.kind=none",
    }
    assert load(sources).evaluate.detect == load(LEAST).evaluate.detect


@pytest.mark.parametrize(
    ("machine", "model"), [("one-80gb", "endpoint"), ("eight-gpus", "anthropic"), ("many-nodes", "images-api")]
)
def test_machine_files_fit_models_on_servers(machine: str, model: str):
    files = [f"configs/models/{model}.yaml", f"configs/machine/{machine}.yaml"]
    pools = load([*LEAST, *files]).pools
    pool = pools.generator if model == "images-api" else pools.backbone
    assert (pool.min_replicas, pool.max_replicas, pool.num_gpus) == (1, 0, 0)


def test_model_that_draws_and_edits_has_one_pool():
    model, machine = "configs/models/flux2-klein.yaml", "configs/machine/one-80gb.yaml"
    config = load([*LEAST, model, machine])
    assert "editor" not in pool_names(config) and config.pools.editor.num_gpus == 0
    assert pools_by_role(config)["editor"] == site(config, "editor").pool == "generator"
    assert model_of(config, "editor") is model_of(config, "test_generator") is config.generator
    with pytest.raises(UsageError, match=r"pools\.editor\.num_gpus: .*an editor with a model of its own"):
        load([*LEAST, model, "pools.editor.num_gpus=1"])
    with pytest.raises(UsageError, match=r"editor\.kind=generator: generator\.kind=collage does not edit"):
        load([*LEAST, "editor.kind=generator"])


def test_overrides_of_a_stored_config_are_checked():
    stored = to_dict(load(LEAST))
    with pytest.raises(UsageError, match=r"limits.reply_tokens: .* cannot use it"):
        restore(stored, "a run", ["limits.reply_tokens=9"])


@pytest.mark.parametrize(
    ("command", "key"),
    [
        ("openmaia run", "bias.pairs=3"),
        ("openmaia investigate", "ray.investigations=2"),
        ("openmaia.investigate", "pools.target.max_batch=2"),
        ("openmaia.investigate", "tracking.kind=wandb"),
        ("openmaia.investigate", "budget=1"),
        ("openmaia.sweep", "job.hours=3"),
        ("openmaia evaluate", "ray.num_cpus=2"),
        ("openmaia submit slurm", "job.runtime_env.pip=[a]"),
        ("openmaia submit ray", "job.hours=3"),
    ],
)
def test_command_refuses_what_it_cannot_use(command: str, key: str):
    with pytest.raises(UsageError, match=f"{key.partition('=')[0]}: {command} cannot use it; .* can"):
        refuse_unused_by(command, [*LEAST, "configs/machine/laptop.yaml", key])
