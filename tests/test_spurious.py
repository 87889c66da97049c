"""Removing spurious features: how pictures are divided, what units are chosen and kept, and what the agent cannot see."""

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from openmaia import build, exemplars
from openmaia.agent.attempt import attempt
from openmaia.apps.spurious import drawn, factorial, layout, sparse
from openmaia.apps.spurious.page import write
from openmaia.apps.spurious.scoring import Score
from openmaia.apps.spurious.study import Instruments, Outcome, conduct
from openmaia.apps.spurious.table import PUBLISHED, table, to_csv
from openmaia.apps.spurious.verdicts import Verdicts
from openmaia.backbones.eyes import Eyes
from openmaia.backbones.scripted import spurious
from openmaia.backbones.scripted.transcript import Transcript
from openmaia.config import load
from openmaia.errors import UsageError
from openmaia.images import decode
from openmaia.images import digest as pixel_digest
from openmaia.instruments import trainer
from openmaia.messages import user
from openmaia.pictures.library import Library
from openmaia.schema import Config, SpuriousConfig
from openmaia.store.exemplars import ExemplarStore
from openmaia.store.files import Files
from openmaia.store.run import Run
from openmaia.tasks.task import load as load_task
from openmaia.units import Unit, select
from tests.conftest import REPOSITORY
from tests.prepare import CACHE
from tests.sweeping import replayed

SMALL = REPOSITORY / "configs/spurious-small.yaml"
LOOK_AND_SAY = (
    '[CODE]:\n```python\ntools.display(*[image for kind in ("top", "bottom", "random", "ladder")'
    " for _, image in tools.dataset_exemplars(system, kind=kind)])\n```",
    "[REASONING]: whatever it was shown\n[LABEL]: {}",
)


@pytest.fixture
def asked() -> SpuriousConfig:
    return load([str(SMALL), "spurious.per_cell=8", "spurious.pool=64", "spurious.balanced=32"]).spurious


@pytest.fixture
def tree(asked: SpuriousConfig, tmp_path: Path) -> Path:
    """One grey level per picture, all different."""
    level = 0
    for cell, count in sorted(layout.owed(asked).items()):
        folder = tmp_path / cell.folder
        folder.mkdir(parents=True)
        for number in range(count):
            level += 1
            Image.new("RGB", (8, 8), (level % 256, level // 256, 0)).save(folder / f"{number}.png")
    return tmp_path


# -- the pictures --------------------------------------------------------------------------------------------------------


def test_the_counts_of_spawrious_o2o_easy_are_the_papers():
    asked = SpuriousConfig()
    total = sum(layout.training(asked).values())
    held = round(asked.validation * total)
    assert (total - held, held) == (22_810, 2_534)


def test_no_picture_is_in_two_parts(asked: SpuriousConfig, tree: Path):
    splits = layout.divide(tree, asked, seed=0)
    paths = [one.path for part in (splits.train, splits.validation, splits.test, splits.pool) for one in part]
    assert len(set(paths)) == len(paths)


def test_the_places_of_training_and_test_are_exchanged_one_to_one(asked: SpuriousConfig, tree: Path):
    splits = layout.divide(tree, asked, seed=0)
    usual = {(asked.classes[one.label], one.location) for one in splits.train if one.location != asked.filler}
    shifted = {(asked.classes[one.label], one.location) for one in splits.test}
    assert usual == set(zip(asked.classes, asked.train_locations, strict=True))
    assert shifted == set(zip(asked.classes, asked.test_locations, strict=True))


def test_the_balanced_pool_has_every_class_in_every_training_place_equally(asked: SpuriousConfig, tree: Path):
    cells = [(one.label, one.location) for one in layout.divide(tree, asked, seed=0).pool]
    assert len(set(cells)) == 16
    assert {cells.count(cell) for cell in cells} == {asked.pool // 16}


def test_a_missing_cell_is_named(asked: SpuriousConfig, tree: Path):
    folder = tree / "spawrious224/1/sand/fish"
    folder.rename(tree / "elsewhere")
    with pytest.raises(UsageError, match="spawrious224/1/sand/fish is missing, and 4 are needed"):
        layout.divide(tree, asked, seed=0)


def test_one_class_only_is_refused(asked: SpuriousConfig, tree: Path):
    with pytest.raises(UsageError, match="validation pictures .1. show one class only"):
        layout.divide(tree, replace(asked, validation=0.001), seed=0)


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"classes": ["bird"]}, "at least two classes"),
        ({"test_locations": ["sand", "grass", "wood", "snow"]}, "no class keeps its place"),
        ({"balanced": 30}, "multiple of 32"),
        ({"train_locations": ["sand", "sand", "wood", "snow"]}, "a place of its own"),
    ],
)
def test_what_describes_no_one_to_one_shift_is_refused(asked: SpuriousConfig, change: dict[str, object], said: str):
    with pytest.raises(UsageError, match=said):
        layout.check(replace(asked, **change))  # pyright: ignore[reportArgumentType]


