"""The bank: drawn once, kept, measured like a dataset, looked up by agents, and in no test."""

import json
import os
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import pytest

from openmaia.agent.loop import investigate_and_publish
from openmaia.agent.tools.api_text import api_text
from openmaia.analysis.costs.estimate import estimate
from openmaia.assembly import datasets, evaluation, generators, targets
from openmaia.assembly.single import SingleUnit, prepare
from openmaia.config.loading import load
from openmaia.config.schema import Config
from openmaia.core.errors import StoreError, UsageError
from openmaia.core.services import Generator, Probe
from openmaia.core.text import Printer
from openmaia.datasets import index
from openmaia.datasets.index import IndexEntry
from openmaia.datasets.library import ImageDataset
from openmaia.evaluation.claims import Claim
from openmaia.evaluation.protocol import run_trials
from openmaia.exemplars.bank import ImageBank, find_bank, keep_bank
from openmaia.exemplars.bank_prompts import LISTED, list_prompts, list_requests, read_prompts
from openmaia.runs.files import Files
from openmaia.runs.records import Did, ExperimentStatus, Record
from openmaia.runs.run import InvestigationId, Run
from tests.conftest import REPOSITORY
from tests.helpers.images import sample_image, save
from tests.helpers.investigating import ANSWER, code, history
from tests.helpers.traced import workload

IMAGES = 60
LOOK = code("for activation, image, prompt in tools.bank(system, top=3, bottom=2, random=1):\n    print(prompt)")
MEASURE = code("found = tools.bank(system, top=2)\nprint(*system.call_neuron([image for _, image, _ in found])[0])")


def demo(folder: Path, *overrides: str) -> Config:
    is_other = any(each.startswith("pictures.kind=") for each in overrides)
    return load(
        [
            str(REPOSITORY / "configs/demo.yaml"),
            "units=stage3=1",
            "target.layers=[stage2,stage3]",
            *(() if is_other else ("pictures.count=80",)),
            f"paths.runs={folder / 'runs'}",
            f"paths.exemplars={folder / 'exemplars'}",
            f"paths.cache={folder / 'cache'}",
            *overrides,
        ]
    )


def with_bank(folder: Path, *overrides: str) -> Config:
    return demo(folder, f"bank.images={IMAGES}", *overrides)


def recorded(folder: Path, *replies: str) -> list[str]:
    """Overrides by which these replies are the agent's, of which no evidence is demanded."""
    none = ("experiments", "labels", "words", "drawable", "confirm", "controls", "replicates")
    zero = [f"task.evidence.{name}=0" for name in none]
    return ["backbone.kind=replay", f"backbone.record={history(folder, (*replies, ANSWER))}", *zero]


def opened(config: Config) -> Callable[[], Iterator[Generator]]:
    @contextmanager
    def generator() -> Iterator[Generator]:
        yield generators.generator(config)

    return generator  # type: ignore[return-value]


def kept(config: Config, say: Printer = lambda line: None) -> ImageBank:
    found = keep_bank(config, opened(config), lambda: datasets.image_dataset(config), say)
    assert found is not None
    return found


def reused(config: Config) -> ImageBank | None:
    return keep_bank(config, lambda: pytest.fail("drawn again"), lambda: datasets.image_dataset(config))


def looked_for(config: Config) -> ImageBank | None:
    return find_bank(config, lambda: datasets.image_dataset(config))


# -- prompts ---------------------------------------------------------------------------------------------------------


