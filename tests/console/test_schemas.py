"""Schemas: subjects, versions and their differences; records that are shown and produced again by their schemas."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from console.console_pages import HOSTILE, Served, Watched
from console.looks import check
from console.two_servers import another_admin, free_port
from support.schema_server import SchemaServer

pytestmark = pytest.mark.blocks_event_loop("the browser's driver waits in this thread")

ORDER = '{"type":"record","name":"Order","fields":[{"name":"id","type":"long"}]}'
LONGER = ORDER.removesuffix("]}") + ',{"name":"text","type":"string","default":""}]}'
PROTO = 'syntax = "proto3"; import "common/id.proto"; message Order { Id id = 1; }'


@pytest.fixture(scope="module")
def registry() -> Iterator[SchemaServer]:
    with SchemaServer() as server:
        server.add("framed-value", ORDER)
        server.add("framed-value", LONGER)
        server.add("common/id.proto", 'syntax = "proto3"; message Id { int64 n = 1; }', "PROTOBUF")
        references = [{"name": "common/id.proto", "subject": "common/id.proto", "version": 1}]
        server.add(HOSTILE, PROTO, "PROTOBUF", references)
        yield server


@pytest.fixture
def page(console: Watched, served: Served, registry: SchemaServer) -> Iterator[Watched]:
    port = free_port()
    with another_admin(served.up, port, MILLRACE_SCHEMA_REGISTRY=registry.url):
        console.address = f"http://127.0.0.1:{port}/console/"
        yield console


def test_versions_of_a_subject_are_compared(page: Watched) -> None:
    page.open("")
    page.page.keyboard.press("g")
    page.page.keyboard.press("r")
    page.row("framed-value").wait_for()
    assert page.row("").all_inner_texts() == [f"{HOSTILE}\t", "common/id.proto\t", "framed-value\tframed"]
    check(page, "schemas")
    page.row("framed-value").get_by_role("link", name="framed-value").click()
    text = page.page.get_by_label("Schema", exact=True)
    text.get_by_text('"name": "text"').wait_for()
    page.page.get_by_text("AVRO · schema id 2").wait_for()
    assert text.locator("ins, del").count() == 0
    page.page.get_by_label("Compared with").select_option("1")
    text.locator("ins").first.wait_for()
    assert "".join(text.locator("ins").all_inner_texts()).split() == [
        *("+", "},", "+", "{", "+", '"name":', '"text",', "+", '"type":', '"string",', "+", '"default":', '""'),
    ]
    check(page, "schema")
    page.page.get_by_label("Version").select_option("1")
    page.page.get_by_text("AVRO · schema id 1").wait_for()
    assert page.page.url.endswith("?other=1&version=1")
    page.open("schemas")
    page.row(HOSTILE).get_by_role("link").click()
    page.page.get_by_text(PROTO).wait_for()
    page.page.get_by_role("link", name="common/id.proto").click()
    page.page.get_by_text("message Id { int64 n = 1; }").wait_for()
    assert page.page.locator("main img").count() == 0


def test_records_are_decoded_and_produced_again_by_their_schemas(page: Watched) -> None:
    page.served.produce("framed", [{"key": "framed", "value": b"\0\0\0\0\2\x0e\x06abc"}])
    page.open("topics/framed/records?key=framed")
    page.row("framed").get_by_text('{"id":7,"text":"abc"}').click()
    page.page.get_by_text("AVRO framed-value, version 2").wait_for()
    assert page.page.get_by_text("Not decoded").count() == 0  # the key is plain text
    page.page.get_by_label("decode by schema").uncheck()
    page.button("Show").click()
    page.row("framed").get_by_text("00 00 00 00 02 0e 06 61 62 63").click()
    page.page.get_by_text("schema id 2").wait_for()
    page.page.get_by_label("decode by schema").check()
    page.button("Show").click()
    page.row("framed").get_by_text('{"id":7,"text":"abc"}').click()
    page.button("Produce again").click()
    page.page.get_by_label("Value", exact=True).fill('{"id": 9223372036854775807, "text": ""}')
    page.button("Produce").click()
    page.page.get_by_role("link", name="partition 0, offset").click()
    page.page.locator(".record").get_by_text("9223372036854775807").wait_for()
    (record,) = page.served.get("/api/v1/topics/framed/records?limit=1&value_format=hex")["data"]
    assert record["value"] == "0000000002" + "feffffffffffffffff01" + "00"


def test_a_registry_that_is_away_is_said_once_for_a_record(page: Watched, registry: SchemaServer) -> None:
    registry.status = 503
    try:
        page.expected = ["503"]
        page.open("schemas")
        page.page.get_by_role("alert").wait_for()
        page.served.produce("framed", [{"key": "unknown", "value": b"\0\0\0\0\x63abc"}])
        page.open("topics/framed/records?key=unknown")
        page.row("unknown").click()
        page.page.get_by_text("Not decoded. Schema 99:").wait_for()
    finally:
        registry.status = 0


def test_without_a_registry_nothing_speaks_of_schemas(console: Watched) -> None:
    console.open("topics/odd/records")
    console.row("binary").first.wait_for()
    assert console.page.get_by_label("decode by schema").count() == 0
    assert console.page.locator("nav").get_by_text("Schemas").count() == 0
