"""One trial: a sweep, a disturbance at a random moment, the same command until the run is complete, and what is left."""

import random
import subprocess
import tempfile
import time
import zlib
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from openmaia.runs.run import Run
from tests.faults import sweep
from tests.faults.disturbances import Disturbance, Disturbed

COMMANDS = 4
"""Number of commands after which a run has to be complete."""
PATIENCE = 420.0
"""Seconds after which a command has hung."""


@dataclass(frozen=True, kw_only=True)
class Trial:
    """What came of one disturbance. `problem` is empty if nothing was lost and nothing but the turn in progress repeated."""

    disturbance: str
    seed: int
    after_turns: int
    """Number of turns after which the disturbance came."""
    was_there: bool
    """Whether there was anything to disturb at that moment."""
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
    """Carries out one trial. The moment is drawn from the seed and the name."""
    chance = random.Random(seed * 1_000_003 + zlib.crc32(name.encode()))
    after = chance.randrange(sweep.UNITS * sweep.EXPERIMENTS)
    began = time.monotonic()
    with tempfile.TemporaryDirectory() as temporary, disturbance.place(Path(temporary)) as place:
        folder, overrides = Path(temporary), [f"paths.runs={place.runs}"]
        process = sweep.start(folder, *overrides, environment=place.environment)
        was_there, problem, codes = False, "", []
        try:
            if _waited(folder, process, after):
                time.sleep(chance.uniform(0, 1))
                disturbed = Disturbed(
                    driver=process, folder=folder, environment=place.environment, overrides=overrides, chance=chance
                )
                was_there = disturbance.act(disturbed)
            codes = [process.wait(PATIENCE)]
            while codes[-1] != 0 and len(codes) < COMMANDS:
                process = sweep.start(folder, *overrides, environment=place.environment)
                codes.append(process.wait(PATIENCE))
        except subprocess.TimeoutExpired:
            problem = f"a command hung for {PATIENCE:.0f} s"
            process.kill()
        except AssertionError as error:
            problem = str(error)
        problem = problem or _problem(place.runs, folder, codes, expected, int(disturbance.is_observed))
        return Trial(
            disturbance=name,
            seed=seed,
            after_turns=after,
            was_there=was_there,
            commands=len(codes),
            codes=" ".join(map(str, codes)),
            repeated=sum(count - 1 for count in sweep.carried_out(folder).values()),
            seconds=round(time.monotonic() - began, 1),
            problem=problem,
        )


def _waited(folder: Path, process: subprocess.Popen[bytes], turns: int) -> bool:
    """Waits until more than so many turns have begun. Returns whether the command still runs."""
    until = time.monotonic() + PATIENCE
    while sweep.carried_out(folder).total() <= turns and process.poll() is None and time.monotonic() < until:
        time.sleep(0.05)
    return process.poll() is None


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
    return over_repeated(sweep.carried_out(folder))


def over_repeated(counts: dict[str, int]) -> str:
    """Says which unit repeated more than its turn in progress; empty if none did.

    Args:
        counts: How often each turn was carried out, by "unit turn".
    """
    repeated = [name for name, count in counts.items() if count > 1]
    units = [name.rsplit(" ", 1)[0] for name in repeated]
    wrong = [name for name in repeated if counts[name] > 2 or units.count(name.rsplit(" ", 1)[0]) > 1]
    return f"more than the turn in progress was repeated: {', '.join(wrong)}" if wrong else ""


def _said(folder: Path) -> str:
    output = folder / "output.log"
    return " ".join(output.read_text(errors="replace").split())[-300:] if output.exists() else ""