def test_prompts_of_a_file_are_its_different_lines(tmp_path: Path):
    path = tmp_path / "prompts.txt"
    path.write_bytes("﻿a red ball\r\n\r\n  a café  \n\na red ball\n".encode())
    assert read_prompts(path) == ["a red ball", "a café"]


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (b"a ball\n\xff\xfe\n", "no text in UTF-8"),
        (b"a ball\na \x1b[31mred\x1b[0m ball\n", "line 2: .*control character"),
        ("a ball\n\u202ellab a\n".encode(), "line 2: .*control character"),
        (b"\n  \n\n", "no prompt"),
        (b"", "no prompt"),
        (b"x" * 3000, "line 1: a prompt of 3,000 characters"),
        (b"a ball\n" * 1_500_000, "at most 4,194,304 are read"),
    ],
)
def test_a_file_that_is_no_list_of_prompts_is_refused(tmp_path: Path, data: bytes, reason: str):
    path = tmp_path / "prompts.txt"
    path.write_bytes(data)
    with pytest.raises(UsageError, match=reason) as caught:
        read_prompts(path)
    assert caught.value.message.isprintable()


def test_a_pipe_is_refused(tmp_path: Path):
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(UsageError, match="is no file"):
        read_prompts(tmp_path / "pipe")


def test_the_list_of_the_package_is_one_that_a_user_could_give():
    prompts = read_prompts(LISTED)
    assert len(prompts) == len(LISTED.read_text().splitlines()) >= 1000


def test_prompts_are_words_of_the_generator_and_pairs_of_them(tmp_path: Path):
    config = with_bank(tmp_path, "bank.images=300", "generator.without=[dog]")
    vocabulary = generators.vocabulary(config)
    assert vocabulary is not None
    prompts, words = list_prompts(config), vocabulary.words
    assert prompts[: len(words)] == list(words) and "dog" not in words
    assert len(set(prompts)) == 300
    assert prompts == list_prompts(config)
    assert "dog" not in {word for prompt in prompts for word in prompt.split()}


def test_prompts_are_repeated_with_other_seeds_whatever_the_run(tmp_path: Path):
    (tmp_path / "few.txt").write_text("a cat\na tree\n")
    config = with_bank(tmp_path, "bank.images=5", f"bank.prompts={tmp_path / 'few.txt'}")
    requests = list_requests(config)
    assert [each.prompt for each in requests] == ["a cat", "a tree", "a cat", "a tree", "a cat"]
    assert len({each.seed for each in requests}) == 5
    assert requests == list_requests(replace(config, seed=7, name="other"))


# -- images ----------------------------------------------------------------------------------------------------------


def test_a_prompt_that_cannot_be_drawn_is_left_out_and_counted(tmp_path: Path):
    (tmp_path / "some.txt").write_text("a red ball\na unicorn\na ghost\na tree\n")
    said = list[str]()
    bank = kept(with_bank(tmp_path, "bank.images=4", f"bank.prompts={tmp_path / 'some.txt'}"), said.append)
    assert [each.prompt for each in bank.images] == ["a red ball", "a tree"]
    assert said[-1] == "bank: 2 images; 2 could not be drawn as asked, such as 'a unicorn'"


def test_a_bank_of_nothing_is_refused(tmp_path: Path):
    (tmp_path / "none.txt").write_text("a unicorn\n")
    with pytest.raises(UsageError, match="none of the prompts can be drawn"):
        kept(with_bank(tmp_path, f"bank.prompts={tmp_path / 'none.txt'}"))


def test_a_bank_is_drawn_once_for_all_targets_and_runs_of_a_generator(tmp_path: Path):
    bank = kept(with_bank(tmp_path))
    again = reused(with_bank(tmp_path, "seed=3", "target.name=other"))
    assert again is not None and again.images == bank.images and again.files.root == bank.files.root
    found = looked_for(with_bank(tmp_path, "seed=4"))
    assert found is not None and found.images == bank.images
    assert looked_for(with_bank(tmp_path, "bank.images=0")) is None
    assert looked_for(other := with_bank(tmp_path, "generator.size=96")) is None, "looking makes none"
    assert kept(other).name != bank.name


