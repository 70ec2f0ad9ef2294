"""/docs works without the internet: every byte is served from here, and vendored files match their hashes."""

from __future__ import annotations

import hashlib
import re
from pathlib import Path
from typing import TYPE_CHECKING

import admin_api
import pytest

if TYPE_CHECKING:
    from tests.unit.admin_api.conftest import Stack

STATIC = Path(admin_api.__file__).parent / "static"
SWAGGER_UI = STATIC / "vendor" / "swagger-ui"
#: Hashes of VENDORED.md; the files of swagger-ui-dist 5.35.0.
HASHES = {
    "swagger-ui-bundle.js": "e6a898692f2d768e807c3ba4626068a69a2c5dd960dd6c76f3e4d3a3de180af2",
    "swagger-ui-bundle.js.LICENSE.txt": "37eb6e7e59aed57b2c1acf076574b818ea07b74265717e0bd67b59e0baf9abbb",
    "swagger-ui.css": "5ed08757e53da3e026d6cbecc61fe5d43585c9560b302d534ad56692519a273d",
    "LICENSE": "cfc7749b96f63bd31c3c42b5c471bf756814053e847c10f3eb003417bc523d30",
    "NOTICE": "0d20d1adef18aee3f40dd258172155521ce702ac445cb5f7b7d60ed32dad2fb2",
}


def test_vendored_files_are_the_ones_listed() -> None:
    assert {path.name for path in SWAGGER_UI.iterdir()} == {*HASHES, "VENDORED.md"}
    listed = (SWAGGER_UI / "VENDORED.md").read_text()
    for name, expected in HASHES.items():
        assert hashlib.sha256((SWAGGER_UI / name).read_bytes()).hexdigest() == expected
        assert f"{expected}  {name}\n" in listed


def test_the_page_and_all_it_loads_come_from_here(stack: Stack) -> None:
    page = stack.http.get("/docs")
    assert page.status_code == 200
    assert page.headers["content-type"] == "text/html; charset=utf-8"
    wanted = re.findall(r'(?:src|href)="([^"]+)"', page.text)
    assert wanted == ["data:,", "docs/swagger-ui.css", "docs/swagger-ui-bundle.js", "docs/docs.js"]
    types = {}
    for path in wanted[1:]:
        answer = stack.http.get(f"/{path}")
        assert answer.status_code == 200
        types[path] = answer.headers["content-type"]
    assert types == {
        "docs/swagger-ui.css": "text/css; charset=utf-8",
        "docs/swagger-ui-bundle.js": "text/javascript; charset=utf-8",
        "docs/docs.js": "text/javascript; charset=utf-8",
    }
    own = page.text + stack.http.get("/docs/docs.js").text
    assert "http://" not in own
    assert "https://" not in own


def test_a_slash_after_docs_leads_to_docs(stack: Stack) -> None:
    answer = stack.http.get("/docs/", follow_redirects=False)
    assert (answer.status_code, answer.headers["location"]) == (307, "../docs")
    followed = stack.http.get("/docs/", follow_redirects=True)
    assert (followed.url.path, followed.text) == ("/docs", stack.http.get("/docs").text)


def test_the_policy_lets_in_no_inline_script_and_no_other_host(stack: Stack) -> None:
    page = stack.http.get("/docs")
    policy = dict(part.strip().partition(" ")[::2] for part in page.headers["content-security-policy"].split(";"))
    assert policy == {
        "default-src": "'none'",
        "script-src": "'self'",
        "style-src": "'self' 'unsafe-inline'",
        "img-src": "'self' data:",
        "connect-src": "'self'",
        "base-uri": "'none'",
        "form-action": "'none'",
        "frame-ancestors": "'none'",
    }
    assert re.findall(r"<script(?! src=)", page.text) == []
    assert re.findall(r"\bon\w+=", page.text) == []


@pytest.mark.parametrize("asset", ["docs.html", "VENDORED.md", "..%2fapp.py", "%2e%2e%2fapp.py", "swagger-ui.css.map"])
def test_nothing_else_is_served(stack: Stack, asset: str) -> None:
    assert stack.http.get(f"/docs/{asset}").status_code == 404


def test_assets_are_not_sent_again_when_unchanged(stack: Stack) -> None:
    first = stack.http.get("/docs/swagger-ui.css")
    assert first.headers["etag"]
    assert first.headers["cache-control"] == "no-cache"
