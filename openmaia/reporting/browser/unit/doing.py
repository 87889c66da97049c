"""What a unit does to the classes of its network, on the page of the unit."""

from dataclasses import dataclass

from openmaia.evaluation.effects import UnitEffect
from openmaia.evaluation.faithfulness import UnitFaithfulness
from openmaia.evaluation.steering import FACTORS, Said
from openmaia.reporting.browser.unit.pictures import Origin, PagePictures, Picture
from openmaia.reporting.browser.unit.shared import RunSources
from openmaia.runs.run import InvestigationId

_NAMES = {0.0: "off", 1.0: "as it is"}


@dataclass(frozen=True, slots=True, kw_only=True)
class SteeredRow:
    """What the network says of each image of a page while the unit is multiplied by one factor."""

    name: str
    """Of the factor, such as "4 times"."""
    said: tuple[Said, ...]
    changed: tuple[bool, ...]
    """Whether another class is the most probable than with the unit as it is."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DoingView:
    """What was measured of the effects of a unit. What was not is None or empty."""

    ablated: UnitFaithfulness | None
    named: UnitEffect | None
    """The test of the classes that the answer names."""
    images: tuple[Picture, ...]
    steered: tuple[SteeredRow, ...]

    @property
    def is_empty(self) -> bool:
        """Whether nothing was measured."""
        return self.ablated is None and self.named is None and not self.steered


def make_doing_view(
    sources: RunSources, investigation: InvestigationId, pictures: PagePictures, side: int
) -> DoingView:
    """Prepares what is known. Images are shown with `side` pixels at most."""
    said = sources.steered.get(investigation.unit, ())
    plain = FACTORS.index(1.0)
    return DoingView(
        ablated=sources.effects.get(investigation),
        named=sources.named_effects.get(investigation),
        images=tuple(
            pictures.picture(digest, data, side=side, origin=Origin.DRAWN) for digest, data in sources.steered_images
        )
        if said
        else (),
        steered=tuple(
            SteeredRow(
                name=_NAMES.get(factor, f"{factor:g} times"),
                said=tuple(image[at] for image in said),
                changed=tuple(image[at][0][0] != image[plain][0][0] for image in said),
            )
            for at, factor in enumerate(FACTORS)
        )
        if said
        else (),
    )
