"""The journal of an investigation: one file per completed turn."""

from dataclasses import dataclass
from typing import Protocol

from openmaia.core.errors import StoreError
from openmaia.runs.files import Files
from openmaia.runs.parquet import hydrate, read_turn, write_turn
from openmaia.runs.records import Turn


class Journal(Protocol):
    """Keeps the completed turns of one investigation."""

    def turns(self) -> list[Turn]:
        """Returns the completed turns in order."""
        ...

    def damage(self, readable: int) -> str:
        """Returns a message if more turns are stored than the `readable` ones that `turns` returned, otherwise ""."""
        ...

    def append(self, turn: Turn) -> None:
        """Adds a completed turn."""
        ...

    def clear(self) -> None:
        """Removes all stored turns."""
        ...


class NoJournal:
    """Keeps nothing, for an investigation that is never resumed."""

    def turns(self) -> list[Turn]:
        """Returns no turns."""
        return []

    def damage(self, readable: int) -> str:
        """Returns ""."""
        return ""

    def append(self, turn: Turn) -> None:
        """Does nothing."""

    def clear(self) -> None:
        """Does nothing."""


@dataclass(frozen=True, slots=True)
class FolderJournal:
    """Keeps turns in a folder of the run directory, one file per turn."""

    files: Files
    folder: str
    owner: str = ""
    """Names the investigation. A stored turn of another owner counts as damaged."""

    def turns(self) -> list[Turn]:
        """Returns the turns up to the first one that is missing or damaged."""
        turns: list[Turn] = []
        for index in range(len(self.files.names(self.folder))):
            data = self.files.read(self._name(index))
            if data is None:
                break
            try:
                turn = read_turn(data, self.owner)
            except StoreError:
                break
            if turn.index != index:
                break
            turns.append(turn)
        return list(hydrate(turns))

    def damage(self, readable: int) -> str:
        """See `Journal.damage`."""
        if readable == len(self.files.names(self.folder)):
            return ""
        return f"turn {readable + 1} of the journal was damaged or missing: it and what followed were repeated"

    def append(self, turn: Turn) -> None:
        """Writes the turn, and deletes later ones, which an abandoned attempt may have left."""
        for name in self.files.names(self.folder):
            if name > self._name(turn.index):
                self.files.delete(name)
        self.files.write(self._name(turn.index), write_turn(turn, self.owner))

    def clear(self) -> None:
        """Deletes the folder."""
        self.files.delete_folder(self.folder)

    def _name(self, index: int) -> str:
        return f"{self.folder}/{index:04d}.turn"