@pytest.fixture(scope="module")
def library() -> Library:
    if not (CACHE / "packages-v1").is_dir():
        pytest.skip(f"{CACHE}/packages-v1 is missing: run python -m tests.prepare, which needs apt-get")
    return Library.open(CACHE / "packages-v1")


def test_the_data_set_and_the_agent_draw_from_disjoint_pictures(library: Library, tmp_path: Path):
    config = load([str(SMALL), "spurious.per_cell=4", "spurious.pool=32", "spurious.balanced=32", "generator.size=48"])
    kept = Keeping(_collage(library))
    drawn.draw(Files(str(tmp_path)), config.spurious, kept, lambda done, total: None)
    agents = Keeping(_collage(library))
    factorial.pictures(replace(config.spurious, probe=3), agents, run_seed=0)
    assert len(kept.sources) > 20 and len(agents.sources) > 20
    assert not kept.sources & agents.sources
    assert not kept.pictures & agents.pictures
    assert agents.sources <= {item.digest for item in library.items if item.half == "explore"}


# -- units -----------------------------------------------------------------------------------------------------------------


def _planted(informative: int = 6, noise: int = 30, count: int = 240) -> tuple[sparse.Floats, sparse.Labels]:
    """Features of which the first ones tell four classes apart."""
    rng = np.random.default_rng(0)
    labels = rng.integers(0, 4, count)
    centres = 2.5 * rng.standard_normal((4, informative))
    return np.hstack(
        [centres[labels] + rng.standard_normal((count, informative)), rng.standard_normal((count, noise))]
    ), labels


def test_l1_chooses_as_many_units_as_asked_and_those_that_tell_the_classes_apart():
    features, labels = _planted()
    model = sparse.with_units(features, labels, 5, 1e-4)
    assert len(model.units) == 5 and set(model.units) <= set(range(6))


def test_fewer_units_than_asked_for_are_refused():
    features, labels = _planted(informative=2, noise=1)
    with pytest.raises(UsageError, match="50 units are to be chosen by l1, and only 3 features"):
        sparse.with_units(features, labels, 50, 1e-3)


def test_the_model_on_some_units_uses_no_others():
    features, labels = _planted()
    model = sparse.plain(features, labels, [1, 4], 1e-4)
    changed = features.copy()
    changed[:, [0, 2, 3, *range(5, 36)]] = 99.0
    assert model.units == [1, 4]
    assert model.accuracy(features, labels) == model.accuracy(changed, labels) > 0.4


def test_a_feature_that_never_changes_is_standardised_to_zero():
    features = np.array([[1.0, 7.0], [3.0, 7.0]])
    assert sparse.Scale.of(features)(features).tolist() == [[-1.0, 0.0], [1.0, 0.0]]


def test_the_probe_keeps_units_that_follow_the_class():
    rng = np.random.default_rng(0)
    found = 0.1 * rng.standard_normal((4, 6, 3, 2))
    found[1, :, :, 0] += 2.0
    found[:, 2, :, 1] += 2.0
    assert factorial.selective(found, [0, 1]) == [0]


# -- the scripted experimenter -----------------------------------------------------------------------------------------------


def _transcript(by_thing: float, by_place: float) -> Transcript:
    """A unit that one thing raises by so much and one place by so much."""
    seen = Transcript(replies=2)
    control: list[tuple[str, float]] = []
    edits: list[tuple[str, float]] = []
    for thing in ("bird", "fish", "flower"):
        for place in ("sand", "snow", "grass"):
            there = by_place * (place == "snow")
            value = by_thing * (thing == "bird") + there
            base = f"a {thing} on {place}"
            control.append((base, value))
            edits += [(f"{base} => as drawn", value), (f"{base} => remove the {thing}", there)]
    seen.measured |= {"control": control, "edit": edits}
    return seen


@pytest.mark.parametrize(
    ("by_thing", "by_place", "verdict"), [(5, 1, "SELECTIVE"), (1, 5, "SPURIOUS"), (0, 3, "SPURIOUS")]
)
def test_the_script_judges_by_what_it_measured(by_thing: float, by_place: float, verdict: str):
    said = spurious.reply(_transcript(by_thing, by_place), user("…"), _blind())
    assert said.endswith(f"[LABEL]: {verdict}")


def test_the_script_guesses_nothing_when_its_experiments_are_cut_off():
    said = spurious.reply(Transcript(replies=1), user("… [LABEL]: SELECTIVE or …"), _blind())
    assert said.endswith("[LABEL]: undecided")


