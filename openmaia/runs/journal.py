"""The journal of a running investigation: one file per completed turn, from which it resumes after a crash."""

from dataclasses import dataclass
from typing import Protocol

from openmaia.core.errors import StoreError
from openmaia.runs.files import Files
from openmaia.runs.parquet import hydrated, read_turn, write_turn
from openmaia.runs.records import Turn


class Journal(Protocol):
    """Keeps the completed turns (replies of the agent with their experiments) of one investigation."""

    def turns(self) -> list[Turn]:
        """Returns the completed turns in order; empty for a new investigation."""
        ...

    def damage(self, readable: int) -> str:
        """Returns a message if not all stored turns could be read, otherwise an empty text.

        Args:
            readable: Number of turns that `turns` returned.
        """
        ...

    def append(self, turn: Turn) -> None:
        """Adds a completed turn of the investigation."""
        ...

    def clear(self) -> None:
        """Removes all stored turns."""
        ...


class NoJournal:
    """A journal of turns that keeps nothing, for an investigation that is never resumed."""

    def turns(self) -> list[Turn]:
        """Returns no turns."""
        return []

    def damage(self, readable: int) -> str:
        """Returns an empty text, because nothing is stored that could be damaged."""
        return ""

    def append(self, turn: Turn) -> None:
        """Does nothing."""

    def clear(self) -> None:
        """Does nothing."""


@dataclass(frozen=True, slots=True)
class FolderJournal:
    """Keeps the completed turns of one investigation in a folder of the run directory, one file per turn."""

    files: Files
    """The run directory."""
    folder: str
    """The folder with the turns, relative to the run directory."""
    owner: str = ""
    """Names the investigation. It is stored with each turn: a turn of another investigation counts as damaged."""

    def turns(self) -> list[Turn]:
        """Returns the completed turns up to the first one that is missing or damaged."""
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
        return list(hydrated(turns))

    def damage(self, readable: int) -> str:
        """Returns a message if not all stored turns could be read, otherwise an empty text.

        Args:
            readable: Number of turns that `turns` returned.
        """
        if readable == len(self.files.names(self.folder)):
            return ""
        return f"turn {readable + 1} of the journal was damaged or missing: it and what followed were repeated"

    def append(self, turn: Turn) -> None:
        """Writes the file of a completed turn, and deletes the files of later turns.

        Such files can be left from an earlier attempt that was abandoned.
        """
        for name in self.files.names(self.folder):
            if name > self._name(turn.index):
                self.files.delete(name)
        self.files.write(self._name(turn.index), write_turn(turn, self.owner))

    def clear(self) -> None:
        """Deletes the folder with all turns."""
        self.files.delete_folder(self.folder)

    def _name(self, index: int) -> str:
        return f"{self.folder}/{index:04d}.turn"
