"""The config: one schema, clear refusals, and what counts as another config."""

import ast
import inspect
from dataclasses import is_dataclass
from pathlib import Path
from typing import Any

import pytest
import yaml

from openmaia.config import machine, schema, studies
from openmaia.config.loading import differing_keys, find_left_out, load, load_sweeps, to_dict, to_yaml
from openmaia.config.schema import Config, prompt_writer
from openmaia.core.errors import UsageError
from openmaia.models.backbones import served
from openmaia.models.backbones.vllm import component
from openmaia.models.generators import diffusion, images_api
from openmaia.models.targets import network
from openmaia.models.targets.network import NetworkConfig
from openmaia.models.targets.synthetic import component as synthetic
from openmaia.offline.closed_form import component as closed_form
from openmaia.offline.collage import host
from openmaia.offline.experimenter import components

CONFIGS = sorted(file for file in (Path(__file__).parents[2] / "configs").rglob("*.yaml") if file.stem != "prices")
SECTIONS = {
    kind
    for module in (
        machine,
        schema,
        studies,
        diffusion,
        images_api,
        host,
        network,
        synthetic,
        closed_form,
        served,
        component,
        components,
    )
    for kind in vars(module).values()
    if is_dataclass(kind) and kind.__name__.endswith("Config")
}
LEAST = ["name=x", "units=all", "target.name=t"]
LABELS = ["backbone.kind=labels", "backbone.record=labels.csv", "backbone.model=m"]


def studied(config: Config) -> NetworkConfig:
    assert isinstance(config.target, NetworkConfig)
    return config.target


def refused(*sources: str) -> str:
    with pytest.raises(UsageError) as caught:
        load([*LEAST, *sources])
    return caught.value.message


@pytest.mark.parametrize("path", CONFIGS, ids=lambda path: path.stem)
def test_shipped_config_loads(path: Path):
    own = yaml.safe_load(path.read_text())
    if "sweeps" in own:
        assert len(load_sweeps([str(path)])) == len(own["sweeps"])
        return
    sources = [str(path)] if "name" in own else [*LEAST, str(path)]
    assert isinstance(load(sources), Config)


def test_user_mappings_are_replaced_as_a_whole():
    engine = ["backbone.kind=vllm", "backbone.model=m"]
    one = load(
        [*LEAST, *engine, "backbone.arguments.load_format=mistral", "target.directions={blocks.3: a.safetensors}"]
    )
    assert one.backbone.arguments == {"load_format": "mistral"}
    assert studied(one).directions == {"blocks.3": "a.safetensors"}
    other = load(
        [*LEAST, *engine, "backbone.arguments.load_format=dummy", "target.directions={blocks.3: b.safetensors}"]
    )
    assert differing_keys(to_dict(one), to_dict(other)) == ["backbone.arguments", "target.directions"]
    assert studied(load([*LEAST, *engine, "backbone.arguments.load_format=mistral"])).directions == {}
    writer = [
        "evaluate.writer.kind=vllm",
        "evaluate.writer.model=m",
        "evaluate.writer.arguments.load_format=dummy",
    ]
    drawing = ["evaluate.generator.kind=openai", "evaluate.generator.model=m"]
    third = load([*LEAST, *writer, *drawing, "evaluate.generator.arguments.quality=high"])
    assert third.evaluate.writer.arguments == {"load_format": "dummy"}
    assert third.evaluate.generator.arguments == {"quality": "high"}


def test_texts_are_read_as_they_are_written(tmp_path: Path):
    """YAML alone reads 010 as 8, 0.10 as 0.1 and no as False."""
    file = tmp_path / "a.yaml"
    file.write_text("name: 010\nunits: all\ntarget: {name: 1e3, layers: [0.10, no], directions: {a: 007}}\n")
    config = load([str(file)])
    assert (config.name, config.target.name) == ("010", "1e3")
    assert (studied(config).layers, studied(config).directions) == (["0.10", "no"], {"a": "007"})
    config = load([*LEAST, "name=2024-11-20", "target.layers=[0.10,'no']", "target.directions.a=007", "seed=010"])
    assert (config.name, studied(config).layers, studied(config).directions) == (
        "2024-11-20",
        ["0.10", "no"],
        {"a": "007"},
    )
    assert config.seed == 8


