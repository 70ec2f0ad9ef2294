"""Topics over the admin API (Confluent's REST v3 shapes), with nothing but the standard library."""

import json
import time
import urllib.error
import urllib.parse
import urllib.request
from typing import Any

from millrace_demo.errors import DemoError

TIMEOUT_SECONDS = 120.0
RESPONSE_BYTES_MAX = 16 << 20
RETRY_SECONDS = 0.3


class Rest:
    def __init__(self, address: str, token: str = "") -> None:
        """Connect to `address`: http://host:port or host:port."""
        self._headers = {"Content-Type": "application/json", "Accept": "application/json"}
        if token:
            self._headers["Authorization"] = f"Bearer {token}"
        self._root = (address if "://" in address else f"http://{address}").rstrip("/")
        if not self._root.startswith(("http://", "https://")):
            raise DemoError(f"{address}: not an http address")

    def wait_cluster_id(self, deadline_s: float) -> str:
        """Return the cluster's id, as soon as the API answers."""
        end = time.monotonic() + deadline_s
        while True:
            try:
                status, document = self._call("GET", "/v3/clusters")
                if status == 200 and document["data"]:
                    return str(document["data"][0]["cluster_id"])
                problem = f"status {status}"
            except OSError as error:
                problem = str(error)
            if time.monotonic() > end:
                raise DemoError(f"{self._root}: not ready within {deadline_s:.0f} s ({problem})")
            time.sleep(RETRY_SECONDS)

    def create_topic(self, cluster_id: str, name: str, partitions: int) -> bool:
        """Create a topic; return False if it exists already."""
        body = {"topic_name": name, "partitions_count": partitions}
        status, document = self._call("POST", f"/v3/clusters/{urllib.parse.quote(cluster_id)}/topics", body)
        if status == 201:
            return True
        if self._topic_exists(cluster_id, name):
            return False
        raise DemoError(f"creating the topic {name}: status {status}, {document}")

    def _topic_exists(self, cluster_id: str, name: str) -> bool:
        path = f"/v3/clusters/{urllib.parse.quote(cluster_id)}/topics/{urllib.parse.quote(name)}"
        return self._call("GET", path)[0] == 200

    def _call(self, method: str, path: str, body: Any = None) -> tuple[int, Any]:
        request = urllib.request.Request(
            self._root + path,
            method=method,
            data=None if body is None else json.dumps(body).encode(),
            headers=self._headers,
        )
        try:
            with urllib.request.urlopen(request, timeout=TIMEOUT_SECONDS) as response:
                return response.status, _document(response.read(RESPONSE_BYTES_MAX))
        except urllib.error.HTTPError as error:
            return error.code, _document(error.read(RESPONSE_BYTES_MAX))


def _document(content: bytes) -> Any:
    try:
        return json.loads(content) if content else None
    except ValueError:
        return content[:200].decode(errors="replace")
