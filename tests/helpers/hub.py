"""A stand-in of the Hugging Face hub on loopback: what its client asks to read and commit to a dataset repository."""

from __future__ import annotations

import base64
import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

TOKEN = "hf_SECRETsecret0123456789"


@dataclass
class Repository:
    files: dict[str, bytes] = field(default_factory=lambda: {".gitattributes": b"* text\n"})
    commits: list[dict[str, Any]] = field(default_factory=list)  # the headers that came

    @property
    def sha(self) -> str:
        return hashlib.sha1(str(sorted(self.files.items())).encode()).hexdigest()


@dataclass(frozen=True)
class Asked:
    method: str
    path: str
    authorization: str | None


class Hub(ThreadingHTTPServer):
    """Knows one token; remembers what was asked; may be told to refuse or to redirect."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.repositories: dict[str, Repository] = {}
        self.asked: list[Asked] = []
        self.readable: set[str] = set()  # repositories that are somebody else's
        self.refusals: dict[str, list[int]] = {}  # by the end of a path: statuses of the next answers
        self.elsewhere = ""  # an address to which every question is sent

    @property
    def address(self) -> str:
        return f"http://127.0.0.1:{self.server_port}"

    def wrote(self) -> list[str]:
        return [request.path for request in self.asked if request.method == "POST"]


class Handler(BaseHTTPRequestHandler):
    server: Hub

    def do_GET(self) -> None:
        self.answer(b"")

    def do_POST(self) -> None:
        self.answer(self.rfile.read(int(self.headers["Content-Length"])))

    def answer(self, content: bytes) -> None:
        hub, path = self.server, self.path.partition("?")[0]
        hub.asked.append(Asked(self.command, path, self.headers.get("Authorization")))
        if hub.elsewhere:
            self.send_response(307)
            self.send_header("Location", f"{hub.elsewhere}{self.path}")
            return self.end_headers()
        said = self.headers.get("Authorization", "")
        for end, statuses in hub.refusals.items():
            if path.endswith(end) and statuses:
                return self.say({"error": f"no, {said}"}, statuses.pop(0))
        if said != f"Bearer {TOKEN}":
            return self.say({"error": f"Invalid credentials {said}"}, 401)
        return self.say(*self.right(path, content))

    def right(self, path: str, content: bytes) -> tuple[object, int]:
        parts = path.split("/")
        if path == "/api/validate-yaml":
            return {"errors": [], "warnings": []}, 200
        if path == "/api/repos/create":
            return self.create(json.loads(content))
        name = "/".join(parts[3:5])
        repository = self.server.repositories.get(name)
        if repository is None:
            return {"error": "Repository not found"}, 404
        if parts[5:] in ([], ["tree", "main"]):
            return self.tree(repository) if parts[5:] else self.info(name, repository), 200
        if name in self.server.readable:
            return {"error": "not yours"}, 403
        return self.preupload(content) if parts[5] == "preupload" else self.commit(name, content)

    def create(self, asked: Mapping[str, str]) -> tuple[object, int]:
        assert asked["type"] == "dataset"
        name = f"{asked['organization']}/{asked['name']}"
        self.server.repositories[name] = Repository()
        return {"url": f"{self.server.address}/datasets/{name}"}, 200

    def info(self, name: str, repository: Repository) -> object:
        siblings = [
            {
                "rfilename": path,
                "size": len(content),
                "blobId": hashlib.sha1(b"blob %d\0" % len(content) + content).hexdigest(),
            }
            for path, content in repository.files.items()
        ]
        return {"id": name, "sha": repository.sha, "siblings": siblings, "tags": [], "downloads": 0, "likes": 0}

    def tree(self, repository: Repository) -> object:
        return [{"type": "file", "path": path, "size": 0, "oid": "0" * 40} for path in repository.files]

    def preupload(self, content: bytes) -> tuple[object, int]:
        paths = [load["path"] for load in json.loads(content)["files"]]
        return {"files": [{"path": path, "uploadMode": "regular", "shouldIgnore": False} for path in paths]}, 200

    def commit(self, name: str, content: bytes) -> tuple[object, int]:
        repository = self.server.repositories[name]
        lines = [json.loads(line) for line in content.splitlines()]
        header = lines[0]["value"]
        if header.get("parentCommit", repository.sha) != repository.sha:
            return {"error": "The repository changed"}, 412
        for line in lines[1:]:
            value = line["value"]
            if line["key"] == "file":
                repository.files[value["path"]] = base64.b64decode(value["content"])
            elif line["key"] == "deletedFile":
                del repository.files[value["path"]]
            else:
                return {"error": f"unknown {line['key']}"}, 400
        repository.commits.append(header)
        return {"commitUrl": f"{self.server.address}/datasets/{name}/commit/1", "commitOid": repository.sha}, 200

    def say(self, content: object, status: int) -> None:
        text = json.dumps(content).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(text)))
        self.end_headers()
        self.wfile.write(text)

    def log_message(self, *_: object) -> None:
        """Say nothing."""