def test_texts_of_inherited_mappings_are_read_as_they_are_written(tmp_path: Path):
    file = tmp_path / "a.yaml"
    file.write_text(
        "name: x\nunits: all\n<<: [{target: {name: 010, layers: [0.10]}, seed: 3}, {seed: 4, backbone: {eyes: 1e3}}]\n"
    )
    config = load([str(file)])
    assert (config.target.name, studied(config).layers, config.seed) == ("010", ["0.10"], 3)
    assert config.backbone.eyes == "1e3"
    file.write_text("name: x\nunits: all\n<<: {target: {name: a, layers: [010]}}\ntarget: {name: 007}\n")
    assert (load([str(file)]).target.name, studied(load([str(file)])).layers) == ("007", [])


def test_later_sources_win(tmp_path: Path):
    file = tmp_path / "a.yaml"
    file.write_text("limits: {turns: 20}\nseed: 3\n")
    config = load([*LEAST, "seed=1", str(file), "limits.turns=30"])
    assert (config.seed, config.limits.turns) == (3, 30)


def test_override_may_be_longer_than_a_file_name():
    units = "layer4=" + ",".join(map(str, range(2000)))
    assert load([*LEAST, f"units={units}"]).units == units
    [config] = load_sweeps([*LEAST, f"units={units}"])
    assert config.units == units


@pytest.mark.parametrize(
    ("given", "nearest"),
    [
        ("limit.turns=3", "limits.turns"),
        ("targt.name=x", "target.name"),
        ("exemplars.quantil=0.9", "exemplars.quantile"),
        ("sed=3", "seed"),
        ("target.layer=[a]", "target.layers"),
    ],
)
def test_unknown_key_names_the_nearest(given: str, nearest: str):
    message = refused(given)
    assert given.partition("=")[0] in message
    assert f"did you mean {nearest!r}" in message


def test_unknown_key_in_a_file_names_the_file(tmp_path: Path):
    file = tmp_path / "mine.yaml"
    file.write_text("limits:\n  turn: 3\n")
    message = refused(str(file))
    assert "mine.yaml" in message
    assert "'limits.turns'" in message


@pytest.mark.parametrize(
    "given",
    ["limits.turns=abc", "limits.turns=1.5", "limits.turns=null", "limits.turns=true", "target.layers=a", "target=foo"],
)
def test_value_of_the_wrong_type_is_refused(given: str):
    assert given.partition("=")[0] in refused(given)


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ("units=", "units: a value is missing"),
        ("target.layers=layer4", "target.layers: a list is needed, such as target.layers=[a,b]"),
        ("target=resnet18", "target is a section; give one of its keys, such as target."),
        ("pools.target=2", "pools.target is a section; give one of its keys, such as pools.target."),
    ],
)
def test_common_mistakes_are_explained(given: str, said: str):
    assert said in refused(given)


def test_value_of_the_wrong_type_in_a_file_names_its_key(tmp_path: Path):
    file = tmp_path / "a.yaml"
    file.write_text("seed: 1\nlimits:\n  turns: abc\n")
    assert "limits.turns" in refused(str(file))


@pytest.mark.parametrize(
    "given",
    ["name={", "name=[", "=3", "=", "a..b=3", "target.=3", "name=${nowhere}", "name='${'", f"seed={'9' * 5000}"],
)
def test_malformed_override_is_refused(given: str):
    assert refused(given)


@pytest.mark.parametrize(
    "data",
    [
        *(b"a: [", b"- a\n- b\n", b"just words", b"a: 1\na: 2\n\t- x", b"\x00", bytes(range(128, 256))),
        *(b"null: 3", b"name: '${'", b"name: !!set {a}", b"seed: " + b"9" * 5000, b"--- a\n--- b"),
        *(b"sweeps: ['${x}']", b"sweeps: ${name}", b"sweeps: '${'", b"sweeps: [!!set {a}]"),
    ],
)
def test_malformed_file_is_named(tmp_path: Path, data: bytes):
    file = tmp_path / "broken.yaml"
    file.write_bytes(data)
    assert "broken.yaml" in refused(str(file))
    with pytest.raises(UsageError, match=r"broken\.yaml"):
        load_sweeps([str(file)])


