"""Archives on an object store: pyarrow's real S3 client against a server of the few requests that reading takes."""

import pickle
import re
import urllib.parse
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from xml.sax.saxutils import escape

import pytest

from openmaia.pictures.library import Library
from tests.pictures.archiving import config_kind, opened, shards, told


class Bucket(ThreadingHTTPServer):
    """The files below `root` as the objects of every bucket. asked: (method, key, range) of all requests."""

    def __init__(self, root: Path):
        super().__init__(("127.0.0.1", 0), Requests)
        self.root = root
        self.asked: list[tuple[str, str, str]] = []


class Requests(BaseHTTPRequestHandler):
    server: Bucket  # pyright: ignore[reportIncompatibleVariableOverride]
    protocol_version = "HTTP/1.1"

    def do_HEAD(self) -> None:
        self._object(with_body=False)

    def do_GET(self) -> None:
        url = urllib.parse.urlsplit(self.path)
        query = dict(urllib.parse.parse_qsl(url.query))
        if "list-type" in query:
            self._listing(query.get("prefix", ""))
        else:
            self._object(with_body=True)

    def _object(self, with_body: bool) -> None:
        key = urllib.parse.unquote(urllib.parse.urlsplit(self.path).path).split("/", 2)[-1]
        asked = self.headers.get("Range", "")
        self.server.asked.append((self.command, key, asked))
        path = self.server.root / key
        if not path.is_file():
            self._answer(404, b"")
            return
        data = path.read_bytes()
        found = re.fullmatch(r"bytes=(\d+)-(\d+)", asked)
        part = data[int(found[1]) : int(found[2]) + 1] if found else data
        self._answer(206 if found else 200, part, with_body)

    def _listing(self, prefix: str) -> None:
        keys = sorted(
            path.relative_to(self.server.root).as_posix() for path in self.server.root.rglob("*") if path.is_file()
        )
        time = "<LastModified>2024-01-01T00:00:00.000Z</LastModified>"
        found = "".join(
            f"<Contents><Key>{escape(key)}</Key><Size>{(self.server.root / key).stat().st_size}</Size>{time}</Contents>"
            for key in keys
            if key.startswith(prefix)
        )
        self._answer(200, f"<ListBucketResult><IsTruncated>false</IsTruncated>{found}</ListBucketResult>".encode())

    def _answer(self, status: int, data: bytes, with_body: bool = True) -> None:
        self.send_response(status)
        self.send_header("Content-Length", str(len(data)))
        self.send_header("Last-Modified", "Mon, 01 Jan 2024 00:00:00 GMT")
        self.end_headers()
        if with_body:
            self.wfile.write(data)

    def log_message(self, format: str, *args: object) -> None:
        return


@pytest.fixture
def bucket(tmp_path: Path) -> Iterator[Bucket]:
    (tmp_path / "bucket").mkdir()
    server = Bucket(tmp_path / "bucket")
    thread = Thread(target=server.serve_forever, daemon=True)
    thread.start()
    yield server
    server.shutdown()
    thread.join()
    server.server_close()


def url(bucket: Bucket, key: str) -> str:
    place = f"endpoint_override=127.0.0.1:{bucket.server_address[1]}&scheme=http&region=us-east-1"
    return f"s3://id:secret@pictures/{key}?{place}"


@pytest.mark.parametrize("kind", ["webdataset", "struct"])
def test_archives_on_an_object_store_hold_what_the_folder_holds(tree: Path, bucket: Bucket, kind: str) -> None:
    shards(bucket.root / "some" / "shards", kind)
    plain = Library.open(tree / "plain")
    given = url(bucket, "some/shards")
    found = opened(given, config_kind(kind), tree / "cache")
    assert told(found.items) == told(plain.items)
    assert "secret" not in found.items[0].source.name + found.root
    assert list((tree / "cache" / "splits").iterdir()), "the listing is kept in the cache"
    assert not list(bucket.root.rglob(".split*"))
    assert opened(given, config_kind(kind), tree / "cache") == found


def test_a_picture_is_fetched_alone(tree: Path, bucket: Bucket) -> None:
    shards(bucket.root / "shards", "webdataset")
    found = opened(url(bucket, "shards/shard-*.tar"), cache=tree / "cache")
    item = pickle.loads(pickle.dumps(found.items[3]))
    bucket.asked.clear()
    assert item.load().size == (96, 72)
    ranges = [asked for method, _, asked in bucket.asked if method == "GET"]
    assert ranges == [f"bytes={item.source.offset}-{item.source.offset + item.source.size - 1}"]


def test_a_shard_is_listed_in_few_requests(tree: Path, bucket: Bucket) -> None:
    shards(bucket.root / "shards", "webdataset")
    opened(url(bucket, "shards"), cache=tree / "cache")
    assert len([method for method, _, _ in bucket.asked if method == "GET"]) <= 6
