"""People vote on descriptions: one vote each, bound to what they saw, and files that are none."""

from pathlib import Path

import pytest

from openmaia.api.runs import LoadedRun
from openmaia.core.errors import UsageError
from openmaia.core.units import TargetInfo
from openmaia.interop.claim_files import read_claim_file
from openmaia.runs.aside import set_aside
from openmaia.runs.run import InvestigationId, Run
from openmaia.runs.votes import Fit, cast_vote, read_votes
from tests.helpers.commands import output, refused
from tests.reporting.making import record, run


@pytest.fixture
def made(tmp_path: Path) -> Run:
    return run(tmp_path)


def at(made: Run, index: int) -> InvestigationId:
    return next(each for each in made.plan() if each.unit.index == index)


def test_last_vote_of_a_person_counts(made: Run):
    cast_vote(made, at(made, 0), "ada", Fit.YES)
    cast_vote(made, at(made, 0), " Ada ", Fit.NO, "red  things")
    cast_vote(made, at(made, 0), "grace", Fit.PARTLY)
    votes = read_votes(made).by_investigation[at(made, 0)]
    assert [(vote.person, vote.fit, vote.correction) for vote in votes] == [
        ("Ada", "does not fit", "red things"),
        ("grace", "fits in part", ""),
    ]


@pytest.mark.parametrize(
    ("person", "fit", "correction", "why"),
    [
        ("", Fit.YES, "", "no name"),
        ("x" * 81, Fit.YES, "", "no name"),
        ("a\x1b[31mb", Fit.YES, "", "no name"),
        ("ada", "perhaps", "", "one of fits"),
        ("ada", Fit.NO, "y" * 201, "no label"),
        ("ada", Fit.NO, "a\x07b", "no label"),
        ("ada", Fit.NO, "=cmd|' /C calc'!A0", "cannot begin"),
        ("@ada", Fit.NO, "", "cannot begin"),
    ],
)
def test_votes_are_checked(made: Run, person: str, fit: str, correction: str, why: str):
    with pytest.raises(UsageError, match=why):
        cast_vote(made, at(made, 0), person, fit, correction)
    assert read_votes(made).by_investigation == {}


def test_nobody_votes_on_what_has_no_record(made: Run):
    with pytest.raises(UsageError, match="no description to vote on"):
        cast_vote(made, at(made, 4), "ada", Fit.YES)


def test_vote_on_a_description_that_was_replaced_does_not_count(made: Run):
    cast_vote(made, at(made, 0), "ada", Fit.YES)
    cast_vote(made, at(made, 1), "ada", Fit.YES)
    set_aside(made, at(made, 0), "retried/1")
    made.publish(record(at(made, 0).unit, made_config(made), text="something else"))
    found = read_votes(made)
    assert set(found.by_investigation) == {at(made, 1)} and found.outdated == 1
    assert "replaced since then, not counted: 1" in output("show", made.files.root)


def made_config(made: Run):
    from openmaia.config.loading import load

    return load([made.files.path("config.yaml")])


@pytest.mark.parametrize("data", [b"", b"{", b"[]", b'{"person": 3}', b"[" * 10_000, b"\xff", b" " * 5_000])
def test_damaged_votes_are_named_and_others_count(made: Run, data: bytes):
    cast_vote(made, at(made, 0), "ada", Fit.YES)
    made.files.write(f"votes/{at(made, 0).path}/zz.json", data)
    made.files.write("votes/stray.json", data)
    found = read_votes(made)
    assert len(found.refused) == 2 and all("is no vote" in reason for reason in found.refused)
    assert len(found.by_investigation[at(made, 0)]) == 1


def test_votes_are_shown_and_corrections_can_be_tested(made: Run, tmp_path: Path):
    for index, fits in ((0, (Fit.YES, Fit.YES)), (1, (Fit.NO, Fit.PARTLY))):
        for person, fit in zip(("ada", "grace"), fits, strict=True):
            cast_vote(made, at(made, index), person, fit, "the sea" if fit is Fit.NO else "")
    shown = output("show", made.files.root)
    assert "votes of 2 people on 2 descriptions: 2 fits, 1 fits in part, 1 does not fit" in shown
    assert "Krippendorff's alpha) 0.40" in shown  # 1 - 3 x 2 / 10
    assert list(LoadedRun(made).votes().fit) == ["fits", "fits", "does not fit", "fits in part"]
    table = tmp_path / "corrections.csv"
    assert "1 corrections" in output("export", "corrections", made.files.root, "--to", str(table))
    (claim,) = read_claim_file(str(table), TargetInfo(name="net", layers={"layer4": 5}, digest="", input_size=(32, 32)))
    assert (claim.unit.index, claim.description, claim.method) == (1, "the sea", "ada, correcting #0")


def test_export_without_corrections_is_refused(made: Run, tmp_path: Path):
    assert "nobody has corrected" in refused("export", "corrections", made.files.root, "--to", str(tmp_path / "c.csv"))
    assert not (tmp_path / "c.csv").exists()


def test_one_name_in_two_encodings_is_one_person(made: Run):
    cast_vote(made, at(made, 0), "Jos\u00e9", Fit.YES)
    cast_vote(made, at(made, 0), "Jose\u0301", Fit.NO)
    cast_vote(made, at(made, 1), "jos\u00e9", Fit.NO)
    assert [vote.fit for vote in read_votes(made).by_investigation[at(made, 0)]] == ["does not fit"]
    assert "votes of 1 person on 2 descriptions" in output("show", made.files.root)


def test_vote_on_a_page_of_an_earlier_description_is_refused(made: Run):
    with pytest.raises(UsageError, match="was replaced since this page was loaded"):
        cast_vote(made, at(made, 0), "ada", Fit.YES, seen="0" * 32)


def test_file_in_place_of_the_folder_of_votes_is_named(made: Run):
    made.files.write("votes", b"x")
    found = read_votes(made)
    assert not found.by_investigation