def test_empty_file_changes_nothing(tmp_path: Path):
    file = tmp_path / "empty.yaml"
    file.write_text("# nothing\n")
    assert load([*LEAST, str(file)]) == load(LEAST)


@pytest.mark.parametrize("given", ["nowhere.yaml", "word", "/"])
def test_missing_file_is_named(given: str):
    assert repr(given) in refused(given)


def test_missing_values_are_listed():
    with pytest.raises(UsageError) as caught:
        load(["name=x"])
    assert "units" in caught.value.message
    assert "target.name" in caught.value.message


@pytest.mark.parametrize("name", ["a/b", "..", ".hidden", "''", "'  '", "/tmp/x", '"a\\0b"', '"a\\nb"'])
def test_name_must_be_a_folder_name(name: str):
    assert "name" in refused(f"name={name}")


@pytest.mark.parametrize(
    "given",
    [
        "limits.turns=0",
        "limits.soft_turns=0",
        "limits.minutes=0",
        "limits.minutes=.nan",
        "limits.tokens=-1",
        "limits.reply_tokens=0",
        "limits.images_per_call=0",
        "exemplars.k=0",
        "exemplars.quantile=2",
        "exemplars.quantile=.nan",
        "exemplars.quantile=-0.1",
        "evaluate.n=0",
        "evaluate.bootstrap=0",
        "replicates=0",
        "retries=-1",
        "pictures.limit=-1",
        "generator.size=0",
        "pools.target.min_replicas=0",
        "pools.backbone.max_batch=0",
        "pools.editor.deadline=0",
        "ray.investigations=0",
        "ray.num_cpus=-1",
        "sandbox.seconds=0",
        "sandbox.memory_mb=-5",
        "pools.target.max_replicas=-1",
        "task.evidence.controls=-1",
        "bias.rate=1.5",
        "target.name=''",
    ],
)
def test_value_out_of_range_names_its_key(given: str):
    assert given.partition("=")[0] in refused(given)


@pytest.mark.parametrize(
    "given",
    [
        "seed=-1",
        "generator.guidance=-2",
        "evaluate.detect=0",
        "evaluate.writer.temperature=0",
    ],
)
def test_value_in_range_is_accepted(given: str):
    models = ["generator.kind=diffusers", "generator.model=m"]
    load([*LEAST, *models, "evaluate.writer.kind=openai", "evaluate.writer.model=m", given])


@pytest.mark.parametrize("section", sorted(SECTIONS, key=str))
def test_every_key_is_documented(section: type):
    """The documentation of the keys is generated from the strings below the fields."""
    (node,) = ast.parse(inspect.getsource(section)).body
    assert isinstance(node, ast.ClassDef)
    for field, below in zip(node.body, [*node.body[1:], None], strict=True):
        annotation = ast.unparse(field.annotation) if isinstance(field, ast.AnnAssign) else "ClassVar"
        if "Config" not in annotation and "ClassVar" not in annotation:
            assert isinstance(field, ast.AnnAssign)
            assert isinstance(below, ast.Expr), f"{section.__name__}.{ast.unparse(field.target)} has no documentation"


@pytest.mark.parametrize(
    "key",
    [
        *(f"{section}.kind" for section in ("target", "pictures", "generator", "editor", "backbone", "viewer")),
        *("evaluate.writer.kind", "evaluate.judge.kind"),
    ],
)
def test_unknown_kind_is_refused_with_the_known_ones(key: str):
    message = refused(f"{key}=oracle")
    assert message.startswith(f"{key}='oracle' is not known; expected ") and " or " in message


@pytest.mark.parametrize(
    ("key", "known"),
    [
        ("tracking.kind", "'none', 'wandb'"),
        ("tracking.mode", "'online', 'offline', 'disabled'"),
        ("evaluate.preset", "'labels', 'paper', 'repo', 'pairing'"),
        ("backbone.sees", "'images', 'text'"),
    ],
)
def test_unknown_choice_is_refused_with_the_known_ones(key: str, known: str):
    assert f"{key}: Invalid value 'oracle', expected one of [{known}]" in refused(f"{key}=oracle")


