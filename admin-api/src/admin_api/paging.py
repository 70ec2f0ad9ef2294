"""Optional paging of lists: `page_size` and an opaque `page_token`. Without them a list has its first ROWS_MAX rows.

Rows are in the order of their keys. A token has the key of the last row shown, and the next page begins after that key.
A page therefore stays right while rows come and go. Confluent's server never pages, and here few lists exceed ROWS_MAX.
A row in an answer takes about 2 KB of memory, and storage's part of it more: `fetch` asks for a page's rows alone.
`pieces` has one piece of a page in memory at a time, for lists of many rows a name: see `streaming`.
"""

from __future__ import annotations

import base64
import binascii
import json
from bisect import bisect_left
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from typing import Annotated, Generic, NamedTuple, TypeVar
from urllib.parse import urlencode

from fastapi import Depends, Query

from admin_api import errors

#: Rows of a page, at most, as in Confluent Cloud's list calls.
PAGE_SIZE_MAX = 1000
#: Rows of a list whose caller requests no page.
ROWS_MAX = 10_000
#: Names in one question to storage.
BATCH = 200
#: Names in one piece of a streamed list: 170 configurations, 90 KB and 5 ms of processor time.
PIECE_NAMES = 5
#: Names that one page of a streamed list looks at: the list keeps them as long as a slow client receives it.
STREAMED_NAMES_MAX = 1000

#: A text after every other one of a key.
_AFTER_ALL = chr(0x10FFFF)

Row = TypeVar("Row")
#: The key that orders rows: a name, or several parts.
Key = tuple[str | int, ...]


class Rows(NamedTuple, Generic[Row]):
    """One page: its rows and the query of the next page's URL, None on the last."""

    rows: list[Row]
    next_query: str | None


class Paging:
    """The page that the caller requests."""

    __slots__ = ("_after", "size")

    def __init__(self, size: int | None, token: str | None) -> None:
        self.size = size
        self._after = None if token is None else _key(token)

    @property
    def asked(self) -> bool:
        return self.size is not None or self._after is not None

    @property
    def after(self) -> Key | None:
        """The key after which the page begins; None for the first page."""
        return self._after

    def cut(self, rows: Iterable[Row], key: Callable[[Row], Key], *, rows_max: int | None = None) -> Rows[Row]:
        """Return the requested page of `rows`, in the order of their keys; `rows_max` if no size is requested."""
        ordered = sorted(rows, key=key)
        if self._after is not None:
            ordered = self._rows_after(ordered, key)
        size = min(ROWS_MAX, rows_max or ROWS_MAX) if self.size is None else self.size
        if len(ordered) <= size:
            return Rows(ordered, None)
        page = ordered[:size]
        return Rows(page, self.next_query(key(page[-1])))

    async def fetch(
        self,
        names: Iterable[str],
        rows_of: Callable[[list[str]], Awaitable[list[Row]]],
        key: Callable[[Row], Key],
    ) -> Rows[Row]:
        """Return the requested page of rows whose keys begin with one of the names, asked for some names at a time."""
        ordered = self._names_from_here(names)
        rows: list[Row] = []
        page: Rows[Row] = Rows([], None)
        for at in range(0, len(ordered), BATCH):
            rows += await rows_of(ordered[at : at + BATCH])
            page = self.cut(rows, key)
            if page.next_query is not None:  # mutant: page-bounded
                break
        return page

    async def pieces(
        self,
        names: Iterable[str],
        rows_of: Callable[[list[str]], Awaitable[list[Row]]],
        key: Callable[[Row], Key],
    ) -> AsyncIterator[Rows[Row]]:
        """Yield the requested page in pieces of PIECE_NAMES names. The last piece alone has the query of the next page.

        Each row's key is its name and one more text.
        """
        ordered = self._names_from_here(names)
        considered = ordered[:STREAMED_NAMES_MAX]
        ends_before = len(ordered) > len(considered)
        del ordered
        left = ROWS_MAX if self.size is None else self.size
        last = self._after
        for at in range(0, len(considered), PIECE_NAMES):
            rows = sorted(await rows_of(considered[at : at + PIECE_NAMES]), key=key)
            if self._after is not None and at == 0:
                rows = self._rows_after(rows, key)
            if len(rows) > left:
                rows = rows[:left]
                yield Rows(rows, self.next_query(key(rows[-1]) if rows else last))
                return
            left -= len(rows)
            last = key(rows[-1]) if rows else last
            yield Rows(rows, None)
        if ends_before:  # mutant: next-page-query
            yield Rows([], self.next_query((considered[-1], _AFTER_ALL)))

    def _names_from_here(self, names: Iterable[str]) -> list[str]:
        """Return the names in order, from the one in the token on."""
        ordered = sorted(names)
        if self._after is None:
            return ordered
        first = self._after[0] if self._after else None
        if not isinstance(first, str):
            raise _not_a_token()
        return ordered[bisect_left(ordered, first) :]

    def _rows_after(self, rows: list[Row], key: Callable[[Row], Key]) -> list[Row]:
        """Return the rows after the token's. Raises ApiError for a token of another list."""
        assert self._after is not None
        try:
            return [row for row in rows if key(row) > self._after]
        except TypeError:
            raise _not_a_token() from None

    def next_query(self, last: Key | None) -> str:
        """Return the query of the page that begins after this key."""
        given = {} if self.size is None else {"page_size": self.size}
        return urlencode({**given, "page_token": _token(last or ())})


def _paging(
    page_size: Annotated[
        int | None, Query(ge=1, le=PAGE_SIZE_MAX, description=f"At most this many rows; {ROWS_MAX} when absent.")
    ] = None,
    page_token: Annotated[
        str | None,
        Query(description="Where to go on: the token in the last answer's metadata.next."),
    ] = None,
) -> Paging:
    return Paging(page_size, page_token)


PageQuery = Annotated[Paging, Depends(_paging)]


def _token(key: Key) -> str:
    return base64.urlsafe_b64encode(json.dumps(key, separators=(",", ":")).encode()).decode().rstrip("=")


def _key(token: str) -> Key:
    try:
        parts = json.loads(base64.b64decode(token + "=" * (-len(token) % 4), altchars=b"-_", validate=True))
    except (binascii.Error, ValueError, RecursionError):
        raise _not_a_token() from None
    if not isinstance(parts, list) or not all(isinstance(part, str | int) for part in parts):
        raise _not_a_token()
    return tuple(parts)


def _not_a_token() -> errors.ApiError:
    return errors.of_status(400, "page_token is not one that this list gave out.")