@pytest.mark.parametrize("name", ["images.arrow", "bank.json"])
@pytest.mark.parametrize("data", [b"", b"\0" * 4096, b"{}", b'{"version":1,"images":[{"digest":1}]}'])
def test_a_damaged_bank_is_made_again_and_said(tmp_path: Path, name: str, data: bytes):
    config, said = with_bank(tmp_path, "bank.images=6"), list[str]()
    bank = kept(config)
    bank.files.write(name, data)
    assert kept(config, said.append).images == bank.images
    assert any(name in line and "it is made again" in line for line in said)


def test_a_foreign_bank_is_not_used(tmp_path: Path):
    own, other = with_bank(tmp_path, "bank.images=6"), with_bank(tmp_path, "bank.images=5")
    bank, said = kept(own), list[str]()
    folder = bank.files.local
    assert folder is not None
    kept(other)
    (foreign,) = {each for each in folder.parent.iterdir() if each != folder}
    shutil.copytree(foreign, folder, dirs_exist_ok=True)
    assert kept(own, said.append).images == bank.images
    assert any("is that of another bank: it is made again" in line for line in said)


def test_changed_pixels_are_noticed_before_they_are_measured(tmp_path: Path):
    bank = kept(with_bank(tmp_path, "bank.images=6"))
    document = json.loads(bank.files.read("bank.json") or b"")
    document["images"][0]["digest"] = "0" * 64
    bank.files.write("bank.json", json.dumps(document).encode())
    found = ImageBank.open(bank.files)
    assert found is not None
    with pytest.raises(ValueError, match="not what was drawn"):
        found.dataset().items[0].load()


def test_a_prompt_with_an_escape_sequence_in_an_index_is_refused(tmp_path: Path):
    bank = kept(with_bank(tmp_path, "bank.images=6"))
    document = json.loads(bank.files.read("bank.json") or b"")
    document["images"][0]["prompt"] = "\x1b[31mred"
    bank.files.write("bank.json", json.dumps(document).encode())
    with pytest.raises(StoreError, match="control character"):
        ImageBank.open(Files(bank.files.root))


# -- photographs -----------------------------------------------------------------------------------------------------


@pytest.fixture
def photographs(tmp_path: Path) -> Path:
    """Twelve photographs, of which ten have a caption."""
    folder = tmp_path / "photographs"
    for seed in range(12):
        save(folder / f"{seed}.png", sample_image(seed))
    captions = [f"photograph {seed}\n\x1b[31m" for seed in range(10)] + ["", ""]
    index.write(
        folder,
        [
            IndexEntry(path=f"{n}.png", kind="photo", caption=text, category="", package="")
            for n, text in enumerate(captions)
        ],
        {},
    )
    return folder


def test_photographs_without_a_caption_are_left_out(tmp_path: Path, photographs: Path):
    said = list[str]()
    bank = kept(with_bank(tmp_path, f"bank.folder={photographs}"), said.append)
    assert {each.prompt for each in bank.images} == {f"photograph {n}" for n in range(10)}
    assert said[-1] == "bank: 10 images; 2 photographs without a caption are left out"


def test_photographs_of_the_tests_are_in_no_bank(tmp_path: Path, photographs: Path):
    config = with_bank(tmp_path, f"bank.folder={photographs}", "pictures.kind=folder", f"pictures.folder={photographs}")
    tested = {each.digest for each in ImageDataset.open(photographs).items if each.split == "test"}
    bank = kept(config)
    assert tested and bank.images
    assert not tested & {source for each in bank.images for source in each.sources}


def test_photographs_without_any_caption_are_refused(tmp_path: Path):
    save(tmp_path / "bare" / "0.png", sample_image(0))
    with pytest.raises(UsageError, match="no photograph with a caption"):
        kept(with_bank(tmp_path, f"bank.folder={tmp_path / 'bare'}"))


# -- investigations --------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("shared")