def _blind() -> Eyes:
    return Eyes(lambda pixels: np.zeros(1000, np.float32))


# -- the whole of it, small ----------------------------------------------------------------------------------------------------


class Keeping:
    """A generator, and what went into the pictures that it made."""

    def __init__(self, generator):
        self._generator, self.sources, self.pictures = generator, set(), set()

    def generate(self, requests):
        made = self._generator.generate(requests)
        self.sources |= {source for one in made for source in one.picture.sources}
        self.pictures |= {one.picture.digest for one in made}
        return made


def _collage(library: Library):
    from openmaia.generators.collage import CollageGenerator

    return CollageGenerator(library, 48)


class Study:
    """A whole study of a small network on plain pictures, without Ray."""

    def __init__(self, folder: Path, tree: Path, labels: str):
        self.tree, self.folder, self.config = tree, folder, load(_sources(folder, labels))
        self.balanced = "neither test nor pool was looked for"
        self.use = Instruments(
            trainer=trainer(self.config),
            investigate=self.investigate,
            target=build.target,
            generator=lambda: build.generator(self.config),
        )

    def conduct(self) -> Outcome:
        return conduct(self.config, self.tree, 0, self.use)

    def investigate(self, config: Config) -> Run:
        """While the agents are at work, the tree is not there."""
        away = self.tree.rename(self.tree.with_name("away"))
        run = Run.create(config)
        target = build.target(config)
        run.set_plan(select(config.units, target.info()).units, 1)
        store = exemplars.make(config, config.target.layers)
        for owed in run.owed():
            attempt(owed, load_task(config.task.name), build.services(config, store), build.options(config), run)
        away.rename(self.tree)
        return run


def _sources(folder: Path, label: str) -> list[str]:
    folder.mkdir(parents=True, exist_ok=True)
    pictures = folder / "pictures"
    pictures.mkdir(exist_ok=True)
    Image.effect_noise((16, 16), 50).convert("RGB").save(pictures / "noise.png")
    history = replayed(folder / "history.json", [LOOK_AND_SAY[0], *[LOOK_AND_SAY[1].format(label)] * 2])
    return [
        str(SMALL), "target.network=tests.networks:small_classifier", "target.layers=[features]", "target.size=32",
        "target.name=small", "generator.size=32", "pictures.kind=folder", f"pictures.folder={pictures}",
        "backbone.kind=replay", f"backbone.record={history}", f"paths.cache={folder / 'cache'}",
        f"paths.runs={folder / 'runs'}", f"paths.exemplars={folder / 'exemplars'}", "exemplars.k=4", "spurious.units=3",
        "spurious.per_cell=8", "spurious.pool=64", "spurious.balanced=32", "spurious.trials=1", "spurious.splits=1",
        "spurious.draws=3", "spurious.probe=0", "spurious.validation=0.5", "spurious.rate=0.01", "spurious.batch=8",
        "limits.turns=3", "limits.soft_turns=2",
    ]  # fmt: skip


@pytest.fixture(scope="module")
def studied(tmp_path_factory: pytest.TempPathFactory) -> tuple[Study, Outcome]:
    folder = tmp_path_factory.mktemp("spurious")
    study = Study(folder / "study", _coloured_tree(folder / "tree"), "SELECTIVE")
    return study, study.conduct()


def _coloured_tree(root: Path) -> Path:
    """The place is a colour, the class a bar of some width."""
    asked = load(_sources(root.parent / "study", "SELECTIVE")).spurious
    rng = np.random.default_rng(0)
    colours = {place: rng.integers(0, 256, 3) for place in [*asked.train_locations, asked.filler]}
    for cell, count in sorted(layout.owed(asked).items()):
        (root / cell.folder).mkdir(parents=True)
        for number in range(count):
            pixels = np.clip(colours[cell.location] + rng.integers(-25, 25, (32, 32, 3)), 0, 255).astype(np.uint8)
            pixels[:, : 4 + 6 * asked.classes.index(cell.label)] //= 2
            Image.fromarray(pixels).save(root / cell.folder / f"{number}.png")
    return root


def test_every_row_that_needs_no_probe_is_there(studied: tuple[Study, Outcome]):
    assert set(studied[1].rows) == {"original", "l1", "random", "l1_n", "agent", "balanced", "balanced_n"}


