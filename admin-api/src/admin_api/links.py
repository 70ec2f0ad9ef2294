"""URLs and resource names as Confluent's REST Proxy writes them.

self            http://localhost:8082/v3/clusters/C/topics/T     under MILLRACE_ADMIN_PUBLIC_URL, or the request's host
resource_name   crn:///kafka=C/topic=T
"""

from __future__ import annotations

import re
from typing import Final
from urllib.parse import quote

from admin_api.schemas.resources import CollectionMetadata, Relationship, ResourceMetadata

Segment = str | int

#: Text that a URL has as it is: most names. `quote` takes five times as long to find that out.
_PLAIN: Final = re.compile(r"[A-Za-z0-9._~-]*")


def _quoted(segment: Segment) -> str:
    text = str(segment)
    return text if _PLAIN.fullmatch(text) else quote(text, safe="")


class Links:
    """Links of one answer. `base_url` ends before `/v3`."""

    __slots__ = ("_base", "_cluster", "_name")

    def __init__(self, base_url: str, cluster_id: str) -> None:
        self._base = base_url.rstrip("/") + "/v3/clusters"
        self._cluster = f"{self._base}/{_quoted(cluster_id)}"
        self._name = f"crn:///kafka={cluster_id}"

    def url(self, *segments: Segment) -> str:
        """Return the URL of a resource of the cluster."""
        return "/".join([self._cluster, *map(_quoted, segments)])

    def clusters(self) -> str:
        return self._base

    def related(self, *segments: Segment) -> Relationship:
        return Relationship(related=self.url(*segments))

    @staticmethod
    def below(resource: ResourceMetadata, path: str) -> Relationship:
        """Return the link to a path below a resource: in long lists it costs a third of `related`."""
        return Relationship(related=f"{resource.self_url}/{path}")

    def resource(self, *segments: Segment, name: tuple[Segment, ...]) -> ResourceMetadata:
        """Return the metadata of one resource; `name` is its kinds and ids in turn, below the cluster."""
        return ResourceMetadata(self_url=self.url(*segments), resource_name=self._crn(name))

    def collection(self, *segments: Segment, next_query: str | None = None) -> CollectionMetadata:
        self_url = self.url(*segments)
        return CollectionMetadata(self_url=self_url, next=f"{self_url}?{next_query}" if next_query else None)

    def _crn(self, name: tuple[Segment, ...]) -> str:
        text = self._name
        for at, part in enumerate(name):
            text += f"={part}" if at % 2 else f"/{part}"
        return text
