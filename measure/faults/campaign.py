"""One trial: a sweep, disturbances at random moments, the same command until the run is complete, and what is left."""

import random
import re
import subprocess
import tempfile
import time
import zlib
from bisect import bisect_right
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field
from datetime import date
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Any

from measure.faults import sweep
from measure.faults.disturbances import DISTURBANCES, Disturbed, Place
from measure.measuring import commit, machine
from openmaia.core.errors import OpenMaiaError
from openmaia.runs.run import Run

IMAGE = re.compile(r"image-\d+")

SPARE = 6
"""Number of commands that may fail without a disturbance: Ray gives up where its agent does not start within 15 s, as on a busy machine."""


@dataclass(frozen=True, kw_only=True)
class Trial:
    """The outcome of one disturbed sweep."""

    disturbance: str
    seed: int
    after_turns: str
    """Numbers of turns after which the disturbances came."""
    hit: int
    """Number of disturbances that found what they disturb."""
    commands: int
    """Number of commands until the run was complete."""
    codes: str
    """Their exit codes."""
    repeated: int
    """Number of times that a turn was carried out again."""
    seconds: float
    problem: str
    """What was lost, or repeated without need; empty if nothing was."""
    date: str = field(default_factory=lambda: date.today().isoformat())
    machine: str = field(default_factory=machine)
    commit: str
    """At its beginning."""
    causes: str = ""
    """What commands said that ended with another exit code than 0, each line once."""

    def row(self) -> dict[str, Any]:
        return asdict(self)


