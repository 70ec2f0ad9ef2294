"""A small schema registry over HTTP: ids, GUIDs, subjects with versions, references, and the troubles of a real one.

with SchemaServer() as server:
    number = server.add("orders-value", '"string"')
    server.delay_s = 30            # or server.status = 401; server.requests has the paths that were asked for
"""

from __future__ import annotations

import json
import threading
import time
import uuid
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Self
from urllib.parse import unquote

Reference = dict[str, Any]
#: The status of every answer, its delay in seconds, and what a program with a limit of 1 s says of it.
TROUBLES = [
    (401, 0, "The schema registry refuses the login (401)."),
    (500, 0, "The schema registry answers 500: no."),
    (0, 30, "The schema registry did not answer within 1 s."),
]


class SchemaServer:
    def __init__(self) -> None:
        self.requests: list[str] = []
        self.authorizations: list[str | None] = []
        self.delay_s = 0.0
        #: The status of every answer, if not 0.
        self.status = 0
        #: Number of requests to come that fail, by the beginning of their path.
        self.failing: dict[str, int] = {}
        #: Registrations of these texts are refused as incompatible.
        self.incompatible: set[str] = set()
        self._schemas: list[dict[str, Any]] = []
        self._subjects: dict[str, list[int]] = {}
        server = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_GET(self) -> None:
                self._answer(lambda: server.got(self.path))

            def do_POST(self) -> None:
                body = json.loads(self.rfile.read(int(self.headers["content-length"])))
                self._answer(lambda: server.posted(self.path, body))

            def _answer(self, answer: Any) -> None:
                server.requests.append(self.path)
                server.authorizations.append(self.headers.get("authorization"))
                time.sleep(server.delay_s)
                status, found = (server.status, {"message": "no"}) if server.status else answer()
                content = found if isinstance(found, bytes) else json.dumps(found).encode()
                self.send_response(status)
                self.send_header("content-length", str(len(content)))
                self.end_headers()
                self.wfile.write(content)

            def log_message(self, *_: Any) -> None:
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        self.url = f"http://127.0.0.1:{self._server.server_address[1]}"
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.05,), daemon=True)

    def add(self, subject: str, text: str, kind: str = "AVRO", references: list[Reference] | None = None) -> int:
        """Return the id of a schema, which becomes the next version of a subject."""
        entry = {"schema": text, "schemaType": kind, "references": references or []}
        ids = [number for number, each in enumerate(self._schemas, 1) if each["body"] == entry]
        if not ids:
            self._schemas.append({"body": entry, "guid": str(uuid.UUID(int=len(self._schemas) + 1))})
        number = ids[0] if ids else len(self._schemas)
        versions = self._subjects.setdefault(subject, [])
        if number not in versions:
            versions.append(number)
        return number

    def guid(self, number: int) -> uuid.UUID:
        return uuid.UUID(self._schemas[number - 1]["guid"])

    def got(self, path: str) -> tuple[int, Any]:
        for beginning, left in self.failing.items():
            if left and path.startswith(beginning):
                self.failing[beginning] = left - 1
                return 503, {"message": "away"}
        match [unquote(part) for part in path.partition("?")[0].strip("/").split("/")]:
            case ["subjects"]:
                return 200, list(self._subjects)
            case ["subjects", subject, "versions"] if subject in self._subjects:
                return 200, list(range(1, len(self._subjects[subject]) + 1))
            case ["schemas", "ids", number, *rest] if 0 < int(number) <= len(self._schemas):
                found = int(number)
                if rest == ["versions"]:
                    return 200, [self._place(subject, found) for subject, ids in self._subjects.items() if found in ids]
                return 200, self._shown(found)
            case ["schemas", "guids", text] if text in [each["guid"] for each in self._schemas]:
                found = next(at for at, each in enumerate(self._schemas, 1) if each["guid"] == text)
                return 200, {**self._shown(found), "guid": text}
            case ["subjects", subject, "versions", version] if subject in self._subjects:
                ids = self._subjects[subject]
                at = len(ids) if version == "latest" else int(version)
                if 0 < at <= len(ids):
                    return 200, {"subject": subject, "version": at, "id": ids[at - 1], **self._shown(ids[at - 1])}
        return 404, {"error_code": 40403, "message": "not found"}

    def posted(self, path: str, body: dict[str, Any]) -> tuple[int, Any]:
        kind, references = body.get("schemaType", "AVRO"), body.get("references")
        entry = {"schema": body["schema"], "schemaType": kind, "references": references or []}
        match [unquote(part) for part in path.partition("?")[0].strip("/").split("/")]:
            case ["subjects", subject]:
                for at, number in enumerate(self._subjects.get(subject, ()), 1):
                    if self._schemas[number - 1]["body"] == entry:
                        return 200, {"subject": subject, "version": at, "id": number, **self._shown(number)}
                return 404, {"error_code": 40403, "message": "Schema not found"}
            case ["subjects", subject, "versions"]:
                if body["schema"] in self.incompatible:
                    return 409, {"error_code": 409, "message": "incompatible with an earlier schema"}
                return 200, {"id": self.add(subject, body["schema"], kind, references)}
            case ["compatibility", "subjects", subject, "versions", "latest"] if subject in self._subjects:
                fits = body["schema"] not in self.incompatible
                return 200, {"is_compatible": fits, "messages": [] if fits else ["a field was added"]}
        return 404, {"error_code": 40401, "message": "not found"}

    def _place(self, subject: str, number: int) -> dict[str, Any]:
        return {"subject": subject, "version": self._subjects[subject].index(number) + 1}

    def _shown(self, number: int) -> dict[str, Any]:
        body = self._schemas[number - 1]["body"]
        return {name: value for name, value in body.items() if value and (name, value) != ("schemaType", "AVRO")}

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._server.server_close()
