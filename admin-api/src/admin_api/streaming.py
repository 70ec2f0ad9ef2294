"""Lists sent as they are made: a piece of the rows is asked of storage, rendered and sent before the next.

    {"kind": "KafkaTopicConfigList", "data": [ piece, piece, … ], "metadata": {"self": …, "next": …}}

A list of any length thus costs the memory of one piece, and other requests run between two pieces. `metadata` is last,
because the last piece says whether there is a next page. Storage may fail after the first piece: then the connection
closes within the list, and the client sees that the answer has no end.

The time limit of a request covers the first piece. Each later call of storage has its own limit, and the connection
ends when its client receives nothing for too long.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack
from typing import TypeVar

from admin_api.paging import Rows
from admin_api.records.streams import LastingResponse
from admin_api.schemas.resources import CollectionMetadata, Resource

Row = TypeVar("Row")


async def streamed(
    kind: str,
    pieces: AsyncIterator[Rows[Row]],
    resource: Callable[[Row], Resource],
    metadata: Callable[[str | None], CollectionMetadata],
) -> LastingResponse:
    """Return the answer of a list of this kind, with its first piece already asked of storage.

    Raises:
        ApiError: storage refuses the first piece; there is no answer yet.
    """
    # A tuple as the default of anext is an error of Python 3.11.
    first = await anext(pieces, None) or Rows[Row]([], None)

    def rendered(piece: Rows[Row]) -> bytes:
        return ",".join(resource(row).model_dump_json(by_alias=True) for row in piece.rows).encode()

    async def parts() -> AsyncIterator[bytes]:
        next_query = first.next_query
        before = rendered(first)
        yield b'{"kind":"%s","data":[%s' % (kind.encode(), before)
        async for piece in pieces:  # mutant: pieces-streamed
            next_query = piece.next_query
            if part := rendered(piece):
                yield b"," + part if before else part
                before = part
        yield b'],"metadata":%s}' % metadata(next_query).model_dump_json(by_alias=True).encode()

    return LastingResponse(parts(), AsyncExitStack(), media_type="application/json")