def test_the_agent_works_while_the_whole_tree_is_out_of_reach_and_sees_no_balanced_or_shifted_picture(
    studied: tuple[Study, Outcome],
):
    study, _ = studied
    splits = layout.divide(study.tree, study.config.spurious, 0)
    forbidden, allowed = (_digests(study.tree, part) for part in ([*splits.test, *splits.pool], splits.validation))
    run = Run.open(str(study.folder / "runs/spurious-small/seed-0/judging"))
    seen = {digest for owed in run.done() for digest in run.record(owed).pictures}
    kept = _stored(study, run)
    assert seen and kept
    assert not (seen | kept) & forbidden
    assert kept <= allowed


def test_every_unit_that_l1_chose_is_judged(studied: tuple[Study, Outcome]):
    _, outcome = studied
    assert outcome.verdicts.selective == outcome.candidates and len(outcome.candidates) == 3


def test_a_second_time_nothing_is_done_again(studied: tuple[Study, Outcome]):
    study, outcome = studied

    class Idle:
        def __init__(self):
            self.digest = study.use.trainer.digest

    def found(config: Config) -> Run:
        run = Run.create(config)
        assert not run.owed()
        return run

    again = conduct(study.config, study.tree, 0, replace(study.use, trainer=Idle(), investigate=found))  # type: ignore[arg-type]
    assert again == outcome


def test_an_answer_outside_the_grammar_is_counted_and_not_kept(studied: tuple[Study, Outcome], tmp_path: Path):
    study = Study(tmp_path / "study", studied[0].tree, "both, somehow")
    outcome = study.conduct()
    assert outcome.verdicts.undecided == outcome.candidates
    assert "agent" not in outcome.rows and "original" in outcome.rows


def _digests(tree: Path, examples) -> set[str]:
    return {pixel_digest(np.asarray(decode((tree / one.path).read_bytes()))) for one in examples}


def _stored(study: Study, run: Run) -> set[str]:
    config = run.config()
    store = ExemplarStore.at(config["paths"]["exemplars"], "small", config["exemplars"]["dataset"])
    return {
        exemplar.picture.digest
        for index in store.units("features")
        for exemplar in store.read(Unit(target="small", layer="features", index=index)).exemplars
    }


# -- the table -----------------------------------------------------------------------------------------------------------------


def _outcome(seed: int, agent: float) -> Outcome:
    rows = {
        "original": Score(units=(9,), accuracies=(0.5,)),
        "l1": Score(units=(5,), accuracies=(0.6,)),
        "random": Score(units=(2, 2), accuracies=(0.4, 0.6)),
        "l1_n": Score(units=(2,), accuracies=(0.6,)),
        "agent": Score(units=(2,), accuracies=(agent,)),
    }
    judged = Verdicts(selective=(1, 2), spurious=(3,), undecided=(4,), failed=())
    return Outcome(seed=seed, seen=0.9, shifted=0.5, candidates=(1, 2, 3, 4), verdicts=judged, probe=(1,), rows=rows)


def test_the_intervals_are_students_over_seeds():
    row = next(
        row for row in table([_outcome(0, 0.7), _outcome(1, 0.8), _outcome(2, 0.9)], 4).rows if row.name == "agent"
    )
    assert row.accuracy is not None and row.accuracy.low is not None
    assert (row.accuracy.mean, row.accuracy.low) == pytest.approx((0.8, 0.8 - 4.3027 * 0.1 / 3**0.5), abs=1e-4)


def test_published_figures_have_columns_of_their_own():
    made = table([_outcome(0, 0.7)], 4)
    lines = to_csv(made).decode().splitlines()
    names = lines[0].split(",")
    agent = dict(zip(names, next(line for line in lines if line.startswith("agent")).split(","), strict=True))
    assert (agent["accuracy"], agent["published_accuracy"]) == ("0.7000", str(PUBLISHED["agent"].accuracy))


def test_the_published_figures_are_those_of_the_papers_table():
    assert {name: (one.units, one.accuracy) for name, one in PUBLISHED.items()} == {
        "original": (512, 0.731), "l1": (50, 0.779), "random": (22, 0.705), "l1_n": (22, 0.757), "agent": (22, 0.837),
        "balanced": (147, 0.830), "balanced_n": (22, 0.865),
    }  # fmt: skip


def test_the_page_escapes_what_the_config_says_and_tells_ours_from_theirs(tmp_path: Path):
    config = load([str(SMALL), 'name="<script>alert(1)<|script>"'])
    made = [_outcome(0, 0.7), _outcome(1, 0.8)]
    page = write(Files(str(tmp_path)), config, table(made, 4), made, "scripted <b>").read_text()
    assert "<script>alert" not in page and "scripted &lt;b&gt;" in page
    assert "Accuracy, published" in page and "no results of ours" in page
    assert Image.open(tmp_path / "report/spurious.png").width > 1000
    assert json.loads((tmp_path / "table.json").read_text())["differences"]["l1_n"]["mean"] == pytest.approx(0.15)