@pytest.mark.parametrize("sharing", ["oracle", "vllm"])
def test_sharing_by_what_knows_no_words_is_refused(sharing: str):
    assert f"evaluate.sharing='{sharing}'; expected label, labels, or the kind of a writer" in refused(
        f"evaluate.sharing={sharing}"
    )


def test_soft_limit_above_the_hard_limit_is_refused():
    message = refused("limits.soft_turns=9", "limits.turns=8")
    assert "limits.soft_turns=9" in message
    assert "limits.turns=8" in message


def changed(*overrides: str) -> list[str]:
    return differing_keys(to_dict(load(LEAST)), to_dict(load([*LEAST, *overrides])))


def test_equal_configs_do_not_differ():
    assert changed() == []


@pytest.mark.parametrize(
    ("override", "key"),
    [
        ("seed=1", "seed"),
        ("target.layers=[a,b]", "target.layers"),
        ("exemplars.quantile=0.5", "exemplars.quantile"),
        ("units=random:3", "units"),
        ("without=[text2image]", "without"),
    ],
)
def test_changed_value_is_named_by_its_key(override: str, key: str):
    assert changed(override) == [key]


def test_all_changed_values_are_named():
    assert changed("seed=1", "limits.turns=20") == ["limits.turns", "seed"]


def test_machine_sections_are_not_compared():
    machine = ["paths.runs=/tmp/r", "pools.target.min_replicas=3", "ray.address=auto", "retries=4", "paths.cache=/c"]
    server = ["backbone.kind=openai", "backbone.model=m", "backbone.sees=text", "viewer.kind=openai", "viewer.model=m"]
    server += ["evaluate.writer.kind=openai", "evaluate.writer.model=m"]
    server += ["evaluate.generator.kind=openai", "evaluate.generator.model=m"]
    server += ["generator.kind=diffusers", "generator.model=m"]
    machine += ["backbone.base_url=http://127.0.0.1:1", "viewer.timeout=9", "evaluate.writer.tries=2"]
    machine += ["evaluate.generator.tries=2", "generator.offload=true"]
    one, other = (to_dict(load([*LEAST, *server, *more])) for more in ((), machine))
    assert differing_keys(one, other) == []


@pytest.mark.parametrize(
    "text", ["2024-01-01", "12:30:45", "1e3", "0x10", "on", "null", "~", "1_000", "a: b", "#x", "’ünï", "=", "{a}"]
)
def test_saved_config_reads_back_equal(text: str):
    config = load(LEAST)
    studied(config).weights, studied(config).layers, config.limits.minutes = text, [text, "5"], 1e-05
    saved: dict[str, Any] = yaml.safe_load(to_yaml(config))
    assert saved == to_dict(config)
    assert differing_keys(saved, to_dict(config)) == []


@pytest.mark.parametrize(
    ("given", "said"),
    [
        (["backbone.kind=vllm"], "leaves out backbone.model"),
        (["backbone.kind=vllm", "backbone.model=''"], "needs backbone.model"),
        (["backbone.kind=openai", "backbone.model=m", "pools.backbone.min_replicas=2"], "backbone.concurrency"),
        (
            [
                *("evaluate.generator.kind=openai", "evaluate.generator.model=m"),
                "pools.test_generator.min_replicas=2",
            ],
            "evaluate.generator.concurrency",
        ),
        (["backbone.kind=vllm", "backbone.model=m", "backbone.context_tokens=4000"], "limits.reply_tokens=4096"),
        (
            ["backbone.kind=vllm", "backbone.model=m", "backbone.tensor_parallel=2", "pools.backbone.num_gpus=1"],
            "needs as many GPUs per replica",
        ),
        (["generator.kind=diffusers"], "leaves out generator.model"),
        (["editor.kind=diffusers"], "leaves out editor.model"),
        (["backbone.kind=openai", "backbone.model=m", "backbone.tries=0"], "above 0"),
        (["evaluate.writer.kind=openai", "evaluate.writer.model=m", "evaluate.writer.tries=0"], "above 0"),
        (["backbone.kind=replay"], "leaves out backbone.record"),
        (["backbone.sees=text", "viewer.kind=openai"], "leaves out viewer.model"),
        (["pictures.kind=folder"], "leaves out pictures.folder"),
        (["pictures.kind=hf"], "leaves out pictures.dataset"),
    ],
)
def test_contradicting_values_are_refused(given: list[str], said: str):
    assert said in refused(*given)