def investigated(config: Config, say: Printer = lambda line: None) -> tuple[Record, SingleUnit]:
    single = prepare(config, "stage3=1", say)
    run = Run.create(config)
    run.set_plan([single.unit], 1)
    investigation = InvestigationId(unit=single.unit, replicate=0)
    result = investigate_and_publish(investigation, single.task, single.services, single.options, run)
    assert result.summary is not None, result.cause
    return run.record(investigation), single


def test_an_agent_looks_up_what_excites_its_unit(shared: Path, tmp_path: Path):
    config = with_bank(shared, f"paths.runs={tmp_path}", *recorded(tmp_path, LOOK, MEASURE))
    said = list[str]()
    record, single = investigated(config, said.append)
    looked, measured = record.turns[0], record.turns[1]
    assert (looked.status, measured.status) == (ExperimentStatus.OK, ExperimentStatus.OK), looked.observation
    entries = looked.calls[0].entries
    values = [entry.activation["value"] for entry in entries if entry.activation]
    assert [entry.did for entry in entries] == [Did.BANK] * 6
    assert values[:3] == sorted(values, reverse=True)[:3] and min(values) in values[3:5]
    assert "".join(map(str, looked.observation)).split("\n")[:3] == [entry.prompt for entry in entries[:3]]
    assert not {"generator", "editor", "target"} & looked.spent.keys()
    again = [entry for entry in measured.calls[-1].entries if entry.did is Did.MEASURED]
    assert [entry.activation["value"] for entry in again if entry.activation] == pytest.approx(values[:2], rel=1e-3)
    service = single.services.bank
    assert service is not None
    best = service.read(single.unit)[0]
    (own,) = single.services.target.probe([Probe(unit=single.unit, image=best.exemplar.image)])
    assert own.value == pytest.approx(best.exemplar.activation, rel=1e-3)


def test_the_first_message_shows_the_best_of_the_bank(shared: Path, tmp_path: Path):
    config = with_bank(shared, f"paths.runs={tmp_path}", "bank.shown=2", "bank.words=3", *recorded(tmp_path))
    record, single = investigated(config)
    assert single.services.bank is not None
    best = [each.prompt for each in single.services.bank.read(single.unit)[:3]]
    question = record.prompts[1].splitlines()
    at = next(number for number, line in enumerate(question) if line.startswith("Images that were made before"))
    assert [line.split(":")[0] for line in question[at + 1 : at + 3]] == [f"1. {best[0]}", f"2. {best[1]}"]
    words = single.services.bank.words(single.unit, 3)
    told = [f"{n}. {each.text} (bank, AUC {each.auc:.2f} on " for n, each in enumerate(words, start=1)]
    assert len(words) == 3 and 1 >= words[0].auc > 0.5
    assert [line.startswith(each) for line, each in zip(question[-3:], told, strict=True)] == [True] * 3
    assert "tools.bank(system" in record.prompts[0]


def test_without_images_and_words_the_first_message_is_that_without_a_bank(shared: Path, tmp_path: Path):
    silent, alone = (
        investigated(make(shared, f"paths.runs={tmp_path / name}", *keys, *recorded(tmp_path)))[0]
        for name, make, keys in (("a", with_bank, ("bank.shown=0", "bank.words=0")), ("b", demo, ()))
    )
    assert silent.prompts[1] == alone.prompts[1]


def test_a_second_run_measures_nothing_and_gives_the_same_record(shared: Path, tmp_path: Path):
    records = list[Record]()
    for name in ("first", "second"):
        said = list[str]()
        config = with_bank(shared, f"paths.runs={tmp_path}", f"name={name}", *recorded(tmp_path, LOOK))
        records.append(investigated(config, said.append)[0])
    assert not any(line.startswith("bank:") for line in said)
    assert records[0].prompts == records[1].prompts
    assert records[0].turns[0].output_digest == records[1].turns[0].output_digest


