"""What all screens share: login, read-only mode, long lists, an API that fails. The API's answers are made up."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from console.console_pages import HOSTILE, Watched
from console.two_servers import another_admin, free_port

pytestmark = pytest.mark.blocks_event_loop("the browser's driver waits in this thread")


def answer(console: Watched, path: str, body: object, status: int = 200) -> None:
    """Let the page receive this answer for each request to a path."""
    text = json.dumps(body)
    console.page.route(
        f"**{path}", lambda route: route.fulfill(status=status, body=text, content_type="application/json")
    )


def summary(name: str, records: int = 0) -> dict[str, Any]:
    counts = {
        "partitions_count": 1,
        "offline_partitions_count": 0,
        "bytes": 0,
        "records_in_per_s": None,
        "consumer_groups": 0,
    }
    return {"topic_name": name, "is_internal": False, "records": records, **counts}


def group(name: str, lag: int) -> dict[str, Any]:
    counts = {"members_count": 0, "topics_count": 1, "lag": lag, "lag_before": 0, "lag_seconds": float(lag)}
    return {"consumer_group_id": name, "state": "EMPTY", "type": "CLASSIC", **counts}


def test_a_thousand_topics_are_drawn_and_searched(console: Watched):
    rows = [summary(f"topic-{number:04}", 2**63 - 1 - number) for number in range(1000)]
    answer(console, "/api/v1/topics", {"data": rows, "next": None})
    console.open("topics")
    console.page.get_by_text("1,000 topics").wait_for()
    console.row("topic-0070").wait_for()
    assert console.row("").count() < 200
    console.row("").last.scroll_into_view_if_needed()
    console.row("topic-0200").wait_for()
    assert "9,223,372,036,854,775,807" in console.row("topic-0000").inner_text()
    console.page.get_by_role("searchbox").fill("0987")
    console.page.get_by_text("1 topic of 1000").wait_for()
    assert console.row("").count() == 1
    console.page.get_by_role("searchbox").fill("")
    console.button("Show all 1000").click()
    assert console.row("").count() == 1000


def test_five_hundred_groups_are_drawn_and_searched(console: Watched):
    rows = [group(f"group-{number:03} {HOSTILE}", number) for number in range(499)] + [group("a/b ü", 9)]
    answer(console, "/api/v1/consumer-groups", {"data": rows, "next": None})
    console.open("groups")
    console.page.get_by_text("500 groups").wait_for()
    console.page.get_by_role("button", name="Lag", exact=True).click()
    assert console.row("").first.inner_text().split() == [
        *(f"group-498 {HOSTILE}").split(), "empty", "classic", "0", "1", "498", "8", "min", "▲", "growing",
    ]  # fmt: skip
    console.page.get_by_role("searchbox").fill("A/B")
    console.page.get_by_text("1 group of 500").wait_for()
    assert console.row("").locator("a").get_attribute("href") == "#/groups/a%2Fb%20%C3%BC"
    assert console.page.locator("main img").count() == 0


def test_hostile_names_stay_text(console: Watched):
    answer(console, "/api/v1/topics", {"data": [summary(HOSTILE), summary("../../x?y#z")], "next": None})
    console.open("topics")
    console.row(HOSTILE).wait_for()
    assert console.page.locator("main img").count() == 0
    links = [each.get_attribute("href") for each in console.page.locator("main td a").all()]
    assert sorted(links) == ["#/topics/%3Cimg%20src%3Dx%20onerror%3Dalert(1)%3E", "#/topics/..%2F..%2Fx%3Fy%23z"]


def test_login_asks_for_a_token_and_shows_what_a_role_may_do(console: Watched):
    public = {"login": "token", "is_logged_in": False, "name": None, "role": "public", "read_only": False}
    sent: list[Any] = []

    def session(route: Any) -> None:
        if route.request.method == "POST":
            sent.append((route.request.post_data_json, route.request.headers["x-requested-by"]))
            known = {**public, "is_logged_in": True, "name": "ann", "role": "read"}
            route.fulfill(body=json.dumps(known), content_type="application/json")
        else:
            route.fulfill(body=json.dumps(public), content_type="application/json")

    console.page.route("**/api/v1/session", session)
    console.page.goto(f"{console.served.url}#/topics")
    console.page.get_by_label("Token").fill("secret")
    console.button("Log in").click()
    console.row("orders").wait_for()
    assert sent == [({"token": "secret"}, "console")]
    assert console.button("Create a topic").count() == 0
    assert console.page.get_by_role("button", name="Log out").count() == 1


def test_a_change_with_the_cookie_comes_from_the_page_alone(console: Watched, tmp_path: Path):
    """Another page could make the browser send a request, with the cookie and without the header."""
    tokens, port = tmp_path / "tokens", free_port()
    tokens.write_text("ada admin secret-0123456789\n")
    guarded = {"MILLRACE_ADMIN_AUTH": "token", "MILLRACE_ADMIN_TOKENS_FILE": str(tokens)}
    console.expected = ["401", "403", "foreign"]
    with another_admin(console.served.up, port, **guarded):
        console.page.goto(f"http://127.0.0.1:{port}/console/#/topics")
        console.page.get_by_label("Token").fill("secret-0123456789")
        console.button("Log in").click()
        console.row("orders").wait_for()
        foreign = "(path) => fetch(path, {method: 'DELETE'}).then((answer) => answer.status)"
        assert console.page.evaluate(foreign, "../v3/clusters/-/topics/orders") == 403
        console.button("Create a topic").click()
        console.page.get_by_label("Name", exact=True).fill("by-ada")
        console.button("Create", within="dialog").click()
        console.page.locator("h1", has_text="by-ada").wait_for()
        console.page.get_by_role("button", name="Log out").click()
        console.page.get_by_label("Token").wait_for()


def test_read_only_hides_every_change(console: Watched):
    answer(
        console,
        "/api/v1/session",
        {"login": "none", "is_logged_in": False, "name": None, "role": "admin", "read_only": True},
    )
    changes = (
        "Create a topic",
        "Add partitions",
        "Empty",
        "Delete",
        "Reset offsets",
        "Put back",
        "Produce again",
        "Create a user",
        "Set a quota",
    )
    for address, whole in (
        ("topics", "[data-row]"),
        ("topics/orders", ".facts"),
        ("groups/a%2Fb%20%C3%BC", "figure"),
        ("brokers", "table"),
        ("access/users", ".tools"),
        ("access/quotas", ".tools"),
    ):
        console.open(address)
        console.page.locator(f"main {whole}").first.wait_for()
        shown = [name for name in changes if console.page.get_by_role("button", name=name, exact=True).count()]
        assert shown == []
    assert console.page.locator("main td button").count() == 0


def test_error_is_shown_and_tried_again(console: Watched):
    console.expected = ["503"]
    answer(
        console, "/v3/clusters/-/brokers", {"error_code": 50003, "message": f"Storage is away. {HOSTILE}"}, status=503
    )
    console.open("brokers")
    console.page.get_by_role("alert").get_by_text(f"Storage is away. {HOSTILE}").wait_for()
    console.page.unroute("**/v3/clusters/-/brokers")
    console.button("Try again").click()
    console.row("log.retention").first.wait_for()
