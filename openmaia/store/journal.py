"""The turns of an investigation under way: one file each, so that a completed turn outlives who completed it."""

from dataclasses import dataclass
from typing import Protocol

from openmaia.errors import StoreError
from openmaia.store.files import Files
from openmaia.store.parquet import hydrated, read_turn, write_turn
from openmaia.store.records import Turn


class Journal(Protocol):
    def turns(self) -> list[Turn]: ...

    def append(self, turn: Turn) -> None: ...

    def clear(self) -> None: ...


class NoJournal:
    """For an investigation that nobody wants to resume."""

    def turns(self) -> list[Turn]:
        return []

    def append(self, turn: Turn) -> None:
        pass

    def clear(self) -> None:
        pass


@dataclass(frozen=True, slots=True)
class FolderJournal:
    files: Files
    folder: str

    def turns(self) -> list[Turn]:
        """The completed turns, from the first without a gap; what follows a damaged or missing one is not theirs."""
        turns: list[Turn] = []
        for index in range(len(self.files.names(self.folder))):
            data = self.files.read(self._name(index))
            if data is None:
                break
            try:
                turn = read_turn(data)
            except StoreError:
                break
            if turn.index != index:
                break
            turns.append(turn)
        return list(hydrated(turns))

    def append(self, turn: Turn) -> None:
        """Turns behind this one are of a history that was given up; they must not come back."""
        for name in self.files.names(self.folder):
            if name > self._name(turn.index):
                self.files.delete(name)
        self.files.write(self._name(turn.index), write_turn(turn))

    def clear(self) -> None:
        self.files.delete_folder(self.folder)

    def _name(self, index: int) -> str:
        return f"{self.folder}/{index:04d}.arrow"
