"""Images that agents share: kept with the activations of all units of the layer, and looked up only where the config says so."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from openmaia.agent.loop import InvestigationResult, investigate_and_publish
from openmaia.agent.sharing import list_drawn, share
from openmaia.agent.tasks.task import load as load_task
from openmaia.assembly import exemplars, investigations
from openmaia.core.errors import ServiceError, StoreError, UsageError
from openmaia.core.images import EncodedImage
from openmaia.core.services import GeneratedImage, Generation, LayerProbe, Probe, Target
from openmaia.core.units import Unit
from openmaia.runs import tables
from openmaia.runs.files import Files
from openmaia.runs.records import Did, ExperimentStatus, Record
from openmaia.runs.run import InvestigationId, Run
from openmaia.runs.shared import SHARED_SCHEMA, SharedStore
from tests.helpers.images import sample_image
from tests.helpers.investigating import ANSWER, UNIT, code, configured, said
from tests.helpers.investigating import pictures as pictures

OTHER = replace(UNIT, index=1)
DRAW = code('print(system.call_neuron(tools.text2image(["a red circle", "a blue square", "a red circle"]))[0])')
LOOK = code("for activation, image, prompt in tools.shared(system, top=2, bottom=1):\n    print(prompt, activation)")
AGAIN = code('tools.text2image(["a red circle", "a blue square"])')
KEPT, LOOKS = "shared.images=9", "shared.look_up=true"
IMAGE, NEW = (EncodedImage.of(np.asarray(sample_image(seed))) for seed in (0, 1))


class Failing:
    def generate(self, requests: Sequence[Generation]) -> list[GeneratedImage]:
        raise ServiceError("the generator is gone")


class Desk:
    """A run whose investigations are started one by one."""

    def __init__(self, pictures: Path, exemplars_folder: Path, folder: Path):
        self._pictures, self._exemplars, self._folder = pictures, exemplars_folder, folder

    def attempt(self, unit: Unit, *replies: str, more: Sequence[str], fails: bool = False) -> InvestigationResult:
        overrides = (f"paths.runs={self._folder}", "units=mono=0,1", *more)
        config = configured(self._pictures, self._exemplars, self._folder, (*replies, ANSWER), overrides)
        self.run = Run.create(config)
        services = investigations.services(config, exemplars.make(config, [UNIT.layer]))
        self.target, self.store = services.target, SharedStore(self.run.investigations)
        services = replace(services, generator=Failing()) if fails else services
        options = investigations.options(config)
        return investigate_and_publish(_id(unit), load_task(config.task.name), services, options, self.run)

    def record(self, unit: Unit, *replies: str, more: Sequence[str] = (KEPT, LOOKS)) -> Record:
        result = self.attempt(unit, *replies, more=more)
        assert result.summary is not None, result.cause
        return self.run.record(_id(unit))


def _id(unit: Unit) -> InvestigationId:
    return InvestigationId(unit=unit, replicate=0)


@pytest.fixture
def desk(pictures: Path, exemplars_folder: Path, tmp_path: Path) -> Desk:
    return Desk(pictures, exemplars_folder, tmp_path)


@pytest.fixture(scope="module")
def both(
    pictures: Path, exemplars_folder: Path, tmp_path_factory: pytest.TempPathFactory
) -> tuple[Desk, Record, Record]:
    """A run with two units of a layer. The agent of the second looks up what that of the first drew, and draws itself."""
    desk = Desk(pictures, exemplars_folder, tmp_path_factory.mktemp("shared"))
    return desk, desk.record(UNIT, DRAW), desk.record(OTHER, LOOK, AGAIN)


def measured(target: Target, unit: Unit, images: Sequence[EncodedImage]) -> np.ndarray:
    return np.stack(target.respond([LayerProbe(layer=unit.layer, image=image) for image in images])).astype(np.float32)


def test_what_an_agent_draws_is_kept_with_the_activations_of_all_units(both: tuple[Desk, Record, Record]):
    desk, first, _ = both
    drawn = dict(list_drawn(first))
    assert drawn.keys() == {"a red circle", "a blue square"} and len([*list_drawn(first)]) == 3
    ranked = desk.store.rank(OTHER)
    assert {image.digest for _, image in list_drawn(first)} <= {each.digest for each in ranked}
    images = desk.store.images(OTHER, [each.digest for each in ranked])
    assert [image.digest for image in images] == [each.digest for each in ranked]
    probed = desk.target.probe([Probe(unit=OTHER, image=image) for image in images])
    assert [each.activation for each in ranked] == pytest.approx([each.value for each in probed], rel=1e-4)
    kept = np.concatenate([*desk.store.matrices(UNIT.target, UNIT.layer)])
    assert sorted(map(tuple, kept)) == sorted(map(tuple, measured(desk.target, UNIT, images)))


def test_an_agent_looks_up_what_another_one_drew(both: tuple[Desk, Record, Record]):
    _, first, second = both
    looked = second.turns[0]
    assert looked.status is ExperimentStatus.OK, looked.observation
    assert not {"generator", "editor", "target"} & looked.spent.keys()
    entries = looked.calls[0].entries
    assert [entry.did for entry in entries] == [Did.SHARED] * 3
    assert {entry.original for entry in entries} == {image.digest for _, image in list_drawn(first)}
    values = [entry.activation["value"] for entry in entries if entry.activation]
    assert values[2] <= values[1] <= values[0]


def test_prompt_and_record_say_that_it_depends_on_others(both: tuple[Desk, Record, Record]):
    _, _, second = both
    assert "tools.shared(system" in second.prompts[0]
    assert "which investigations ended before" in second.prompts[1]
    assert any("depends on them" in note for note in second.notes)


def test_a_prompt_that_was_looked_up_is_in_no_test_and_is_drawn_as_another_image(both: tuple[Desk, Record, Record]):
    desk, first, second = both
    asked = desk.run.drawn_prompts(_id(OTHER))
    assert (asked.count("a red circle"), asked.count("a blue square")) == (2 + 1, 1 + 1), "looked up, and drawn"
    drawn = [image.digest for _, image in list_drawn(second)]
    assert len(drawn) == 2 and not {*drawn} & {image.digest for _, image in list_drawn(first)}


def test_without_look_up_records_are_those_without_sharing(desk: Desk, tmp_path: Path):
    off, on = (desk.record(OTHER, DRAW, LOOK, more=(f"name={name}", *more)) for name, more in
               (("off", ()), ("on", (KEPT,))))  # fmt: skip
    assert (off.prompts, off.notes) == (on.prompts, on.notes)
    assert [each.output_digest for each in off.turns] == [each.output_digest for each in on.turns]
    assert "there is no tool 'shared'" in said(on, 1)
    assert len(desk.store.digests(UNIT)) == 3
    assert not (tmp_path / "off/shared").exists()


def test_no_more_images_are_kept_of_an_investigation_than_the_config_says(
    both: tuple[Desk, Record, Record], tmp_path: Path
):
    desk, first, _ = both
    store = SharedStore(Files(str(tmp_path)))
    share(first, desk.target, store, 2)
    assert store.digests(UNIT) == {image.digest for _, image in [*list_drawn(first)][:2]}


def test_sharing_again_writes_nothing(both: tuple[Desk, Record, Record]):
    # As after a death between the images and the record.
    desk, first, _ = both
    before = desk.store.files.names("shared")
    share(first, desk.target, desk.store, 9)
    share(first, desk.target, desk.store, 1)
    assert desk.store.files.names("shared") == before


def test_a_repetition_keeps_the_same_images(both: tuple[Desk, Record, Record], tmp_path: Path):
    desk, first, _ = both
    store = SharedStore(Files(str(tmp_path / "again")))
    for _ in range(3):
        share(first, desk.target, store, 1)
    assert len(store.digests(UNIT)) == 1


def test_a_damaged_file_ends_no_investigation_that_looks_nothing_up(desk: Desk, tmp_path: Path):
    Files(str(tmp_path / "damaged")).write(f"shared/{UNIT.target}/{UNIT.layer}/00.parquet", b"PAR1 broken")
    desk.record(UNIT, DRAW, more=("name=damaged", KEPT))
    assert len(desk.store.digests(UNIT)) >= 2


def test_what_is_removed_meanwhile_is_named(tmp_path: Path):
    store = SharedStore(Files(str(tmp_path)))
    with pytest.raises(StoreError, match="were removed meanwhile"):
        store.images(UNIT, [NEW.digest])


def test_a_resumed_investigation_goes_on_from_what_it_saw(desk: Desk, tmp_path: Path):
    store = SharedStore(Files(str(tmp_path / "closed-form")))
    store.add(UNIT, [("blobs", IMAGE)], np.full((1, 3), 0.5, np.float32))
    more = ("name=closed-form", KEPT, LOOKS)
    assert "the generator is gone" in desk.attempt(OTHER, LOOK, AGAIN, LOOK, more=more, fails=True).cause
    store.add(UNIT, [("more blobs", NEW)], np.full((1, 3), 9.0, np.float32))
    record = desk.record(OTHER, LOOK, AGAIN, LOOK, more=more)
    seen = [[entry.prompt for entry in turn.calls[0].entries] for turn in record.turns[:3]]
    assert seen[0] == ["blobs", "blobs"], "the best and the weakest of one image"
    assert seen[2] == ["more blobs", "blobs", "blobs"]


def test_an_image_of_two_workers_is_read_once(tmp_path: Path):
    store, values = SharedStore(Files(str(tmp_path))), np.array([[1.0, 2.0], [3.0, 4.0]], np.float32)
    store.add(UNIT, [("x", IMAGE), ("y", NEW)], values)
    store.add(UNIT, [("x", IMAGE)], values[:1])
    assert len(store.files.names("shared")) == 2
    assert [(each.prompt, each.activation) for each in store.rank(OTHER)] == [("y", 4.0), ("x", 2.0)]
    assert sum(len(each) for each in store.matrices(UNIT.target, UNIT.layer)) == 2


def test_an_activation_that_is_not_finite_excites_no_unit(tmp_path: Path):
    store = SharedStore(Files(str(tmp_path)))
    store.add(UNIT, [("x", IMAGE)], np.array([[np.inf, 2.0]], np.float32))
    assert store.rank(UNIT) == [] and len(store.rank(OTHER)) == 1


@pytest.mark.parametrize(
    ("values", "prompt", "digest", "reason"),
    [
        (b"\0" * 4, "x", IMAGE.digest, "without an activation of unit 1"),
        (b"abc", "x", IMAGE.digest, "differ in their number"),
        (b"\0" * 8, "a\x1b[31m", IMAGE.digest, "control character"),
        (b"\0" * 8, "x", "0" * 64, "not that of its digest"),
    ],
)
def test_a_damaged_file_is_one_clear_error(tmp_path: Path, values: bytes, prompt: str, digest: str, reason: str):
    store = SharedStore(Files(str(tmp_path)))
    store.add(UNIT, [("x", IMAGE)], np.zeros((1, 2), np.float32))
    (name,) = store.files.names("shared")
    ((row,), header) = tables.load(store.files.read(name) or b"")
    wrong = row | {"activations": values, "prompt": prompt, "digest": digest}
    store.files.write(name, tables.dump([wrong], SHARED_SCHEMA, header))
    with pytest.raises(StoreError, match=reason) as caught:
        store.images(OTHER, [each.digest for each in store.rank(OTHER)])
    assert name in caught.value.message and "remove the file" in caught.value.message
    assert caught.value.message.isprintable()


def test_the_report_leaves_out_files_that_cannot_be_read(tmp_path: Path):
    store = SharedStore(Files(str(tmp_path)))
    store.add(UNIT, [("x", IMAGE)], np.zeros((1, 2), np.float32))
    (name,) = store.files.names("shared")
    store.files.write(name, b"PAR1 and no more")
    assert list(store.matrices(UNIT.target, UNIT.layer)) == []


@pytest.mark.parametrize("more", [(LOOKS,), (LOOKS, "shared.images=0")])
def test_without_shared_images_none_can_be_looked_up(desk: Desk, more: Sequence[str]):
    with pytest.raises(UsageError, match="shared.images"):
        desk.record(UNIT, DRAW, more=more)
