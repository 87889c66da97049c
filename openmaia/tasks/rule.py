"""The stopping rule: what must have been done before an answer is taken."""

import re
from collections.abc import Mapping
from dataclasses import dataclass, replace


@dataclass(frozen=True, slots=True, kw_only=True)
class Rule:
    """0: not required. experiments: that showed the unit at least one image. controls, replicates: for each hypothesis that
    the answer rests on, different images as negative controls, and different images of it. confirm: images of the final
    labels, and as many near misses, with which the loop itself tests the answer."""

    experiments: int = 0
    controls: int = 0
    replicates: int = 0
    confirm: int = 0

    @property
    def demands(self) -> dict[str, int]:
        """What the agent has to do, without what is not required."""
        wanted = {"experiments": self.experiments, "controls": self.controls, "replicates": self.replicates}
        return {what: number for what, number in wanted.items() if number}

    def overridden(self, given: Mapping[str, int | None]) -> "Rule":
        """given: by name; None leaves the task's own."""
        return replace(self, **{name: value for name, value in given.items() if value is not None})

    def stated(self, text: str) -> str:
        """A prompt with the numbers in it, without the lines about what is not required; "" where nothing is."""
        if not self.demands:
            return ""
        lines = [line for line in text.splitlines() if set(re.findall(r"\{(\w+)\}", line)) <= self.demands.keys()]
        said = "\n".join(lines) + "\n"
        for what, number in self.demands.items():
            said = said.replace(f"{{{what}}}", str(number))
        return said
