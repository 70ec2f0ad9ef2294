"""Access: users, ACLs and quotas from start to end; what rights hide; passwords that stay nowhere."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from console.console_pages import HOSTILE, Served, Watched
from console.looks import check
from console.two_servers import another_admin, free_port

pytestmark = pytest.mark.blocks_event_loop("the browser's driver waits in this thread")

PASSWORD = "only-in-this-test-0123456789"
ADA, ANN = "ada-0123456789abcdef", "ann-0123456789abcdef"
ODD = "a/b ü"


@pytest.fixture(scope="module")
def secured(served: Served, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The address of the console of an admin-api that obeys ACLs. Ada is a super user, ann is not."""
    tokens, port = tmp_path_factory.mktemp("tokens") / "tokens", free_port()
    tokens.write_text(f"ada admin {ADA}\nann admin {ANN}\n")
    settings = {
        "MILLRACE_ADMIN_AUTH": "token",
        "MILLRACE_ADMIN_TOKENS_FILE": str(tokens),
        "MILLRACE_AUTHORIZER": "acl",
        "MILLRACE_SUPER_USERS": "User:ada",
    }
    with another_admin(served.up, port, **settings):
        yield f"http://127.0.0.1:{port}/console/"


@contextmanager
def entered(opened: Any, address: str, token: str) -> Iterator[Watched]:
    """Open a page of this address, for a user who has logged in."""
    with opened() as page:
        page.address = address
        page.page.goto(address)
        page.page.get_by_label("Token").fill(token)
        page.button("Log in").click()
        page.page.get_by_role("button", name="Log out").wait_for()
        yield page


def test_user_is_made_changed_and_deleted_and_the_password_stays_nowhere(opened: Any, secured: str) -> None:
    with entered(opened, secured, ADA) as console:
        console.open("access")
        console.page.locator(".facts", has_text="You are User:ada · role admin · no ACL bounds you").wait_for()
        assert console.page.locator(".notice").count() == 0
        for name in (HOSTILE, ODD):
            console.button("Create a user").click()
            console.page.get_by_label("Name").fill(name)
            console.page.get_by_label("Password").fill(PASSWORD)
            console.button("Set the password", within="dialog").click()
            console.row(name).get_by_text("SCRAM-SHA-256 (8,192 iterations), SCRAM-SHA-512").wait_for()
        console.row(ODD).get_by_role("button", name="Password").click()
        console.page.get_by_label("Password", exact=True).fill(PASSWORD)
        console.page.get_by_label("For logins by").select_option("SCRAM-SHA-512")
        console.button("Set the password", within="dialog").click()
        console.page.get_by_text(f"The password of {ODD} is set.").last.wait_for()
        console.page.get_by_text("Requests of this screen, as curl").click()
        console.page.get_by_text("""-d '{"password":"PASSWORD","mechanism":"SCRAM-SHA-512"}'""").wait_for()
        shown = console.page.evaluate(
            "document.documentElement.outerHTML + location.href + JSON.stringify({...localStorage, ...sessionStorage})"
            " + [...document.querySelectorAll('input')].map((each) => each.value)"
        )
        assert PASSWORD not in shown
        assert console.page.locator("main img").count() == 0
        check(console, "users")
        for name in (HOSTILE, ODD):
            console.row(name).get_by_role("button", name="Delete").click()
            console.page.get_by_label(f"Type {name}").fill(name)
            console.button("Delete the user", within="dialog").click()
            console.row(name).wait_for(state="detached")


def test_refused_password_is_typed_again(opened: Any, secured: str) -> None:
    with entered(opened, secured, ADA) as console:
        console.expected = ["400"]
        console.open("access/users")
        console.button("Create a user").click()
        console.page.get_by_label("Name").fill("x" * 2000)
        console.page.get_by_label("Password").fill(PASSWORD)
        console.button("Set the password", within="dialog").click()
        console.page.locator("dialog .failure", has_text=re.compile(r"X-Request-Id [0-9a-f]{32}")).wait_for()
        assert console.page.get_by_label("Password").input_value() == ""
        assert console.button("Set the password", within="dialog").is_disabled()


