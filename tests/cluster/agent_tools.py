"""Tools that the agents of these tests call, so that a test can see where they work and say when they go on.

OPENMAIA_TEST names the folder in which the two meet, on the file system that all hosts share.
"""

import itertools
import os
import socket
import time
from pathlib import Path


def visit() -> str:
    """Notes the host on which this investigation runs. While `hold` says that only so many may pass, others wait."""
    folder = Path(os.environ["OPENMAIA_TEST"])
    number = take_number(folder / "visits")
    while (hold := folder / "hold").exists() and number > int(hold.read_text()):
        time.sleep(0.1)
    return "went on"


def take_number(visits: Path) -> int:
    """From 1 on, each given out once, however many ask at the same time."""
    for number in itertools.count(len(os.listdir(visits)) + 1):
        try:
            with open(visits / str(number), "x") as note:
                note.write(socket.gethostname())
            return number
        except FileExistsError:
            continue
    raise AssertionError


def devour() -> str:
    """Takes all the memory there is, once."""
    try:
        (Path(os.environ["OPENMAIA_TEST"]) / "appetite").unlink()
    except FileNotFoundError:
        return "not hungry"
    eaten: list[bytes] = []
    while True:
        eaten.append(os.urandom(2**20) * 16)
