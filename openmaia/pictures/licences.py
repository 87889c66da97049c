"""Which licence a file of a Debian package is under, from the package's machine-readable copyright file (DEP-5)."""

import re
from fnmatch import fnmatchcase
from pathlib import PurePosixPath

Rules = list[tuple[str, str]]
"""(pattern, licence) in the order of the file: the last match counts."""

_PICTURES = frozenset({".jpg", ".jpeg", ".png", ".webp"})
_FIELD = re.compile(r"^(Files|License):[ \t]*(.*(?:\n[ \t].*)*)", re.MULTILINE)


def parse(text: str) -> Rules:
    rules: Rules = []
    for paragraph in re.split(r"\n[ \t]*\n", text):
        fields = dict(_FIELD.findall(paragraph))
        if "Files" in fields and "License" in fields:
            licence = fields["License"].split("\n")[0].strip()
            rules.extend((pattern, licence) for pattern in fields["Files"].split())
    return rules


def licence(rules: Rules, path: str) -> str:
    """The word "unknown" where no rule matches. Pictures may ship in another format: a.jpg as a.webp."""
    for pattern, name in reversed(rules):
        wanted = PurePosixPath(pattern)
        if wanted.suffix in _PICTURES and PurePosixPath(path).suffix in _PICTURES:
            wanted = wanted.with_suffix(PurePosixPath(path).suffix)
        if fnmatchcase(path, str(wanted)):
            return name
    return "unknown"