def test_without_a_bank_the_agent_has_no_such_tool(shared: Path, tmp_path: Path):
    record, _ = investigated(demo(shared, f"paths.runs={tmp_path}", *recorded(tmp_path, LOOK)))
    assert record.turns[0].status is ExperimentStatus.ERROR
    assert "there is no tool 'bank'" in "".join(map(str, record.turns[0].observation))
    assert "bank" not in " ".join(record.prompts)
    assert "tools.bank" in api_text({}, available=("bank",)) and "bank" not in api_text({})


def test_a_bank_may_be_withheld(shared: Path, tmp_path: Path):
    config = with_bank(shared, f"paths.runs={tmp_path}", "without=[bank]", *recorded(tmp_path, LOOK))
    record, _ = investigated(config)
    assert record.turns[0].status is ExperimentStatus.ERROR
    assert "Not available in this investigation: tools.bank." in record.prompts[0]
    assert "Images that were made before" not in record.prompts[1]


@pytest.mark.parametrize(
    "call", ["tools.bank(system, top=-1)", 'tools.bank(system, top="many")', "tools.bank(system, True)"]
)
def test_a_wrong_number_of_images_is_refused(shared: Path, tmp_path: Path, call: str):
    record, _ = investigated(with_bank(shared, f"paths.runs={tmp_path}", *recorded(tmp_path, code(call))))
    assert record.turns[0].status is ExperimentStatus.ERROR
    assert "expected a number of images" in "".join(map(str, record.turns[0].observation))


def test_an_agent_hears_that_fewer_images_are_kept(shared: Path, tmp_path: Path):
    asked = code("print(len(tools.bank(system, top=100)))")
    record, _ = investigated(with_bank(shared, f"paths.runs={tmp_path}", *recorded(tmp_path, asked)))
    text = "".join(map(str, record.turns[0].observation))
    assert "top=100, and 15 are kept for each unit" in text and "15\n" in text


# -- tests of descriptions, costs, config ----------------------------------------------------------------------------


def test_no_test_image_has_a_prompt_of_the_bank(shared: Path, tmp_path: Path):
    config = demo(shared, "evaluate.pictures=0", "evaluate.n=8", "evaluate.looks=[]")
    claim = Claim(unit=prepare(config, "stage3=1").unit, labels=("tree",))

    def tested(config: Config) -> set[str]:
        target, generator = targets.target(config), generators.generator(config)
        services, design = evaluation.evaluation_services(config, generator, target), evaluation.design(config)
        from openmaia.evaluation.controls import prepare_reference

        (trial,) = run_trials([claim], services, design, prepare_reference({"stage3"}, services, design))
        return {stimulus.prompt for stimulus in trial.stimuli if stimulus.role in ("positive", "neutral")}

    before = tested(config)
    (tmp_path / "same.txt").write_text("\n".join(sorted(before)))
    after = tested(
        demo(
            shared,
            "evaluate.pictures=0",
            "evaluate.n=8",
            "evaluate.looks=[]",
            "bank.images=9",
            f"bank.prompts={tmp_path / 'same.txt'}",
        )
    )
    assert before and after and not before & after


def test_an_estimate_counts_the_images_of_the_bank_once(tmp_path: Path):
    work = workload()

    def drawn(units: int, *overrides: str) -> float:
        return estimate(demo(tmp_path, *overrides), work, units, None).services["generator"].requests

    for units in (1, 50):
        assert drawn(units, "bank.images=500") - drawn(units) == pytest.approx(500)


@pytest.mark.parametrize(
    ("overrides", "reason"),
    [
        (["bank.k=20"], "bank.images=0 cannot use it"),
        (["bank.images=9", "bank.prompts=a", "bank.folder=b"], "give one"),
        (["bank.images=9", "bank.shown=16"], "above bank.k=15"),
        (["bank.images=-1"], "out of range"),
    ],
)
def test_keys_that_contradict_each_other_are_refused(tmp_path: Path, overrides: list[str], reason: str):
    with pytest.raises(UsageError, match=reason):
        demo(tmp_path, *overrides)
