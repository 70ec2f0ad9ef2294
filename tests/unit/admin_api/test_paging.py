"""Pages: whole lists by default, tokens that survive rows that come and go, and tokens that are not ours."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from admin_api import paging
from admin_api.errors import ApiError
from admin_api.paging import Paging

if TYPE_CHECKING:
    from tests.unit.admin_api.conftest import Stack


def _pages(rows: list[str], size: int) -> list[list[str]]:
    pages, token = [], None
    while True:
        page = Paging(size, token).cut(rows, key=lambda row: (row,))
        pages.append(page.rows)
        if page.next_query is None:
            return pages
        size_text, _, token = page.next_query.partition("&page_token=")
        assert size_text == f"page_size={size}"


def test_without_a_size_the_list_is_whole_and_ordered() -> None:
    page = Paging(None, None).cut(["b", "a", "c"], key=lambda row: (row,))
    assert page.rows == ["a", "b", "c"]
    assert page.next_query is None


@pytest.mark.parametrize(
    ("size", "expected"),
    [(1, [["a"], ["b"], ["c"]]), (2, [["a", "b"], ["c"]]), (3, [["a", "b", "c"]]), (1000, [["a", "b", "c"]])],
)
def test_pages(size: int, expected: list[list[str]]) -> None:
    assert _pages(["c", "a", "b"], size) == expected


def test_a_token_goes_on_after_its_row_even_when_that_is_gone() -> None:
    first = Paging(2, None).cut(["a", "b", "d"], key=lambda row: (row,))
    assert first.next_query == "page_size=2&page_token=WyJiIl0"
    second = Paging(2, "WyJiIl0").cut(["a", "c", "d"], key=lambda row: (row,))
    assert second.rows == ["c", "d"]


def test_keys_of_several_parts() -> None:
    rows = [("t", 10), ("t", 9), ("s", 1)]
    first = Paging(2, None).cut(rows, key=lambda row: row)
    assert first.rows == [("s", 1), ("t", 9)]
    assert first.next_query is not None
    token = first.next_query.partition("page_token=")[2]
    assert Paging(2, token).cut(rows, key=lambda row: row).rows == [("t", 10)]


@pytest.mark.parametrize("token", ["", "!", "xx", "eyJhIjoxfQ", "W251bGxd", "Z" * 2000, "\xff", "W1tbW1tb"])
def test_what_is_not_a_token(token: str) -> None:
    with pytest.raises(ApiError) as refused:
        Paging(1, token).cut(["a"], key=lambda row: (row,))
    assert (refused.value.status_code, refused.value.error_code) == (400, 400)


def test_a_token_of_another_list() -> None:
    with pytest.raises(ApiError) as refused:
        Paging(1, "WzFd").cut(["a"], key=lambda row: (row,))  # [1], as of a list of numbers
    assert refused.value.message == "page_token is not one that this list gave out."


def test_a_list_of_very_many_rows_goes_on_too(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(paging, "ROWS_MAX", 2)
    assert Paging(None, None).cut("ba", key=lambda row: (row,)).next_query is None
    first = Paging(None, None).cut("cba", key=lambda row: (row,))
    assert (first.rows, first.next_query) == (["a", "b"], "page_token=WyJiIl0")
    assert Paging(None, "WyJiIl0").cut("cba", key=lambda row: (row,)) == (["c"], None)


@pytest.mark.parametrize("size", [1, 2, 3, 5, 7, None])
async def test_only_the_names_of_a_page_are_asked_for(size: int | None, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nine names with two rows each, except one that has gone, in batches of two."""
    monkeypatch.setattr(paging, "BATCH", 2)
    names = list("ihgfedcba")
    asked: list[list[str]] = []

    async def rows_of(some: list[str]) -> list[tuple[str, int]]:
        asked.append(some)
        return [(name, number) for name in some if name != "d" for number in (2, 1)]

    found, token = [], None
    while True:
        asked.clear()
        page = await Paging(size, token).fetch(names, rows_of, key=lambda row: row)
        found += page.rows
        assert sum(map(len, asked)) <= (size or 100) // 2 + 5
        if page.next_query is None:
            break
        token = page.next_query.partition("page_token=")[2]
    assert found == [(name, number) for name in "abcefghi" for number in (1, 2)]
    assert await Paging(size, None).fetch([], rows_of, key=lambda row: row) == ([], None)


@pytest.mark.parametrize("token", ["WzFd", "W10"])
async def test_a_token_without_a_name_is_no_token_of_a_list_of_names(token: str) -> None:
    with pytest.raises(ApiError) as refused:
        await Paging(1, token).fetch(["a"], lambda _: pytest.fail("asked"), key=lambda row: (row,))
    assert refused.value.status_code == 400


def test_every_list_has_a_largest_length(stack: Stack, monkeypatch: pytest.MonkeyPatch) -> None:
    """Follow `next` from the first to the last page of every list of topics, partitions, configurations and groups."""
    for number in range(5):
        stack.create_topic(f"listed-{number}", 4)
        stack.commit(f"listed-{number}", {(f"listed-{number}", partition): 0 for partition in range(4)})
    paths = [
        "/topics", "/topics/-/configs", "/topics/listed-0/configs", "/topics/listed-0/partitions", "/consumer-groups",
        "/consumer-groups/listed-0/lags",
    ]  # fmt: skip
    whole = {path: stack.get(path)["data"] for path in paths}
    monkeypatch.setattr(paging, "ROWS_MAX", 3)
    monkeypatch.setattr("admin_api.routers.lags.ROWS_MAX", 3)
    for path, rows in whole.items():
        found, url = [], f"{stack.base_url}{stack.cluster}{path}"
        while url is not None:
            page = stack.http.get(url).json()
            assert len(page["data"]) <= 3
            found += page["data"]
            url = page["metadata"]["next"]
        assert len(rows) > 3
        assert found == rows, path