def undisturbed() -> list[dict[str, Any]]:
    """The records of a sweep that nothing disturbs. The command is given again where Ray does not start, as on a busy machine."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        place = Place(runs=str(folder / "runs"), environment={})
        commands = _Commands(folder, place, SPARE)
        commands.finish()
        if commands.codes[-1]:
            raise RuntimeError(f"the undisturbed sweep failed with exit codes {commands.codes}: {_said(folder)}")
        return sweep.records(place.runs)


def trial(name: str, seed: int, expected: list[dict[str, Any]]) -> Trial:
    """Carries out one trial of a disturbance. The moments are drawn from the seed and the name."""
    disturbance = DISTURBANCES[name]
    chance = random.Random(seed * 1_000_003 + zlib.crc32(name.encode()))
    moments = _moments(disturbance.times, chance)
    began, begun_at = time.monotonic(), commit()
    with (
        tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as temporary,
        disturbance.place(Path(temporary)) as place,
    ):
        folder = Path(temporary)
        commands = _Commands(folder, place, 2 * len(moments) + SPARE)
        hits, problem = list[int](), ""
        try:
            for moment in moments:
                if commands.run_until(moment):
                    time.sleep(chance.uniform(0, 1))
                    disturbed = Disturbed(driver=commands.process, folder=folder, place=place, chance=chance)
                    begun = len(sweep.carried_out(folder))
                    hits += [begun] if disturbance.act(disturbed) else []
            commands.finish()
        except subprocess.TimeoutExpired as error:
            problem = f"a command hung for {error.timeout:.0f} s"
        except AssertionError as error:
            problem = str(error)
        finally:
            commands.process.kill()
            commands.process.wait()
        turns = sweep.carried_out(folder)
        problem = problem or readable(
            partial(_problem, place.runs, folder, commands.codes, expected, disturbance.is_observed)
        )
        return Trial(
            disturbance=name,
            seed=seed,
            after_turns=" ".join(map(str, moments)),
            hit=len(hits),
            commands=len(commands.codes),
            codes=" ".join(map(str, commands.codes)),
            repeated=len(turns) - len(set(turns)),
            seconds=round(time.monotonic() - began, 1),
            problem=problem or over_repeated(turns, hits),
            commit=begun_at,
            causes=causes((folder / "output.log").read_text(errors="replace"), folder),
        )


def _moments(times: int, chance: random.Random) -> list[int]:
    """Numbers of turns, one from each of as many equal parts of the sweep."""
    turns = sweep.UNITS * sweep.EXPERIMENTS
    return [chance.randrange(part * turns // times, (part + 1) * turns // times) for part in range(times)]


class _Commands:
    """Repeats the same command until the run is complete, at most `most` times."""

    def __init__(self, folder: Path, place: Place, most: int):
        self._folder, self._place, self._most = folder, place, most
        self.codes: list[int] = []
        self.process = place.start(folder)

    def run_until(self, turns: int) -> bool:
        """Waits until more than this number of different turns were carried out. Returns whether a command is running."""
        until = time.monotonic() + sweep.PATIENCE
        while len(set(sweep.carried_out(self._folder))) <= turns:
            if time.monotonic() > until:
                raise subprocess.TimeoutExpired("openmaia run", sweep.PATIENCE)
            if self.process.poll() is not None and not self._goes_on():
                return False
            time.sleep(0.05)
        return self.process.poll() is None or self._goes_on()

    def finish(self) -> None:
        """Waits until the run is complete."""
        self.process.wait(sweep.PATIENCE)
        while self._goes_on():
            self.process.wait(sweep.PATIENCE)

    def _goes_on(self) -> bool:
        """Records the exit code of a command that has ended, and repeats the command if it failed. Returns whether it did so."""
        if len(self.codes) == self._most or (self.codes and self.codes[-1] == 0):
            return False
        self.codes.append(self.process.wait(0))
        if self.codes[-1] == 0 or len(self.codes) == self._most:
            return False
        self.process = self._place.start(self._folder)
        return True


def readable(problem: Callable[[], str]) -> str:
    """Returns a problem, or that the run cannot be read: that is a finding, too, and no reason not to count the trial."""
    try:
        return problem()
    except OpenMaiaError as error:
        return f"the run cannot be read: {error.message}"


def _problem(
    runs: str, folder: Path, codes: Sequence[int], expected: Sequence[dict[str, Any]], is_observed: bool
) -> str:
    """Returns what is wrong with a run after its last command; empty if nothing is.

    Args:
        runs: The folder of the runs.
        folder: The folder with the output of the commands.
        codes: The exit codes of the commands.
        expected: The records of an undisturbed run.
        is_observed: Whether a turn may differ in which the agent was told that its process was lost.
    """
    if codes[-1] != 0:
        return f"not complete after {len(codes)} commands: {_said(folder)}"
    run, found = Run.open(f"{runs}/{sweep.NAME}"), sweep.records(runs)
    if len(found) != len(expected):
        return f"{len(found)} records for {len(expected)}"
    differ = [
        new["unit"]
        for new, old in zip(found, expected, strict=True)
        if new != old and not (is_observed and _differs_by_lost_turns(new, old))
    ]
    if differ:
        return f"other records for {', '.join(differ)}"
    if run.evaluated() != run.done():
        return f"{len(run.done() - run.evaluated())} descriptions without evaluation"
    if any(run.record(investigation).notes for investigation in run.done()):
        return "a replayed conversation diverged"
    return ""


def _differs_by_lost_turns(new: dict[str, Any], old: dict[str, Any]) -> bool:
    """Returns whether two records of a unit are equal but for turns of the first whose process was lost.

    The numbers of tokens of the prompts differ too: the message about the loss is in them. So do the numbers of later
    images, if the lost turn made fewer.
    """
    new_turns, old_turns = (
        [{**turn, "tokens": None, "calls": IMAGE.sub("image", repr(turn["calls"]))} for turn in record["turns"]]
        for record in (new, old)
    )
    return (
        len(new_turns) == len(old_turns)
        and new["answer"] == old["answer"]
        and all(
            turn == before or turn["status"] in ("died", "memory_lost", "timeout")
            for turn, before in zip(new_turns, old_turns, strict=True)
        )
    )


def over_repeated(turns: Sequence[tuple[str, int]], hits: Sequence[int]) -> str:
    """Returns which units repeated more than a turn in progress for each disturbance; empty if none did.

    Args:
        turns: The unit and the turn of each experiment that was carried out, in this order.
        hits: How many experiments had been carried out when each disturbance came.
    """
    wrong = []
    for unit in dict.fromkeys(unit for unit, _ in turns):
        own = [(at, turn) for at, (other, turn) in enumerate(turns) if other == unit]
        # A repetition is due to the last disturbance before it, and the only one of this unit that is.
        causes = [bisect_right(hits, at) for (_, before), (at, turn) in pairwise(own) if turn == before]
        if 0 in causes or len(causes) > len(set(causes)) or any(b[1] < a[1] for a, b in pairwise(own)):
            wrong.append(f"{unit}: {' '.join(str(turn) for _, turn in own)}")
    return f"more than the turn in progress was repeated: {', '.join(wrong)}" if wrong else ""


def causes(output: str, folder: Path) -> str:
    """Returns the lines of commands about errors and failures, and the ends of tracebacks, each once, without the folder's name."""
    lines = re.findall(
        r"^(?:error|failed|[\w.]*(?:Error|Exception))\b.*", output.replace(str(folder), "…"), re.MULTILINE
    )
    return " / ".join(dict.fromkeys(lines))[:1000]


def _said(folder: Path) -> str:
    output = folder / "output.log"
    return " ".join(output.read_text(errors="replace").split())[-300:] if output.exists() else ""
