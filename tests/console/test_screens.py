"""The task of each screen of the console from start to end, in Chromium against a real broker."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from console.console_pages import HOSTILE, LARGEST, Watched
from support.late import confluent

pytestmark = pytest.mark.blocks_event_loop("the browser's driver waits in this thread")


def test_overview_shows_health_and_groups_that_are_behind(console: Watched):
    console.open("")
    console.page.get_by_text("✓ Healthy").wait_for()
    behind = console.page.locator("section", has=console.page.get_by_role("heading", name="Groups that are behind"))
    # Whether the lag grows follows once there are two samples.
    assert behind.locator("li", has_text="billing").inner_text().split()[:3] == ["billing", "40", "records"]


def test_topics_are_sorted_and_searched_in_the_url(console: Watched):
    console.open("topics")
    console.row("odd").wait_for()
    console.page.get_by_role("button", name="Records").click()
    assert console.row("").locator("a").first.inner_text() == "orders"
    console.page.keyboard.press("/")
    console.page.keyboard.type("OD")
    assert [each.split()[0] for each in console.row("").all_inner_texts()] == ["odd"]
    assert console.page.url.endswith("#/topics?sort=-records&q=OD")
    console.page.reload()
    console.row("odd").wait_for()
    assert console.row("").count() == 1


def test_topic_is_created_enlarged_configured_and_deleted(console: Watched):
    console.open("topics")
    console.button("Create a topic").click()
    console.page.get_by_label("Name", exact=True).fill("made")
    console.page.get_by_label("Partitions", exact=True).fill("2")
    console.button("Create", within="dialog").click()
    console.page.get_by_text("2 partitions").wait_for()
    console.button("Add partitions").click()
    console.page.get_by_label("Partitions in all").fill("4")
    console.button("Add", within="dialog").click()
    console.page.locator(".facts", has_text="4 partitions").wait_for()
    console.page.get_by_role("link", name="Configs", exact=True).click()
    console.button("retention.ms").click()
    console.page.get_by_label("Value").fill("86400000")
    console.button("Check", within="dialog").click()
    console.page.get_by_text("The server accepts it. retention.ms: 604800000 → 86400000").wait_for()
    console.button("Apply", within="dialog").click()
    console.row("retention.ms").get_by_text("this topic").first.wait_for()
    console.button("Delete").click()
    delete = console.button("Delete the topic", within="dialog")
    console.page.get_by_label("Type made").fill("mad")
    assert delete.is_disabled()
    console.page.get_by_label("Type made").fill("made")
    delete.click()
    console.page.get_by_text("Deleted: the topic made.").wait_for()
    console.row("orders").wait_for()
    assert console.row("made").count() == 0


def test_refused_config_shows_the_message_and_the_request_id(console: Watched):
    console.expected = ["400"]
    console.open("topics/empty/configs")
    console.button("retention.ms").click()
    console.page.get_by_label("Value").fill(HOSTILE)
    console.button("Check", within="dialog").click()
    console.page.locator("dialog .failure", has_text=re.compile(r"X-Request-Id [0-9a-f]{32}")).wait_for()


def test_record_is_found_by_its_key_and_keeps_its_digits(console: Watched):
    console.open("topics/orders")
    console.page.get_by_label("Key has").fill("order-123")
    console.button("Show").click()
    console.page.get_by_text(re.compile(r"1 record shown, 240 read \([0-9.]+ kB\): these are all")).wait_for()
    assert "key=order-123" in console.page.url
    console.row("order-123").click()
    tree = console.page.get_by_text(f"id: {LARGEST - 123}")
    tree.wait_for()
    console.button("Text").click()
    assert console.page.locator("pre").all_inner_texts()[0] == "order-123"


def test_conditions_stop_at_what_they_admit(console: Watched):
    console.open("topics/orders/records?where=value.number+>%3D+237&where=headers.source+%3D+web&mode=oldest")
    console.page.get_by_text("3 records shown").wait_for()
    assert sorted(re.findall(r"order-\d+", " ".join(console.row("").all_inner_texts()))) == [
        "order-237",
        "order-238",
        "order-239",
    ]


def test_records_go_on_from_an_offset(console: Watched):
    console.open("topics/orders/records?mode=from_offset&partition=1&offset=20")
    console.page.get_by_text("50 records shown").wait_for()
    assert "1 : 20" in console.row("").first.inner_text()
    console.button("Next 50").click()
    console.page.get_by_text("60 records shown").wait_for()
    offsets = re.findall(r"1 : (\d+)", " ".join(console.row("").all_inner_texts()))
    assert [int(each) for each in offsets] == list(range(20, 80))
    console.page.get_by_label("Times").select_option("UTC")
    console.row(" UTC").first.wait_for()
    times = console.page.locator("main .records .line > span:first-child").all_inner_texts()
    assert [each[-4:] for each in times] == [" UTC"] * 60


def test_odd_contents_are_shown_as_what_they_are(console: Watched):
    console.open("topics/odd/records?mode=oldest")
    console.page.get_by_text("6 records shown").wait_for()
    rows = console.row("")
    assert rows.nth(0).inner_text().count(HOSTILE) == 2
    assert "null (tombstone)" in rows.nth(1).inner_text()
    rows.nth(2).click()
    console.page.locator("pre.hex", has_text="000000f0  f0 f1 f2").wait_for()
    rows.nth(3).click()
    console.page.get_by_text("int64 77").wait_for()
    console.page.get_by_text("schema id 42").wait_for()
    rows.nth(4).click()
    console.button("Show all 200 headers").click()
    assert console.page.locator(".record .headers > div").count() == 200
    rows.nth(5).click()
    console.page.get_by_text("last: 9223372036854775807").wait_for()
    assert console.page.locator("main img").count() == 0


def test_records_of_committed_offsets_are_decoded(console: Watched):
    console.open("topics/__consumer_offsets/records?key=billing")
    console.row("billing").first.click()
    console.page.locator(".record .box", has_text="billing").first.wait_for()
    assert console.row("billing").first.inner_text().count("{") == 2


def test_record_is_produced_found_and_produced_again(console: Watched):
    console.open("topics/empty/produce")
    console.page.get_by_label("Key", exact=True).fill("k")
    console.page.get_by_label("Value is").select_option("JSON")
    console.page.get_by_label("Value", exact=True).fill('{"id": 9223372036854775807}')
    console.button("Add a header").click()
    console.page.get_by_label("Header 1").fill("source")
    console.page.get_by_label("Its value").fill("console")
    console.button("Produce").click()
    console.page.get_by_role("link", name="partition 0, offset 0").click()
    console.page.get_by_text("id: 9223372036854775807").wait_for()
    console.button("Produce again").click()
    assert console.page.get_by_label("Value", exact=True).input_value() == '{"id":9223372036854775807}'
    assert console.page.get_by_label("Its value").input_value() == "console"


def test_group_is_rewound_after_its_preview_alone(console: Watched):
    console.open("groups")
    console.page.get_by_role("link", name="billing").click()
    console.page.locator(".facts", has_text="lag 40").wait_for()
    console.button("Reset offsets").click()
    console.page.get_by_label("Go to").select_option("shift-by")
    console.page.get_by_label("Records", exact=True).fill("-30")
    assert console.button("Move the offsets", within="dialog").count() == 0
    console.button("Preview", within="dialog").click()
    preview = console.page.locator("dialog tbody tr")
    preview.first.wait_for()
    assert [each.split() for each in preview.all_inner_texts()] == [
        ["orders", ":", "0", "80", "50", "-30"],
        ["orders", ":", "1", "80", "50", "-30"],
        ["orders", ":", "2", "40", "10", "-30"],
    ]
    assert console.served.committed("billing", "orders", 3) == [80, 80, 40]
    console.page.get_by_label("Records", exact=True).fill("-20")  # what was seen is not what would be done
    assert console.button("Move the offsets", within="dialog").count() == 0
    console.button("Preview", within="dialog").click()
    console.button("Move the offsets", within="dialog").click()
    console.page.locator(".facts", has_text="lag 100").wait_for()
    assert console.served.committed("billing", "orders", 3) == [60, 60, 20]


def test_offsets_are_saved_and_put_back_and_the_group_deleted(console: Watched):
    console.open("groups/a%2Fb%20%C3%BC")
    console.page.locator("h1", has_text="a/b ü").wait_for()
    with console.page.expect_download() as download:
        console.button("Save offsets").click()
    saved = download.value.path()
    rows = json.loads(saved.read_text())["data"]
    assert [(each["partition_id"], each["offset"]) for each in rows] == [(0, 10), (1, 10), (2, 10)]
    console.served.commit("a/b ü", "orders", {0: 70})
    console.button("Put back").click()
    console.page.get_by_label("File of saved offsets").set_input_files(saved)
    console.button("Preview", within="dialog").click()
    console.page.get_by_text("1 partition of 3 would move").wait_for()
    console.button("Move the offsets", within="dialog").click()
    console.page.get_by_text("3 offsets moved.").wait_for()
    assert console.served.committed("a/b ü", "orders", 3) == [10, 10, 10]
    console.button("Delete").click()
    console.page.get_by_label("Type a/b ü").fill("a/b ü")
    console.button("Delete the group", within="dialog").click()
    console.page.get_by_text("Deleted: the group a/b ü.").wait_for()


def test_open_transaction_is_aborted_and_its_producer_fenced(console: Watched):
    producer = console.served.transaction("empty", "ship-1")
    console.open("transactions")
    console.row("ship-1").get_by_text("Ongoing").wait_for()
    console.button("Abort").click()
    console.button("Abort it", within="dialog").click()
    console.page.get_by_text("The transaction of ship-1 is aborted.").wait_for()
    console.page.get_by_text("No transaction is open.").wait_for()
    with pytest.raises(confluent.KafkaException, match=r"fenced|FENCED|epoch|INVALID"):
        producer.commit_transaction(20)


def test_open_transaction_is_shown_in_its_topic(console: Watched):
    producer = console.served.transaction("odd", "ship-2")
    console.open("topics/odd/transactions")
    assert console.row("ship-2").inner_text().split()[:3] == ["0", "6", "open"]
    assert console.row("ship-2").get_by_role("button", name="Abort").count() == 0, "its coordinator will end it"
    producer.abort_transaction(20)
    console.page.get_by_text("No transaction is open in this topic.").wait_for()


def test_storage_lists_segments_the_scrub_and_the_quarantine(console: Watched):
    console.open("storage")
    console.row("orders").first.wait_for()
    assert console.row("orders").count() == 3
    console.page.get_by_text(
        re.compile(r"Last scrub: \d{4}-.* · next: \d{4}-.* · no damage since the start")
    ).wait_for()
    segments = console.served.get("/api/v1/storage/segments?topic=odd")["data"]
    folder = Path(segments[0]["folder"]) / "quarantine"
    folder.mkdir()
    (folder / "00000000000000000000.log-0-0-1").write_bytes(b"damaged")
    console.row("quarantine").wait_for()
    assert console.row("quarantine").inner_text().split()[:5] == ["odd", ":", "0", "7", "B"]


def test_both_admin_apis_show_one_chart(console: Watched):
    charts = [
        console.served.get("/api/v1/metrics/range?metric=bytes", server)["points"][:1]
        for server in console.served.servers
    ]
    assert charts[0] == charts[1] != []


def test_request_is_shown_as_curl(console: Watched):
    console.open("topics/orders/partitions")
    console.row("80").first.wait_for()
    console.page.get_by_text("Requests of this screen, as curl").click()
    origin = console.served.url.removesuffix("/console/")
    url = f"{origin}/v3/clusters/-/topics/orders?include_authorized_operations=true"
    console.page.get_by_text(re.compile(rf"^curl -sS '?{re.escape(url)}'?$")).wait_for()
