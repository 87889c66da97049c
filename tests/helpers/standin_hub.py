"""A server on this machine that answers like the model hub: file lists, sizes, licence gates, small files."""

import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import urlsplit

from tests.helpers.http import QuietHandler, serving

COMMIT = "c" * 40


@dataclass
class Repository:
    """sizes: bytes by file name. digests: SHA-256 by file name. texts: files that can be fetched. allowed: tokens."""

    sizes: Mapping[str, int]
    digests: Mapping[str, str] = field(default_factory=dict)
    texts: Mapping[str, Any] = field(default_factory=dict)
    gated: bool = False
    allowed: tuple[str, ...] = ()
    dtypes: Mapping[str, int] = field(default_factory=dict)
    status: int = 200


@contextmanager
def hub(repositories: Mapping[str, Repository]) -> Iterator[str]:
    """Yields its address."""

    class Handler(QuietHandler):
        def do_GET(self) -> None:
            parts = urlsplit(self.path).path.strip("/").split("/")
            api = parts[:2] == ["api", "models"]
            owner, name, *rest = parts[2:] if api else parts
            repository = repositories.get(f"{owner}/{name}")
            token = self.headers.get("Authorization", "").removeprefix("Bearer ")
            if token == "expired":
                self.answer(401, {"error": "Invalid credentials in Authorization header"}, {})
            elif repository is None:
                self.answer(401, {"error": "Repository not found"}, {"X-Error-Code": "RepoNotFound"})
            elif repository.status != 200:
                self.answer(repository.status, {"error": "down for maintenance"}, {})
            elif api and not rest:
                self.answer(200, listing(f"{owner}/{name}", repository), {})
            elif repository.gated and token not in repository.allowed:
                self.answer(403 if token else 401, {"error": "gated"}, {"X-Error-Code": "GatedRepo"})
            elif api:
                answers = {"revision": listing(f"{owner}/{name}", repository), "tree": tree(repository)}
                self.answer(200, answers.get(rest[0], {}), {})
            elif rest[-1] in repository.texts:
                self.answer(200, repository.texts[rest[-1]], {})
            else:
                self.answer(404, {"error": "Entry not found"}, {"X-Error-Code": "EntryNotFound"})

        def do_HEAD(self) -> None:
            owner, name, _, _, *path = urlsplit(self.path).path.strip("/").split("/")
            repository = repositories[f"{owner}/{name}"]
            token = self.headers.get("Authorization", "").removeprefix("Bearer ")
            if repository.gated and token not in repository.allowed:
                self.answer(403 if token else 401, {"error": "gated"}, {"X-Error-Code": "GatedRepo"})
                return
            filename = "/".join(path)
            etag = repository.digests.get(filename, "e" * 40)
            linked = {"X-Linked-Size": str(repository.sizes[filename]), "X-Linked-ETag": f'"{etag}"'}
            self.answer(200, {}, {"X-Repo-Commit": COMMIT, "ETag": f'"{etag}"', **linked})

        def answer(self, status: int, body: Any, headers: Mapping[str, str]) -> None:
            said = json.dumps(body).encode()
            self.send_response(status)
            for name, value in {
                "Content-Type": "application/json",
                "Content-Length": str(len(said)),
                **headers,
            }.items():
                self.send_header(name, value)
            self.end_headers()
            if self.command == "GET":
                self.wfile.write(said)

    with serving(Handler) as address:
        yield address


def tree(repository: Repository) -> list[dict[str, Any]]:
    return [
        {"type": "file", "path": path, "size": size, "oid": repository.digests.get(path, "e" * 40)}
        for path, size in repository.sizes.items()
    ]


def listing(name: str, repository: Repository) -> dict[str, Any]:
    siblings: list[dict[str, Any]] = []
    for filename, size in repository.sizes.items():
        digest = repository.digests.get(filename)
        lfs = {"lfs": {"sha256": digest, "size": size, "pointerSize": 134}} if digest else {}
        siblings.append({"rfilename": filename, "size": size, "blobId": "b" * 40, **lfs})
    told = {"safetensors": {"parameters": dict(repository.dtypes), "total": 0}} if repository.dtypes else {}
    gated = "auto" if repository.gated else False
    return {"id": name, "modelId": name, "sha": COMMIT, "gated": gated, "private": False, "siblings": siblings} | told