def test_file_of_sweeps_stands_for_each_of_them(tmp_path: Path):
    (tmp_path / "a.yaml").write_text("name: a\nunits: all\ntarget: {name: one}\nseed: 1\n")
    (tmp_path / "b.yaml").write_text("name: b\nunits: all\ntarget: {name: two}\nseed: 2\n")
    both = tmp_path / "both.yaml"
    both.write_text("sweeps: [a.yaml, b.yaml]\nreplicates: 3\n")
    found = load_sweeps(["seed=7", str(both), "retries=5"])
    assert [(c.name, c.target.name, c.seed, c.replicates, c.retries) for c in found] == [
        ("a", "one", 1, 3, 5),
        ("b", "two", 2, 3, 5),
    ]


@pytest.mark.parametrize(
    ("b", "after", "said"),
    [
        ("name: a", "seed=1", "the name 'a'"),
        ("name: b", "name=c", "the name 'c'"),
        ("name: b\nbackbone: {eyes: other}", "seed=1", "backbone.eyes differ"),
        ("name: b\npools: {target: {min_replicas: 2}}", "seed=1", "pools.target.min_replicas differ"),
        ("name: b\nevaluate: {generator: {kind: collage}}", "seed=1", "evaluate.generator.kind differ"),
        ("sweeps: [a.yaml]", "seed=1", "names several sweeps"),
    ],
)
def test_sweeps_that_cannot_share_name_the_keys_that_differ(tmp_path: Path, b: str, after: str, said: str):
    (tmp_path / "a.yaml").write_text("name: a\nunits: all\ntarget: {name: one}\n")
    (tmp_path / "b.yaml").write_text(f"{b}\nunits: all\ntarget: {{name: two}}\n")
    both = tmp_path / "both.yaml"
    both.write_text("sweeps: [a.yaml, b.yaml]\n")
    with pytest.raises(UsageError) as caught:
        load_sweeps([str(both), after])
    assert said in caught.value.message


def test_file_of_sweeps_is_refused_where_one_config_is_needed(tmp_path: Path):
    both = tmp_path / "both.yaml"
    both.write_text("sweeps: [a.yaml]\n")
    assert "names several sweeps" in refused(str(both))


@pytest.mark.parametrize(
    ("sources", "kind"),
    [
        (["backbone.kind=searcher", "generator.kind=scenes"], "scene_rules"),
        (["backbone.kind=searcher", "generator.kind=scenes", "evaluate.writer.kind=rules"], "rules"),
        (["backbone.kind=scripted", "generator.kind=scenes"], "rules"),
        ([*LABELS, "generator.kind=scenes"], "scene_rules"),
        ([*LABELS, "generator.kind=collage"], "rules"),
        ([*LABELS, "evaluate.generator.kind=scenes"], "scene_rules"),
        (["backbone.kind=openai", "backbone.model=m", "generator.kind=scenes"], "openai"),
    ],
)
def test_prompts_are_written_in_the_words_of_the_agent_or_of_the_generator(sources: list[str], kind: str):
    assert prompt_writer(load([*LEAST, *sources])).kind == kind


def test_backbone_names_what_goes_with_it(tmp_path: Path):
    def kinds(*sources: str) -> list[str]:
        made = load([*LEAST, *sources])
        return [each.kind for each in (made.pictures, made.generator, made.editor, made.viewer)]

    assert kinds("backbone.kind=searcher") == ["scenes"] * 4
    assert kinds("backbone.kind=searcher", "backbone.kind=scripted") == kinds("backbone.kind=scripted") == kinds()
    assert kinds("generator.kind=collage", "backbone.kind=searcher") == ["scenes", "collage", "scenes", "scenes"]
    # Keys are for the kind that stood beside them.
    file = tmp_path / "earlier.yaml"
    file.write_text("generator: {parts: pictures, size: 96}\n")
    made = load([*LEAST, str(file), "backbone.kind=searcher"])
    assert (made.generator.kind, made.generator.size) == ("scenes", 96)
    assert find_left_out([*LEAST, str(file), "backbone.kind=searcher"]) == {"generator.parts": "generator.kind=scenes"}
