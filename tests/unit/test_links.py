"""Links of our Markdown pages lead to files and headings that exist, and paths in tables of folders as well."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from support import prose

PAGES = [path for path in prose.files() if path.suffix == ".md"]
FENCED = re.compile(r"^```.*?^```", re.MULTILINE | re.DOTALL)


def anchors(page: Path) -> set[str]:
    """Return the anchors of a page's headings, as GitHub makes them."""
    headings = re.findall(r"^#+ (.+)$", FENCED.sub("", page.read_text(encoding="utf-8")), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(prose.ROOT)))
def test_every_link_leads_somewhere(page: Path) -> None:
    text = FENCED.sub("", page.read_text(encoding="utf-8"))
    broken = []
    for target in re.findall(r"\]\(([^)\s]+)\)", text):
        if re.match(r"https?:", target):
            continue
        path, _, anchor = target.partition("#")
        file = (page.parent / path).resolve() if path else page
        if not file.exists() or (anchor and anchor not in anchors(file)):
            broken.append(target)
    assert broken == []


@pytest.mark.parametrize(
    ("package", "parents"),
    [("storage-svc/src/storage_svc", ("", "log", "coordinator")), ("gateway-svc/src/gateway_svc", ("",))],
)
def test_a_readme_lists_every_folder_of_its_package(package: str, parents: tuple[str, ...]) -> None:
    page = prose.ROOT / package.split("/")[0] / "README.md"
    listed = set(re.findall(r"`(\w+)`", page.read_text(encoding="utf-8")))
    modules = [module for parent in parents for module in (prose.ROOT / package / parent).glob("*/*.py")]
    assert len(modules) > 30
    assert {module.parent.name for module in modules} - listed == set()


@pytest.mark.parametrize("page", ["CONTRIBUTING.md", "docs/contributing/guards.md"])
def test_the_files_that_pages_for_contributors_name_exist(page: str) -> None:
    text = FENCED.sub("", (prose.ROOT / page).read_text(encoding="utf-8"))
    roots = ["", "gateway-svc/src", "gateway-svc/src/gateway_svc", "storage-svc/src", "storage-svc/src/storage_svc"]
    roots += ["admin-api/src", "assembly/launcher/src", "services/chassis/src", "spark/src"]
    roots += ["gateway-svc/src/gateway_svc/clients", "protocol-lib/src", "tests", "bench"]
    paths = [name for name in re.findall(r"`([\w./-]+/[\w./-]+|\w+\.py)`", text) if "x.py" not in name]
    missing = [
        name
        for name in paths
        if not any((prose.ROOT / root / f"{name}{end}").exists() for root in roots for end in ("", ".py"))
    ]
    assert len(paths) > 30
    assert missing == []
