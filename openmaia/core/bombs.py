"""Finds small JPEGs whose decoding would take hours. Pillow itself knows other bombs."""

import re

SCANS = 100
"""Scans that a JPEG may have. Programs write about ten, for images that appear step by step. Each takes as long as an image,
and 16 MB can hold hundreds of thousands."""
# Fill bytes are no part of it: a long run of them would take quadratic time.
_MARKER = re.compile(rb"\xff([^\x00\x01\xd0-\xd7\xff])")
"""What is no data of a scan and begins no part of them. It has a length, except _BEGIN and _END."""
_BEGIN, _END, _SCAN = b"\xd8", b"\xd9", b"\xda"


def has_many_scans(data: bytes) -> bool:
    """Returns whether data are a JPEG of more than SCANS. What follows its end, such as the film of a telephone, is not read."""
    if not data.startswith(b"\xff\xd8"):
        return False
    at = count = 0
    while count <= SCANS and (found := _MARKER.search(data, at)) and found[1] != _END:
        count += found[1] == _SCAN
        at = found.end()
        if found[1] != _BEGIN:
            at += int.from_bytes(data[at : at + 2])
    return count > SCANS
