"""Hugging Face datasets: the same images as in a folder, wherever and in whatever format they lie."""

import io
import os
import pickle
import tarfile
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

import datasets
import fsspec
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from openmaia.assembly.datasets import image_dataset
from openmaia.config.loading import load
from openmaia.core.errors import UsageError
from openmaia.datasets import huggingface
from openmaia.datasets.library import DatasetImage, ImageDataset
from tests.helpers.images import encoded, huge_png, sample_image

IMAGES = {f"{seed:02}.jpg": encoded(sample_image(seed)) for seed in range(12)}
FORMATS = ("imagefolder", "webdataset", "parquet")


@pytest.fixture(autouse=True)
def _caches(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Every test has empty caches: of the library on the disk and of ours in memory."""
    monkeypatch.setattr("datasets.config.HF_DATASETS_CACHE", tmp_path / "arrow")
    huggingface._open.cache_clear()
    yield
    huggingface._open.cache_clear()


@pytest.fixture
def opened(tmp_path: Path):
    """Opens the dataset of a config."""

    def open_dataset(kind: str, data: Path | str, *overrides: str) -> ImageDataset:
        sources = ["name=x", "units=all", "target.name=net", f"paths.cache={tmp_path / 'cache'}", "pictures.kind=hf"]
        return image_dataset(load([*sources, f"pictures.dataset={kind}", f"pictures.data='{data}'", *overrides]))

    return open_dataset


def write_tar(path: Path, files: Mapping[str, bytes]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    with tarfile.open(path, "w") as archive:
        for name, data in files.items():
            member = tarfile.TarInfo(name)
            member.size = len(data)
            archive.addfile(member, io.BytesIO(data))


def write_parquet(path: Path, columns: Mapping[str, Any]) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    pq.write_table(pa.table(dict(columns)), path, row_group_size=5)  # pyright: ignore[reportUnknownMemberType]
    return path


def write(folder: Path, kind: str, images: Mapping[str, bytes] = IMAGES) -> Path:
    """Writes the images in a format, in several files with captions or labels beside them."""
    if kind == "imagefolder":
        for number, (name, data) in enumerate(images.items()):
            (folder / str(number % 2)).mkdir(parents=True, exist_ok=True)
            (folder / str(number % 2) / name).write_bytes(data)
        return folder
    items = list(images.items())
    for number, part in enumerate((items[:5], items[5:])):
        if kind == "webdataset":
            captions = {name.split(".")[0] + ".txt": b"a caption" for name, _ in part}
            write_tar(folder / f"{number}.tar", dict(sorted((dict(part) | captions).items())))
        else:
            cells = [{"bytes": data, "path": "../../etc/passwd"} for _, data in part]
            write_parquet(folder / f"{number}.parquet", {"label": range(len(part)), "image": cells})
    return folder


def write_to_memory(folder: Path, bucket: str) -> None:
    memory = fsspec.filesystem("memory")
    for path in folder.rglob("*.*"):
        memory.pipe(f"/{bucket}/{path.relative_to(folder)}", path.read_bytes())


def facts(items: Iterable[DatasetImage]) -> list[tuple[str, str, str]]:
    return sorted((item.digest, item.split, item.kind) for item in items)


@pytest.fixture
def expected(tmp_path: Path) -> list[tuple[str, str, str]]:
    """What a plain folder of the same images gives."""
    return facts(ImageDataset.open(write(tmp_path / "plain", "imagefolder")).items)


@pytest.mark.parametrize("kind", FORMATS)
def test_dataset_equals_a_folder_of_the_same_images(tmp_path: Path, opened: Any, expected: Any, kind: str):
    dataset = opened(kind, write(tmp_path / "data", kind))
    assert facts(dataset.items) == expected
    assert dataset.skipped == {}
    for item in dataset.items:
        data = pickle.dumps(item)
        assert len(data) < 1000
        assert pickle.loads(data).load().size == (96, 72)


@pytest.mark.parametrize("kind", FORMATS)
@pytest.mark.parametrize("streaming", [False, True])
def test_dataset_is_read_from_an_object_store(tmp_path: Path, opened: Any, expected: Any, kind: str, streaming: bool):
    write_to_memory(write(tmp_path / "data", kind), f"{kind}-{streaming}")
    overrides = ["pictures.streaming=true", "pictures.limit=20"] if streaming else []
    assert facts(opened(kind, f"memory://{kind}-{streaming}", *overrides).items) == expected


def test_streaming_reads_the_first_rows_once(tmp_path: Path, opened: Any):
    folder = write(tmp_path / "data", "webdataset")
    arguments = ("webdataset", folder, "pictures.streaming=true", "pictures.limit=3")
    dataset = opened(*arguments)
    assert len(dataset.items) == 6
    before = {path: path.stat() for path in folder.iterdir()}
    for path, status in before.items():  # as before, seen from outside
        path.write_bytes(bytes(status.st_size))
        os.utime(path, ns=(status.st_atime_ns, status.st_mtime_ns))
    huggingface._open.cache_clear()
    assert opened(*arguments) == dataset


def test_streaming_notices_changed_files(tmp_path: Path, opened: Any):
    file = tmp_path / "a.parquet"
    pixels: list[object] = []
    for number in (1, 2):
        write_parquet(file, {"image": [{"bytes": encoded(sample_image(number)), "path": None}]})
        huggingface._open.cache_clear()
        dataset = opened("parquet", file, "pictures.streaming=true", "pictures.limit=1")
        pixels.append(dataset.items[0].load().tobytes())
    assert pixels[0] != pixels[1]


def test_files_are_named_by_folder_file_or_pattern(tmp_path: Path, opened: Any):
    folder = write(tmp_path / "with a blank", "webdataset")
    (folder / "notes.txt").write_text("no archive")
    for data, count in ((folder, 12), (folder / "0.tar", 5), (folder / "*.tar", 12), (folder / "[1-9].tar*", 7)):
        assert len(opened("webdataset", data).items) == count, data


NAMES = ["birds [v2]", "a*b", "what?", "~tilde", "50% [a-z] #1", "blank space"]


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("kind", FORMATS)
def test_folder_of_any_name_is_no_pattern(tmp_path: Path, opened: Any, kind: str, name: str):
    assert len(opened(kind, write(tmp_path / name, kind)).items) == 12


@pytest.mark.parametrize("name", NAMES)
def test_url_of_any_name_is_no_pattern(tmp_path: Path, opened: Any, name: str):
    write_to_memory(write(tmp_path / "data", "imagefolder"), name)
    assert len(opened("imagefolder", f"memory://{name}").items) == 12


def test_pattern_may_lie_in_a_folder_of_any_name(tmp_path: Path, opened: Any):
    folder = write(tmp_path / "birds [v2]", "webdataset")
    assert len(opened("webdataset", folder / "[1-9].tar").items) == 7


@pytest.mark.parametrize("streaming", [False, True])
def test_formats_may_be_mixed_in_a_shard(tmp_path: Path, opened: Any, streaming: bool):
    kinds = {"jpg": "JPEG", "png": "PNG", "webp": "WEBP", "JPEG": "JPEG", "seg.tif": "TIFF"}
    files: dict[str, bytes] = {}
    for seed in range(10):
        suffix, kind = list(kinds.items())[seed % len(kinds)]
        files |= {f"{seed}.{suffix}": encoded(sample_image(seed), kind), f"{seed}.cls": b"3"}
    write_tar(tmp_path / "a.tar", files)
    overrides = ["pictures.streaming=true", "pictures.limit=9"] if streaming else []
    dataset = opened("webdataset", tmp_path / "a.tar", *overrides)
    assert (len(dataset.items), dataset.skipped) == (10, {})


def test_samples_without_an_image_are_counted(tmp_path: Path, opened: Any):
    images = {name: data for name, data in IMAGES.items() if name < "07"}
    texts = {f"{seed:02}.txt": b"a caption" for seed in range(12)}
    write_tar(tmp_path / "a.tar", {**images, **texts, "._00.jpg": b"of another system"})
    dataset = opened("webdataset", tmp_path / "a.tar")
    assert (len(dataset.items), dataset.skipped) == (7, {"without an image": 5})


def test_sample_with_several_images_needs_a_choice(tmp_path: Path, opened: Any):
    write_tar(tmp_path / "a.tar", {"0.jpg": IMAGES["00.jpg"], "0.mask.png": encoded(sample_image(99), "PNG")})
    with pytest.raises(
        UsageError, match="sample 0 has several images; choose one with pictures.column of jpg, mask.png"
    ):
        opened("webdataset", tmp_path / "a.tar")
    assert len(opened("webdataset", tmp_path / "a.tar", "pictures.column=mask.png").items) == 1


def test_archives_in_a_shard_are_read(tmp_path: Path, opened: Any):
    write_tar(tmp_path / "inner.tar", IMAGES)
    write_tar(tmp_path / "outer" / "a.tar", {"inner.tar": (tmp_path / "inner.tar").read_bytes()})
    assert len(opened("webdataset", tmp_path / "outer").items) == 12


def saved(folder: Path, *splits: str) -> Path:
    files = datasets.Dataset.from_dict({"image": [{"bytes": data, "path": None} for data in IMAGES.values()]})
    files = files.cast_column("image", datasets.Image())
    made = datasets.DatasetDict(dict.fromkeys(splits, files)) if splits else files
    made.save_to_disk(str(folder))
    return folder


@pytest.mark.parametrize("streaming", [False, True])
def test_folder_of_save_to_disk_is_read(tmp_path: Path, opened: Any, streaming: bool):
    overrides = ["pictures.streaming=true", "pictures.limit=9"] if streaming else []
    assert len(opened(saved(tmp_path / "saved [1]"), "", *overrides).items) == 12
    assert len(opened("parquet", tmp_path / "saved [1]", *overrides).items) == 12


def test_split_of_save_to_disk_is_chosen(tmp_path: Path, opened: Any):
    folder = saved(tmp_path / "saved", "train", "test")
    with pytest.raises(UsageError, match="has the splits train, test; choose one with pictures.split"):
        opened(folder, "")
    assert len(opened(folder, "", "pictures.split=test").items) == 12
    assert len(opened(saved(tmp_path / "one", "train"), "").items) == 12


def test_plain_folder_of_save_to_disk_has_a_remedy(tmp_path: Path):
    with pytest.raises(UsageError, match="set pictures.kind=hf pictures.dataset="):
        ImageDataset.open(saved(tmp_path / "saved"))


@pytest.mark.parametrize("place", ["{}", "memory://incomplete"])
def test_metadata_of_an_image_folder_hides_no_image(tmp_path: Path, opened: Any, place: str):
    folder = write(tmp_path / "data", "imagefolder")
    (folder / "0" / "metadata.csv").write_text("file_name,caption\n00.jpg,a\nlost.jpg,b\n")
    write_to_memory(folder, "incomplete")
    dataset = opened("imagefolder", place.format(folder))
    assert (len(dataset.items), dataset.skipped) == (12, {"listed and missing": 1})


def test_image_whose_name_is_that_of_a_split_hides_no_other(tmp_path: Path, opened: Any):
    assert (
        len(opened("imagefolder", write(tmp_path, "imagefolder", IMAGES | {"test.jpg": IMAGES["00.jpg"]})).items) == 13
    )


def test_splits_of_an_image_folder_are_its_folders(tmp_path: Path, opened: Any):
    write(tmp_path / "train", "imagefolder")
    write(tmp_path / "val", "imagefolder", dict(list(IMAGES.items())[:5]))
    with pytest.raises(UsageError, match="has the splits train, validation; choose one with pictures.split"):
        opened("imagefolder", tmp_path)
    assert len(opened("imagefolder", tmp_path, "pictures.split=validation").items) == 5


def test_bad_rows_are_counted_by_reason(tmp_path: Path, opened: Any):
    whole = encoded(sample_image(2))
    small = encoded(sample_image(3, (8, 8)))
    data = [encoded(sample_image(1)), None, b"", whole[:200], huge_png(), b"some text", small]
    cells = [*({"bytes": value, "path": "x.jpg"} for value in data), None]
    dataset = opened("parquet", write_parquet(tmp_path / "a.parquet", {"image": cells}))
    assert len(dataset.items) == 1
    assert dataset.skipped == {
        "corrupt": 1, "empty": 2, "not an image": 1, "path in the place of an image": 1, "too large": 1, "too small": 1,
    }  # fmt: skip


def test_paths_in_rows_are_not_followed(tmp_path: Path, opened: Any):
    (tmp_path / "secret.jpg").write_bytes(encoded(sample_image(1)))
    cells = [{"bytes": None, "path": str(tmp_path / "secret.jpg")}, {"bytes": encoded(sample_image(2)), "path": None}]
    dataset = opened("parquet", write_parquet(tmp_path / "a.parquet", {"image": cells}))
    assert (len(dataset.items), dataset.skipped) == (1, {"path in the place of an image": 1})


@pytest.mark.parametrize("kind", FORMATS)
def test_changed_files_are_read_again(tmp_path: Path, opened: Any, kind: str):
    folder = write(tmp_path / "data", kind)
    before = {item.digest: item.split for item in opened(kind, folder).items}
    write(folder, kind, IMAGES | {"99.jpg": encoded(sample_image(99))})
    for path in folder.rglob("*.*"):
        os.utime(path, (1, 1))
    huggingface._open.cache_clear()
    after = {item.digest: item.split for item in opened(kind, folder).items}
    assert len(after) == 13
    assert {digest: after[digest] for digest in before} == before


def test_image_column_is_chosen(tmp_path: Path, opened: Any):
    columns = {"mask": [encoded(sample_image(1))], "photo": [encoded(sample_image(2))], "label": [3]}
    path = write_parquet(tmp_path / "a.parquet", columns)
    (mask,), (photo,) = (opened("parquet", path, f"pictures.column={name}").items for name in ("mask", "photo"))
    named = write_parquet(tmp_path / "b.parquet", {"mask": columns["mask"], "image": columns["photo"]})
    assert opened("parquet", named).items[0].digest == photo.digest != mask.digest


@pytest.mark.parametrize(
    ("overrides", "message"),
    [
        ([], r"several columns of images; choose one with pictures.column of mask \(binary\), photo \(binary\), label \(int64\)"),
        (["pictures.column=label"], "no column of images named label; choose .* of mask"),
        (["pictures.column=nope"], "no column of images named nope; choose .* of mask"),
        (["pictures.split=test"], 'Unknown split "test"'),
        (["pictures.data=nowhere"], "data=nowhere cannot be loaded: there is no such file"),
        (["pictures.data=''"], "pictures.dataset=parquet needs pictures.data"),
        (["pictures.dataset=webdataset"], "cannot be loaded"),
        (["pictures.dataset=''"], "needs pictures.dataset"),
        (["pictures.data=nofs://bucket/x.parquet"], "cannot be loaded: .*nofs"),
        (["pictures.streaming=true"], "needs pictures.limit"),
        (["pictures.kind=zip"], "pictures.kind='zip' is not known; expected packages, folder, hf"),
    ],
)  # fmt: skip
def test_mistake_in_the_config_is_a_usage_error(tmp_path: Path, opened: Any, overrides: list[str], message: str):
    columns = {"mask": [encoded(sample_image(1))], "photo": [encoded(sample_image(2))], "label": [3]}
    with pytest.raises(UsageError, match=message):
        opened("parquet", write_parquet(tmp_path / "a.parquet", columns), *overrides)


def test_several_splits_have_to_be_chosen_from(tmp_path: Path, opened: Any):
    for split in ("train", "test"):
        write_parquet(tmp_path / "dataset" / f"{split}.parquet", {"image": [encoded(sample_image(1))]})
    with pytest.raises(UsageError, match="has the splits train, test; choose one with pictures.split"):
        opened(tmp_path / "dataset", "")
    assert len(opened(tmp_path / "dataset", "", "pictures.split=train").items) == 1


def test_dataset_without_images_is_a_usage_error(tmp_path: Path, opened: Any):
    with pytest.raises(UsageError, match=r"holds no usable image \(skipped: 1 not an image\)"):
        opened("parquet", write_parquet(tmp_path / "a.parquet", {"image": [b"no image"]}))
    write_parquet(tmp_path / "b.parquet", {"text": ["x"]})
    with pytest.raises(UsageError, match=r"no column of images; choose one with pictures.column of text \(string\)"):
        opened("parquet", tmp_path / "b.parquet")
