"""The script that measures the house, on the working tree."""

import subprocess
import sys

from tests.conftest import REPOSITORY


def test_house_measures_every_row_of_the_working_tree() -> None:
    printed = subprocess.run(
        [sys.executable, REPOSITORY / "measure/house.py", "--first", ""], capture_output=True, text=True, check=True
    ).stdout.splitlines()
    figures = {
        name: figure for _, name, figure, *_ in ([part.strip() for part in line.split("|")] for line in printed[2:])
    }
    assert printed[0] == "| row | working tree | goal |" and len(figures) == 19
    assert figures.pop("a user's own generator in a config") in ("yes", "no")
    assert all(figure[0].isdecimal() for figure in figures.values()), figures
