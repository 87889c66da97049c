"""Checks which units the agent's code may query, and reads their exemplars."""

from openmaia.agent.tools.arguments import abbreviate
from openmaia.core.errors import ToolError
from openmaia.core.services import Services, UnitExemplars
from openmaia.core.units import Scope, Unit


class Subjects:
    """The units that an investigation may query: its unit, or all units of its layer or network."""

    def __init__(self, subject: Unit, services: Services):
        self._subject, self._services = subject, services
        self._exemplars: dict[Unit, UnitExemplars] = {}
        self.layers: dict[str, int] = {}
        """The number of units of each layer that may be queried. Empty for a single unit."""
        if subject.scope is Scope.UNIT:
            self.exemplars(subject)
        else:
            layers = services.target.info().layers
            self.layers.update(layers if subject.scope is Scope.NETWORK else {subject.layer: layers[subject.layer]})

    def unit(self, layer: object, index: object) -> Unit:
        """Returns the unit that a tool call names, or that of the investigation if `layer` is None.

        Raises ToolError if the unit does not exist or may not be queried, or if none is named and there are many.
        """
        if layer is None:
            if self._subject.scope is not Scope.UNIT:
                raise ToolError("which unit? Ask system.unit(layer, index)")
            return self._subject
        units = self.units(layer)
        if not isinstance(index, int) or not 0 <= index < len(units):
            raise ToolError(
                f"layer {abbreviate(layer)} has no unit {abbreviate(index)}; expected 0 to {len(units) - 1}"
            )
        return units[index]

    def units(self, layer: object) -> list[Unit]:
        """Returns all units of a layer. Raises ToolError if the layer may not be queried."""
        if not isinstance(layer, str) or layer not in self.layers:
            raise ToolError(
                f"there is no layer {abbreviate(layer)} to ask about; there is {', '.join(self.layers) or 'none'}"
            )
        return [Unit(target=self._subject.target, layer=layer, index=index) for index in range(self.layers[layer])]

    def exemplars(self, unit: Unit) -> UnitExemplars:
        """Returns the exemplars of a unit, which are read once."""
        if unit not in self._exemplars:
            self._exemplars[unit] = self._services.exemplars.read(unit)
        return self._exemplars[unit]
