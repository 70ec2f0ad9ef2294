"""Pages: whole lists by default, tokens that survive rows that come and go, and tokens that are not ours."""

import pytest
from admin_api.errors import ApiError
from admin_api.paging import Paging


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
