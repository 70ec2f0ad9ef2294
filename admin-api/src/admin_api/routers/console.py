"""The console: files of a page that uses the REST API like any other client.

    /            to the console
    /console/    the page, and below it everything that it is made of

Every location is relative, so that the console works under the path of a proxy. A browser asks for each file again and
is answered 304 while the file is the same (ETag).
"""

from __future__ import annotations

from fastapi import FastAPI, Request
from starlette.responses import RedirectResponse, Response

from admin_api import errors
from admin_api.console_files import INDEX, ConsoleFiles

#: No inline script or style, nothing from elsewhere, no frame around it.
POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; font-src 'self'; connect-src 'self';"
    " base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
_COMMON = {
    "content-security-policy": POLICY,
    "cache-control": "no-cache",
    "vary": "accept-encoding",
    "cross-origin-opener-policy": "same-origin",
}


def add_operations(app: FastAPI) -> None:
    for path, endpoint in (
        ("/", root),
        ("/console", folder),
        ("/console/", index),
        ("/console/{path:path}", file),
    ):
        app.add_api_route(path, endpoint, methods=["GET"], include_in_schema=False)


async def root() -> Response:
    return RedirectResponse("console/")


async def folder() -> Response:
    return RedirectResponse("console/")


async def index(request: Request) -> Response:
    return await file(request, INDEX)


async def file(request: Request, path: str) -> Response:
    files: ConsoleFiles = request.app.state.console_files
    found = await files.find(path)
    if found is None:
        raise errors.no_such_path()
    is_gzipped = bool(found.gzipped) and _admits_gzip(request)
    headers = {**_COMMON, "etag": found.etag(gzipped=is_gzipped)}
    if headers["etag"] in _offered(request):
        return Response(status_code=304, headers=headers)
    if is_gzipped:
        headers["content-encoding"] = "gzip"
    return Response(found.gzipped if is_gzipped else found.plain, media_type=found.media_type, headers=headers)


def _offered(request: Request) -> set[str]:
    """Return the tags of the If-None-Match header. A proxy that compresses makes weak ones of them."""
    return {each.strip().removeprefix("W/") for each in request.headers.get("if-none-match", "").split(",")}


def _admits_gzip(request: Request) -> bool:
    """Return whether the client names gzip without the weight 0 (RFC 9110, 12.5.3)."""
    for each in request.headers.get("accept-encoding", "").lower().split(","):
        coding, _, weight = each.replace(" ", "").partition(";")
        if coding == "gzip":
            return weight not in ("q=0", "q=0.0", "q=0.00", "q=0.000")
    return False
