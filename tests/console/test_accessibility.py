"""Every screen in light and dark, wide and narrow: axe finds nothing serious, and nothing is wider than the window."""

from __future__ import annotations

from pathlib import Path

import pytest
from support.late import Late

pytestmark = pytest.mark.blocks_event_loop("the browser's driver waits in this thread")

axe = Late("axe_playwright_python.sync_playwright")

#: Address of a screen -> what is there once it is whole.
SCREENS = {
    "": ".health",
    "topics": "[data-row]",
    "topics/orders/records?key=order-23": "[data-row]",
    "topics/orders/produce": "textarea",
    "topics/orders/partitions": "[data-row]",
    "topics/orders/groups": "[data-row]",
    "topics/orders/configs?q=retention": "[data-row]",
    "groups": "[data-row]",
    "groups/billing": "[data-row]",
    "transactions": ".empty",
    "brokers?q=log.retention": "[data-row]",
    "storage?q=orders": "[data-row]",
}
WINDOWS = {"wide": {"width": 1280, "height": 800}, "narrow": {"width": 390, "height": 844}}
#: Pictures of all screens, to look at. README shows one of them.
PICTURES = Path(__file__).parents[2] / "build" / "console"


@pytest.mark.parametrize("address", SCREENS)
def test_screen_is_accessible(page, address):
    page.open(address)
    page.page.locator(f"main {SCREENS[address]}").first.wait_for()
    if "/records" in address:
        page.row("order-").first.click()
        page.page.locator(".record pre").first.wait_for()
    check(page, address or "overview")
    if address == "groups/billing":
        page.button("Reset offsets").click()
        page.button("Preview", within="dialog").click()
        page.page.locator("dialog table").wait_for()
        check(page, "reset")


@pytest.fixture(scope="module")
def page(opened):
    with opened(reduced_motion="reduce") as page:
        yield page


def check(page, name):
    """Look at a screen in each window and colour.

    Colours change nothing but contrasts, and the windows have the same ones.
    """
    PICTURES.mkdir(parents=True, exist_ok=True)
    for window, size in WINDOWS.items():
        page.page.set_viewport_size(size)
        for colors in ("light", "dark"):
            page.page.emulate_media(color_scheme=colors)
            page.page.screenshot(path=PICTURES / f"{name.partition('?')[0].replace('/', '-')}-{window}-{colors}.png")
            if (window, colors) == ("narrow", "dark"):
                continue
            rules = {"runOnly": ["color-contrast"]} if colors == "dark" else {}
            found = axe.Axe().run(page.page, options={"resultTypes": ["violations"], **rules}).response["violations"]
            serious = [
                f"{each['id']}: {node['html'][:150]} {node.get('failureSummary', '')[:200]}"
                for each in found
                if each["impact"] in ("serious", "critical")
                for node in each["nodes"][:3]
            ]
            assert not serious, f"{name} {window} {colors}: {serious}"
        wide = page.page.evaluate("document.documentElement.scrollWidth - document.documentElement.clientWidth")
        assert wide <= 0, f"{name} is {wide} px wider than its {window} window"
    page.page.set_viewport_size(WINDOWS["wide"])
    page.page.emulate_media(color_scheme="light")


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
