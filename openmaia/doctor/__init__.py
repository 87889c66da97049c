"""What this machine can run, found out before anything heavy is loaded.

Libraries that take seconds to import, and Ray, are asked in processes of their own that have a time limit; the hub and
model servers get a few seconds to answer. So the doctor ends within about ten seconds, whatever does not answer.
"""

from collections.abc import Sequence

from openmaia.doctor.finding import Finding

__all__ = ["Finding", "examine"]


PATIENCE = 7.0


def examine(sources: Sequence[str], patience: float = PATIENCE) -> list[Finding]:
    """sources: YAML files and key=value overrides; none for the machine alone. Loads no weights.

    patience: seconds that torch and torchvision get to be imported, and a Ray cluster to answer. What does not become
    known within them is a note.
    """
    # The processes started for questions import this package too, and have no time to lose.
    from openmaia.doctor.examination import examination

    return examination(sources, patience)
