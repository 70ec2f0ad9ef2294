"""Every screen in light and dark, wide and narrow: axe finds nothing serious, and nothing is wider than the window."""

from __future__ import annotations

import pytest
from console.looks import check

pytestmark = pytest.mark.blocks_event_loop("the browser's driver waits in this thread")

#: Address of a screen -> what is there once it is whole.
SCREENS = {
    "": ".health",
    "topics": "[data-row]",
    "topics/orders/records?key=order-23": "[data-row]",
    "topics/tail/records?mode=live": ".progress",
    "topics/orders/produce": "textarea",
    "topics/orders/partitions": "[data-row]",
    "topics/orders/groups": "[data-row]",
    "topics/orders/configs?q=retention": "[data-row]",
    "groups": "[data-row]",
    "groups/billing": "[data-row]",
    "transactions": ".empty",
    "brokers?q=log.retention": "[data-row]",
    "storage?q=orders": "[data-row]",
    "access": ".notice",
}


@pytest.mark.parametrize("address", SCREENS)
def test_screen_is_accessible(page, address):
    page.open(address)
    page.page.locator(f"main {SCREENS[address]}").first.wait_for()
    if "key=order" in address:
        page.row("order-").first.click()
        page.page.locator(".record pre").first.wait_for()
    check(page, address or "overview")
    if address == "groups/billing":
        page.button("Reset offsets").click()
        page.button("Preview", within="dialog").click()
        page.page.locator("dialog table").wait_for()
        check(page, "reset")


#: Address of a screen -> the button of a dialog. Others look like these.
DIALOGS = {
    "topics": "Create a topic",
    "topics/orders/configs?q=retention.ms": "retention.ms",
    "groups/billing": "Delete",
    "access/quotas": "Set a quota",
    "storage": "Keys",
}


@pytest.mark.parametrize("address", DIALOGS)
def test_dialog_is_accessible(page, address):
    page.open(address)
    page.page.locator("main .tools").first.wait_for()
    page.button(DIALOGS[address], within="body").click()
    page.page.get_by_role("dialog").wait_for()
    check(page, f"dialog-{address}")


@pytest.fixture(scope="module")
def page(opened):
    with opened(reduced_motion="reduce") as page:
        yield page


def test_keyboard_alone_opens_a_record_and_goes_back(console):
    console.open("")
    press = console.page.keyboard.press
    press("g")
    press("t")
    console.row("orders").wait_for()
    press("/")
    console.page.keyboard.type("orders")
    press("Escape")
    press("j")
    assert console.page.evaluate("document.activeElement.textContent") == "orders"
    press("Enter")
    console.row("order-").first.wait_for()
    press("j")
    press("j")
    press("k")
    press("Enter")
    console.page.locator(".record").wait_for()
    press("Escape")
    console.page.locator("h1", has_text="Topics").wait_for()
    press("?")
    console.page.get_by_role("dialog", name="Keys").wait_for()
    press("Escape")
    assert console.page.get_by_role("dialog").count() == 0
