"""Captions for the images of an investigation: prompts, editing instructions and measurements."""

from dataclasses import dataclass, field

from openmaia.runs.records import Did, ImageEntry, Record

_OWN = "an image that the agent made"


@dataclass(frozen=True, slots=True)
class Captions:
    """Captions of the images in a record, by the name in the agent's code, such as `image-3`."""

    entries: dict[str, ImageEntry] = field(default_factory=dict[str, ImageEntry])
    """The entry of each image."""
    texts: dict[str, str] = field(default_factory=dict[str, str])
    """The prompt, "prompt → editing instruction", or for an exemplar "top 1"."""
    measured: set[str] = field(default_factory=set[str])
    """Images that were measured or edited, which returns each of them again under a new name."""

    @classmethod
    def of(cls, record: Record) -> "Captions":
        """Collects the captions from the tool calls of all turns."""
        captions = cls()
        for call in (call for turn in record.turns for call in turn.calls):
            for rank, entry in enumerate(call.entries, start=1):
                captions.entries[entry.id] = entry
                captions.texts[entry.id] = captions._text(entry, rank)
                if entry.did in (Did.MEASURED, Did.BASE):
                    captions.measured.add(entry.of)
        return captions

    def is_drawn(self, entry: ImageEntry) -> bool:
        """Returns whether only the generator and the editor made the image of an entry. False if that is unknown."""
        for _ in range(len(self.entries) + 1):  # a damaged record may name images in a circle
            if entry.did in (Did.DREW, Did.COPIED) or (entry.did is Did.BASE and entry.prompt and not entry.of):
                return True
            if entry.did not in (Did.MEASURED, Did.BASE, Did.EDITED) or entry.of not in self.entries:
                return False
            entry = self.entries[entry.of]
        return False

    def _text(self, entry: ImageEntry, rank: int) -> str:
        match entry.did:
            case Did.EXEMPLAR:
                return f"{entry.prompt} {rank}"
            case Did.EDITED:
                return f"{self.texts.get(entry.of, '')} → {entry.prompt}"
            case Did.MEASURED | Did.BASE if not entry.prompt:
                return self.texts.get(entry.of, "") if entry.of else _OWN
            case _:
                return entry.prompt
