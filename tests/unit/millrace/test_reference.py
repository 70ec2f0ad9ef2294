from pathlib import Path

from millrace.reference import groups_page, readme, settings_page, settings_reference

DOCS = Path(__file__).parents[3] / "docs"


def test_settings_page_is_what_make_generate_writes():
    assert (DOCS / "settings.md").read_text(encoding="utf-8") == settings_page()


def test_groups_page_is_what_make_generate_writes():
    assert (DOCS / "groups.md").read_text(encoding="utf-8") == groups_page()
    assert "    CompletingRebalance --> Stable: the leader's assignment is durable\n" in groups_page()


def test_every_service_has_its_settings():
    page = settings_reference()
    for variable in ("DATA_DIR", "LISTENERS", "ADMIN_HTTP", "BROKER_HTTP", "LOG_LEVEL", "STOP_DEADLINE_S"):
        assert page.count(f"| `MILLRACE_{variable}` |") == 1


def test_the_readme_lists_the_apis_that_are_served():
    text = (DOCS.parent / "README.md").read_text(encoding="utf-8")
    assert readme(text) == text
    assert "| 0 | Produce | 0–13 |" in text
