"""What a screen looks like: pictures in each window and colour, what axe finds, and whether it fits."""

from __future__ import annotations

from pathlib import Path

from console.console_pages import Watched
from support.late import Late

axe = Late("axe_playwright_python.sync_playwright")

WINDOWS = {"wide": {"width": 1280, "height": 800}, "narrow": {"width": 390, "height": 844}}
#: Pictures of all screens, to look at. README shows one of them.
PICTURES = Path(__file__).parents[2] / "build" / "console"
#: The violations that axe finds. All that has passed would take longer to hand over than to find.
_VIOLATIONS = "(options) => axe.run(document, options).then((found) => found.violations)"


def check(page: Watched, name: str) -> None:
    """Look at a screen in each window and colour.

    Colours change nothing but contrasts, and the windows have the same ones.
    """
    PICTURES.mkdir(parents=True, exist_ok=True)
    if not page.page.evaluate("'axe' in window"):
        page.page.evaluate(axe.Axe().axe_script)
    for window, size in WINDOWS.items():
        page.page.set_viewport_size(size)
        for colors in ("light", "dark"):
            page.page.emulate_media(color_scheme=colors)
            page.page.screenshot(path=PICTURES / f"{name.partition('?')[0].replace('/', '-')}-{window}-{colors}.png")
            if (window, colors) == ("narrow", "dark"):
                continue
            rules = {"runOnly": ["color-contrast"]} if colors == "dark" else {}
            found = page.page.evaluate(_VIOLATIONS, {"resultTypes": ["violations"], **rules})
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
