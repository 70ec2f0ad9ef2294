"""The OpenAPI description as text: `python -m admin_api.openapi > admin-api/openapi.json`; a test guards the file."""

from __future__ import annotations

import asyncio
import json
import sys

from admin_api.app import create_app
from admin_api.kafka_clients import KafkaClients
from admin_api.settings import AdminSettings
from admin_api.storage import Storage


async def rendered() -> str:
    """Return the OpenAPI description as JSON text."""
    storage = Storage("unix:/nowhere", timeout_s=1)  # a channel connects on first use, and nothing is asked here
    try:
        app = create_app(AdminSettings(), storage, KafkaClients([], timeout_s=1))
        description = await asyncio.to_thread(app.openapi)
        return json.dumps(description, indent=1, ensure_ascii=False) + "\n"
    finally:
        await storage.close()


if __name__ == "__main__":
    sys.stdout.write(asyncio.run(rendered()))
