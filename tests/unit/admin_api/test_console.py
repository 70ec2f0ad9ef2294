"""The files of the console: what is served, in which form, and under which policy."""

from __future__ import annotations

import gzip
import os
from pathlib import Path
from typing import TYPE_CHECKING

import httpx
import pytest
from admin_api.console_files import FILE_BYTES_MAX, ConsoleFiles
from admin_api.errors import no_such_path, rendered
from admin_api.routers import console
from fastapi import FastAPI
from service_chassis.http.errors import add_error_handlers

if TYPE_CHECKING:
    from tests.unit.admin_api.conftest import Stack

SCRIPT = b"export const answer = 42;\n" * 100


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    folder = tmp_path / "console"
    (folder / "vendor").mkdir(parents=True)
    (folder / "index.html").write_text("<!doctype html>")
    (folder / "vendor" / "chart.js").write_bytes(SCRIPT)
    return folder


async def get(folder: Path, path: str, **headers: str) -> httpx.Response:
    """Request a path of an application that serves this folder."""
    app = FastAPI(openapi_url=None, docs_url=None, redirect_slashes=False)
    app.state.console_files = ConsoleFiles(folder)
    console.add_operations(app)
    add_error_handlers(app, rendered, no_such_path)
    async with httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://localhost") as client:
        named = {name.replace("_", "-"): value for name, value in headers.items()}
        return await client.get(path, headers={"accept-encoding": "identity", **named})


def test_the_first_page_is_the_console(stack: Stack) -> None:
    answer = stack.http.get("/")
    # Relative, or it would lead out of a proxy's path.
    assert (answer.status_code, answer.headers["location"]) == (307, "console/")
    assert stack.http.get("/console").headers["location"] == "console/"
    page = stack.http.get("/", follow_redirects=True)
    assert (page.url.path, page.status_code) == ("/console/", 200)
    assert page.headers["content-type"] == "text/html; charset=utf-8"
    assert page.headers["content-security-policy"] == (
        "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; font-src 'self'; connect-src 'self';"
        " base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
    )
    assert page.headers["x-content-type-options"] == "nosniff"
    # The rest of the API may load nothing.
    for path in ("/v3/clusters", "/api/v1/health", "/console/nothing.js"):
        policy = stack.http.get(path).headers["content-security-policy"]
        assert policy == "default-src 'none'; frame-ancestors 'none'", path


async def test_a_file_in_both_forms(folder: Path) -> None:
    plain = await get(folder, "/console/vendor/chart.js")
    assert (plain.status_code, plain.content) == (200, SCRIPT)
    assert plain.headers["content-type"] == "text/javascript; charset=utf-8"
    assert plain.headers["cache-control"] == "no-cache"
    assert plain.headers["vary"] == "accept-encoding"
    assert "content-encoding" not in plain.headers
    zipped = await get(folder, "/console/vendor/chart.js", accept_encoding="br, gzip;q=0.5")
    assert (zipped.headers["content-encoding"], zipped.content) == ("gzip", SCRIPT)
    assert int(zipped.headers["content-length"]) == len(gzip.compress(SCRIPT, 9)) < len(SCRIPT)
    assert zipped.headers["etag"] != plain.headers["etag"]
    refused = await get(folder, "/console/vendor/chart.js", accept_encoding="gzip;q=0")
    assert "content-encoding" not in refused.headers
    # A page of fifteen bytes is shorter than its gzip form.
    assert "content-encoding" not in (await get(folder, "/console/", accept_encoding="gzip")).headers


async def test_a_file_is_sent_again_only_when_it_changed(folder: Path) -> None:
    etag = (await get(folder, "/console/vendor/chart.js")).headers["etag"]
    for offered in (etag, f'"other", W/{etag}'):
        same = await get(folder, "/console/vendor/chart.js", if_none_match=offered)
        assert (same.status_code, same.content, same.headers["etag"]) == (304, b"", etag)
    other_form = await get(folder, "/console/vendor/chart.js", if_none_match=etag, accept_encoding="gzip")
    assert other_form.status_code == 200


async def test_a_file_is_read_again_after_it_changed(folder: Path) -> None:
    files = ConsoleFiles(folder)
    first = await files.find("index.html")
    assert first is not None
    assert await files.find("index.html") is first
    (folder / "index.html").write_text("<!DOCTYPE html>")
    os.utime(folder / "index.html", ns=(1, 1))
    changed = await files.find("index.html")
    assert changed is not None
    assert (changed.plain, changed.digest == first.digest) == (b"<!DOCTYPE html>", False)
    (folder / "index.html").unlink()
    assert await files.find("index.html") is None


@pytest.mark.parametrize(
    "path",
    ["../secret.js", "vendor/../../secret.js", "..%2fsecret.js", "/etc/hosts.js", ".hidden.js", "vendor", "a.js"],
)
async def test_nothing_outside_of_the_folder(folder: Path, path: str) -> None:
    for name in ("secret.js", "console/.hidden.js"):
        (folder.parent / name).write_bytes(SCRIPT)
    assert await ConsoleFiles(folder).find(path) is None


async def test_only_files_of_known_types_and_bounded_size(folder: Path) -> None:
    (folder / "LICENSE").write_text("text")
    (folder / "notes.md").write_text("text")
    (folder / "large.js").write_bytes(b"/" * (FILE_BYTES_MAX + 1))
    (folder / "folder.js").mkdir()
    files = ConsoleFiles(folder)
    assert [await files.find(name) for name in ("LICENSE", "notes.md", "large.js", "folder.js")] == [None] * 4
