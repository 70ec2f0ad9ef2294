"""The service's endpoints without a cluster id: health, metrics and the page of the API, made of local files only.

    /healthz        the event loop turns
    /readyz         the same, and storage answers
    /metrics        Prometheus text: this process, HTTP, and kafka_exporter's set
    /openapi.json   the description of every endpoint
    /docs           the description as a page

Endpoints of a cluster are in the modules of their resources.
"""

from __future__ import annotations

import asyncio
from pathlib import Path

from broker_contract.acls import Operation
from fastapi import Depends, FastAPI, Request
from prometheus_client.exposition import CONTENT_TYPE_PLAIN_0_0_4, generate_latest
from service_chassis.http.ring import REQUEST_KEY
from starlette.responses import FileResponse, JSONResponse, RedirectResponse, Response

from admin_api import errors
from admin_api.exporter import Exporter
from admin_api.needs import on_cluster
from admin_api.storage import Storage

#: A probe must not wait as long as a user would: Kubernetes' own default is 1 s.
READY_TIMEOUT_S = 0.9

_STATIC = Path(__file__).parent.parent / "static"
_SWAGGER_UI = _STATIC / "vendor" / "swagger-ui"
#: Everything /docs is made of, by the last part of its URL.
_ASSETS = {
    "docs.js": (_STATIC / "docs.js", "text/javascript; charset=utf-8"),
    "swagger-ui-bundle.js": (_SWAGGER_UI / "swagger-ui-bundle.js", "text/javascript; charset=utf-8"),
    "swagger-ui.css": (_SWAGGER_UI / "swagger-ui.css", "text/css; charset=utf-8"),
}
#: No inline script, nothing from elsewhere; swagger-ui sets style attributes and draws with data: images.
_DOCS_POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self' 'unsafe-inline'; img-src 'self' data:; connect-src 'self';"
    " base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)


def add_operations(app: FastAPI) -> None:
    # It names all topics and groups.
    of_cluster = [Depends(on_cluster(Operation.DESCRIBE))]
    app.add_api_route("/metrics", metrics, methods=["GET"], include_in_schema=False, dependencies=of_cluster)
    for path, endpoint in (
        ("/healthz", healthz),
        ("/readyz", readyz),
        ("/openapi.json", openapi),
        ("/docs", docs),
        ("/docs/", docs_folder),
        ("/docs/{asset}", docs_asset),
    ):
        app.add_api_route(path, endpoint, methods=["GET"], include_in_schema=False)


async def healthz() -> Response:
    return JSONResponse({"live": True})


async def readyz(request: Request) -> Response:
    storage: Storage = request.app.state.storage
    calls = storage.calls(request.scope[REQUEST_KEY].correlation_id, timeout_s=READY_TIMEOUT_S)
    try:
        await calls.cluster()
    except errors.ApiError as error:
        return errors.rendered(errors.ApiError(503, error.error_code, error.message))
    return JSONResponse({"ready": True})


async def metrics(request: Request) -> Response:
    exporter: Exporter = request.app.state.exporter
    exported = await exporter.text(request.scope[REQUEST_KEY].correlation_id)
    own = generate_latest(request.app.state.registry)
    return Response(own + exported, media_type=CONTENT_TYPE_PLAIN_0_0_4)


async def openapi(request: Request) -> Response:
    app: FastAPI = request.app
    # The first call makes the description of every endpoint, which takes a tenth of a second.
    return JSONResponse(await asyncio.to_thread(app.openapi))


async def docs() -> Response:
    headers = {"content-security-policy": _DOCS_POLICY, "cache-control": "no-cache"}
    return FileResponse(_STATIC / "docs.html", media_type="text/html; charset=utf-8", headers=headers)


async def docs_folder() -> Response:
    """Redirect to /docs. The location is relative, for proxies that serve this API under a prefix."""
    return RedirectResponse("../docs")


async def docs_asset(asset: str) -> Response:
    if asset not in _ASSETS:
        raise errors.no_such_path()
    path, media_type = _ASSETS[asset]
    return FileResponse(path, media_type=media_type, headers={"cache-control": "no-cache"})
