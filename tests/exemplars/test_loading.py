"""Images that are read ahead of the network, by threads and by processes."""

import multiprocessing
import os
import threading
from pathlib import Path

import numpy as np
import pytest

from openmaia.core.errors import ServiceError, UsageError
from openmaia.core.images import Pixels, ViewBox
from openmaia.datasets.library import DatasetImage, ImageDataset
from openmaia.exemplars.loading import CHUNK, ImageLoader
from tests.helpers.images import sample_image, save

IMAGES = 3 * CHUNK + 1


@pytest.fixture
def items(tmp_path: Path) -> tuple[DatasetImage, ...]:
    for seed in range(IMAGES):
        save(tmp_path / f"{seed}.png", sample_image(seed, (40, 40 + seed % 7)))
    return ImageDataset.open(tmp_path, is_divided=False).items


def half(pixels: Pixels) -> tuple[Pixels, ViewBox]:
    return pixels[:, :20], (0, 0, 20, pixels.shape[0])


@pytest.mark.parametrize("encoded", [False, True])
def test_processes_and_threads_read_the_same_in_the_order_asked_for(items: tuple[DatasetImage, ...], encoded: bool):
    numbers = list(range(IMAGES))[::-1]
    threads, processes = (list(ImageLoader(items, half, count).load(numbers, encoded=encoded)) for count in (0, 2))
    assert [each.number for each in threads] == [each.number for each in processes] == numbers
    for one, other in zip(threads, processes, strict=True):
        assert np.array_equal(one.view, other.view)
        assert one.view.shape[1] == 20
        assert (one.box, one.kept) == (other.box, other.kept)
        assert (one.kept is not None) == encoded


@pytest.mark.parametrize("processes", [0, 2])
def test_an_image_that_changed_is_the_users_to_mend(items: tuple[DatasetImage, ...], tmp_path: Path, processes: int):
    save(tmp_path / "3.png", sample_image(999_983))
    with pytest.raises(UsageError, match=r"^an image was changed while exemplars were computed"):
        list(ImageLoader(items, half, processes).load(range(IMAGES)))


@pytest.mark.parametrize("processes", [0, 2])
def test_a_pass_that_stops_early_leaves_nothing_waiting(items: tuple[DatasetImage, ...], processes: int):
    # Other tests in this process may have left threads and processes of their own.
    children, threads = set(multiprocessing.active_children()), set(threading.enumerate())
    images = ImageLoader(items, half, processes).load(range(IMAGES))
    assert next(images).number == 0
    del images
    assert set(multiprocessing.active_children()) <= children
    assert not [each for each in set(threading.enumerate()) - threads if each.name.startswith("ThreadPoolExecutor")]


def test_a_process_that_dies_is_a_service_error(items: tuple[DatasetImage, ...]):
    with pytest.raises(ServiceError, match="a process that read images for exemplars failed"):
        list(ImageLoader(items, lambda _: os._exit(1), 2).load(range(IMAGES)))


def test_no_images_are_no_images(items: tuple[DatasetImage, ...]):
    assert [list(ImageLoader(items, half, processes).load([])) for processes in (0, 2)] == [[], []]
