"""Replicas that share a GPU load side by side, except beside one that measures its memory."""

import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from openmaia.distributed.pools.loading import loading

SECONDS = 20.0
"""Longest wait for what must happen."""


def test_models_that_do_not_measure_load_together(tmp_path: Path):
    both = threading.Barrier(2, timeout=SECONDS)

    def load() -> int:
        with loading("0", measures=False, folder=tmp_path):
            return both.wait()

    with ThreadPoolExecutor(2) as threads:
        assert sorted(threads.map(lambda _: load(), range(2))) == [0, 1]


@pytest.mark.parametrize(("first", "second"), [(True, False), (False, True), (True, True)])
def test_model_that_measures_loads_alone(tmp_path: Path, first: bool, second: bool):
    order: list[str] = []

    def load() -> None:
        with loading("0", measures=second, folder=tmp_path):
            order.append("second")

    with ThreadPoolExecutor(1) as threads:
        with loading("0", measures=first, folder=tmp_path):
            later = threads.submit(load)
            with pytest.raises(TimeoutError):
                later.result(0.3)
            order.append("first")
        later.result(SECONDS)
    assert order == ["first", "second"]


def fail(folder: Path) -> None:
    with (
        loading("0", measures=True, folder=folder),
        loading("1", measures=True, folder=folder),
        loading("", measures=True, folder=folder),
    ):
        raise ValueError("broken")


def test_turn_ends_with_an_error_and_belongs_to_one_gpu(tmp_path: Path):
    with pytest.raises(ValueError, match="broken"):
        fail(tmp_path)
    assert len(list(tmp_path.iterdir())) == 2
    with ThreadPoolExecutor(1) as threads:
        threads.submit(loading("0", measures=True, folder=tmp_path).__enter__).result(SECONDS)