def test_acls_are_made_filtered_seen_and_deleted(opened: Any, secured: str) -> None:
    with entered(opened, secured, ADA) as console:
        console.open("access/acls")
        console.page.get_by_text("There is no ACL yet.").wait_for()
        for name in (HOSTILE, ODD):
            console.button("Create an ACL").click()
            dialog = console.page.get_by_role("dialog")
            dialog.get_by_label("Principal").fill(f"User:{name}")
            dialog.get_by_label("Permission").select_option("DENY")
            dialog.get_by_label("Its name").fill("ord")
            dialog.get_by_label("Pattern").select_option("PREFIXED")
            console.button("Create", within="dialog").click()
            console.row(name).wait_for()
        assert console.row(ODD).inner_text().split() == [
            *f"User:{ODD}".split(),
            *("DENY", "READ", "TOPIC", "ord", "prefix", "*", "Delete"),
        ]
        assert console.page.locator("main img").count() == 0
        check(console, "acls")
        console.page.get_by_label("Its name").fill("orders")
        console.page.get_by_label("Pattern").select_option("MATCH")
        console.page.get_by_label("Principal").fill(f"User:{HOSTILE}")
        console.button("Show").click()
        console.row(ODD).wait_for(state="detached")
        console.row(HOSTILE).wait_for()
        assert console.row("").count() == 1
        assert "pattern_type=MATCH" in console.page.url
        console.button("Delete these").click()
        console.page.locator("dialog tbody tr", has_text=HOSTILE).wait_for()
        check(console, "delete-acls")
        console.button("Delete them", within="dialog").click()
        console.page.get_by_text("1 ACL deleted.").wait_for()
        console.open("access/acls")
        console.row(ODD).get_by_role("button", name="Delete").click()
        console.button("Delete them", within="dialog").click()
        console.page.get_by_text("There is no ACL yet.").wait_for()


def test_quotas_are_set_changed_and_removed(opened: Any, secured: str) -> None:
    with entered(opened, secured, ADA) as console:
        console.open("access/quotas")
        console.button("Set a quota").click()
        console.page.get_by_label("Of", exact=True).select_option("user,client-id")
        console.page.get_by_label("Name of the user").fill(HOSTILE)
        console.page.get_by_label("producer byte rate").fill("1048576")
        console.page.get_by_label("request percentage").fill("12.5")
        console.button("Set", within="dialog").click()
        row = console.row(HOSTILE)
        row.wait_for()
        assert row.inner_text().startswith(f'client-id default, user "{HOSTILE}"')
        assert row.inner_text().split()[-7:] == ["1,048,576", "–", "12.5", "–", "–", "Change", "Remove"]
        check(console, "quotas")
        row.get_by_role("button", name="Change").click()
        console.page.get_by_label("request percentage").fill("")
        console.page.get_by_label("consumer byte rate").fill("2048")
        console.button("Set", within="dialog").click()
        row.get_by_text("2,048").wait_for()
        assert row.inner_text().split()[-7:-2] == ["1,048,576", "2,048", "–", "–", "–"]
        row.get_by_role("button", name="Remove").click()
        console.button("Remove", within="dialog").click()
        console.page.get_by_text("There is no quota").wait_for()


def test_what_rights_forbid_is_hidden_and_refused(opened: Any, secured: str, served: Served) -> None:
    with entered(opened, secured, ADA) as console:
        console.open("access/acls")
        for operation, kind, name in (("READ", "TOPIC", "orders"), ("DESCRIBE", "GROUP", "billing")):
            console.button("Create an ACL").click()
            dialog = console.page.get_by_role("dialog")
            dialog.get_by_label("Principal").fill("User:ann")
            dialog.get_by_label("Operation").select_option(operation)
            dialog.get_by_label("Resource").select_option(kind)
            dialog.get_by_label("Its name").fill(name)
            console.button("Create", within="dialog").click()
            console.row(name).wait_for()
    with entered(opened, secured, ANN) as console:
        screens = console.page.locator("nav li").all_inner_texts()
        assert screens == ["Overview", "Topics", "Consumer groups", "Transactions", "Access"]
        console.page.locator("main section", has_text="billing").wait_for()
        assert console.page.locator("main .health").count() == 0
        console.open("topics/orders")
        console.page.locator("main .tabs").wait_for()
        assert console.page.locator("main .tabs a").all_inner_texts() == [
            "Records",
            "Partitions",
            "Groups",
            "Transactions",
        ]
        assert console.page.locator("main .actions button").count() == 0
        console.row("order-").first.click()
        assert console.button("Produce again").count() == 0
        console.open("groups/billing")
        console.page.locator("main figure").first.wait_for()
        assert console.page.locator("main .actions button").all_inner_texts() == ["Save offsets"]
        console.open("access")
        console.page.locator(
            ".facts", has_text="You are User:ann · role admin · rights to the cluster: none"
        ).wait_for()
        assert console.page.locator("main .tabs").count() == 0
        console.expected = ["403"]
        options = "{method: 'DELETE', headers: {'x-requested-by': 'console'}}"
        change = f"(path) => fetch(path, {options}).then((answer) => answer.status)"
        for path in ("v3/clusters/-/topics/orders", "api/v1/users/ada", "api/v1/quotas?user=ada"):
            assert console.page.evaluate(change, f"../{path}") == 403


def test_access_that_is_off_says_how_to_turn_it_on(console: Watched) -> None:
    console.open("access")
    console.page.get_by_text(
        re.compile(r"Access control is off.*MILLRACE_AUTHORIZER=acl.*MILLRACE_SUPER_USERS")
    ).wait_for()
    assert console.page.locator("main .tabs a").all_inner_texts() == ["Users", "Quotas"]
