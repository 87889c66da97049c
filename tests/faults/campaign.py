"""One trial: a sweep, disturbances at random moments, the same command until the run is complete, and what is left."""

import random
import subprocess
import tempfile
import time
import zlib
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from openmaia.runs.run import Run
from tests.faults import sweep
from tests.faults.disturbances import Disturbance, Disturbed

PATIENCE = 420.0
"""Seconds after which a command has hung."""


@dataclass(frozen=True, kw_only=True)
class Trial:
    """What came of one disturbed sweep. `problem` is empty if nothing was lost and only turns in progress were repeated."""

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
    """Number of turns that were carried out twice."""
    seconds: float
    problem: str

    def row(self) -> dict[str, Any]:
        return asdict(self)


def undisturbed() -> list[dict[str, Any]]:
    """The records of a sweep that nothing disturbs."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        code = sweep.start(folder).wait(PATIENCE)
        if code:
            raise RuntimeError(f"the undisturbed sweep failed with exit code {code}: {_said(folder)}")
        return sweep.records(str(folder / "runs"))


def trial(name: str, disturbance: Disturbance, seed: int, expected: list[dict[str, Any]]) -> Trial:
    """Carries out one trial. The moments are drawn from the seed and the name."""
    chance = random.Random(seed * 1_000_003 + zlib.crc32(name.encode()))
    moments = _moments(disturbance.times, chance)
    began = time.monotonic()
    with tempfile.TemporaryDirectory() as temporary, disturbance.place(Path(temporary)) as place:
        folder, overrides = Path(temporary), [f"paths.runs={place.runs}"]
        commands = _Commands(folder, overrides, place.environment, len(moments) + 3)
        hit, problem = 0, ""
        try:
            for moment in moments:
                if commands.run_until(moment):
                    time.sleep(chance.uniform(0, 1))
                    hit += disturbance.act(
                        Disturbed(
                            driver=commands.process,
                            folder=folder,
                            environment=place.environment,
                            overrides=overrides,
                            chance=chance,
                        )
                    )
            commands.finish()
        except subprocess.TimeoutExpired:
            problem = f"a command hung for {PATIENCE:.0f} s"
        except AssertionError as error:
            problem = str(error)
        finally:
            commands.process.kill()
        differing = hit if disturbance.is_observed else 0
        problem = problem or _problem(place.runs, folder, commands.codes, expected, differing)
        turns = sweep.carried_out(folder)
        return Trial(
            disturbance=name,
            seed=seed,
            after_turns=" ".join(map(str, moments)),
            hit=hit,
            commands=len(commands.codes),
            codes=" ".join(map(str, commands.codes)),
            repeated=len(turns) - len(set(turns)),
            seconds=round(time.monotonic() - began, 1),
            problem=problem or over_repeated(turns, hit),
        )


def _moments(times: int, chance: random.Random) -> list[int]:
    """Numbers of turns, one from each of as many equal parts of the sweep."""
    turns = sweep.UNITS * sweep.EXPERIMENTS
    return [chance.randrange(part * turns // times, (part + 1) * turns // times) for part in range(times)]


class _Commands:
    """Gives the same command again and again until the run is complete, at most `most` times."""

    def __init__(self, folder: Path, overrides: Sequence[str], environment: dict[str, str], most: int):
        self._folder, self._overrides, self._environment, self._most = folder, overrides, environment, most
        self.codes: list[int] = []
        self.process = self._start()

    def run_until(self, turns: int) -> bool:
        """Waits until more than so many turns were carried out, each counted once. Returns whether a command still runs."""
        until = time.monotonic() + PATIENCE
        while len(set(sweep.carried_out(self._folder))) <= turns:
            if time.monotonic() > until:
                raise subprocess.TimeoutExpired("openmaia run", PATIENCE)
            if self.process.poll() is not None and not self._goes_on():
                return False
            time.sleep(0.05)
        return self.process.poll() is None or self._goes_on()

    def finish(self) -> None:
        """Waits until the run is complete."""
        self.process.wait(PATIENCE)
        while self._goes_on():
            self.process.wait(PATIENCE)

    def _goes_on(self) -> bool:
        """Notes the exit code of a command that has ended. Returns whether the next one was given."""
        if len(self.codes) == self._most or (self.codes and self.codes[-1] == 0):
            return False
        self.codes.append(self.process.wait(0))
        if self.codes[-1] == 0 or len(self.codes) == self._most:
            return False
        self.process = self._start()
        return True

    def _start(self) -> subprocess.Popen[bytes]:
        return sweep.start(self._folder, *self._overrides, environment=self._environment)


def _problem(runs: str, folder: Path, codes: list[int], expected: list[dict[str, Any]], differing: int) -> str:
    """What is wrong with a run after its last command; empty if nothing is. So many records may differ."""
    if codes[-1] != 0:
        return f"not complete after {len(codes)} commands: {_said(folder)}"
    run, found = Run.open(f"{runs}/{sweep.NAME}"), sweep.records(runs)
    differ = [new["unit"] for new, old in zip(found, expected, strict=False) if new != old]
    if len(found) != len(expected) or len(differ) > differing:
        return f"{len(found)} records for {len(expected)}, other ones for {', '.join(differ) or 'none'}"
    if run.evaluated() != run.done():
        return f"{len(run.done() - run.evaluated())} descriptions without evaluation"
    if sum(bool(run.record(investigation).notes) for investigation in run.done()) > differing:
        return "a replayed conversation diverged"
    return ""


def over_repeated(turns: Sequence[tuple[str, int]], disturbances: int) -> str:
    """Says which unit repeated another turn than the one in progress, or repeated it too often; empty if none did.

    Args:
        turns: The unit and the turn of each experiment that was carried out, in this order.
        disturbances: How many there were. Each may cost each unit one turn.
    """
    wrong = []
    for unit in dict.fromkeys(unit for unit, _ in turns):
        own = [turn for other, turn in turns if other == unit]
        if own != sorted(own) or len(own) - len(set(own)) > disturbances:
            wrong.append(f"{unit}: {' '.join(map(str, own))}")
    return f"more than the turn in progress was repeated: {', '.join(wrong)}" if wrong else ""


def _said(folder: Path) -> str:
    output = folder / "output.log"
    return " ".join(output.read_text(errors="replace").split())[-300:] if output.exists() else ""
