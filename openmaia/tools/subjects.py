"""Which units the agent's code may ask about, and what is known of each."""

from collections.abc import Mapping
from functools import cached_property

from openmaia.errors import ToolError
from openmaia.services import Services, UnitExemplars
from openmaia.tools.arguments import brief
from openmaia.units import Scope, Unit


class Subjects:
    """The unit of the investigation; or any unit of the layer, or of the network, that it is about."""

    def __init__(self, subject: Unit, services: Services):
        self._subject, self._services = subject, services
        self._known: dict[Unit, UnitExemplars] = {}

    @cached_property
    def layers(self) -> Mapping[str, int]:
        """Of which units may be asked about by name."""
        if self._subject.scope is Scope.UNIT:
            return {}
        layers = self._services.target.info().layers
        return layers if self._subject.scope is Scope.NETWORK else {self._subject.layer: layers[self._subject.layer]}

    def unit(self, layer: object, index: object) -> Unit:
        """The one that is meant. Raises ToolError for what lies outside of the question."""
        if layer is None:
            if self._subject.scope is not Scope.UNIT:
                raise ToolError("which unit? Ask system.unit(layer, index)")
            return self._subject
        units = self.units(layer)
        if not isinstance(index, int) or not 0 <= index < len(units):
            raise ToolError(f"layer {brief(layer)} has no unit {brief(index)}; expected 0 to {len(units) - 1}")
        return units[index]

    def units(self, layer: object) -> list[Unit]:
        """All units of a layer. Raises ToolError for a layer outside of the question."""
        if not isinstance(layer, str) or layer not in self.layers:
            raise ToolError(
                f"there is no layer {brief(layer)} to ask about; there is {', '.join(self.layers) or 'none'}"
            )
        return [Unit(target=self._subject.target, layer=layer, index=index) for index in range(self.layers[layer])]

    def exemplars(self, unit: Unit) -> UnitExemplars:
        """Read when they are first needed: an investigation that ends in its first turn needs none."""
        if unit not in self._known:
            self._known[unit] = self._services.exemplars.read(unit)
        return self._known[unit]
