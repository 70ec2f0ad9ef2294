from pathlib import Path

import millrace.variables
from millrace.cli_page import README_END, README_START, all_commands, cli_page, readme_table
from millrace.reference import (
    APIS_END,
    APIS_START,
    apis_page,
    etl_schema,
    groups_page,
    readme_apis,
)
from millrace.rest_page import REST_END, REST_START, readme_rest_table, rest_page
from millrace.settings_page import settings_page, settings_reference, variables_module

DOCS = Path(__file__).parents[3] / "docs"


def test_settings_page_is_what_make_generate_writes():
    assert (DOCS / "settings.md").read_text(encoding="utf-8") == settings_page()


def test_groups_page_is_what_make_generate_writes():
    assert (DOCS / "groups.md").read_text(encoding="utf-8") == groups_page()
    assert "    CompletingRebalance --> Stable: the leader's assignment is durable\n" in groups_page()


def test_the_schema_of_pipeline_files_is_what_make_generate_writes():
    assert (DOCS / "etl.schema.json").read_text(encoding="utf-8") == etl_schema()


def test_every_service_has_its_settings():
    page = settings_reference()
    for variable in ("DATA_DIR", "LISTENERS", "ADMIN_HTTP", "BROKER_HTTP", "LOG_LEVEL", "STOP_DEADLINE_S"):
        assert page.count(f"| `MILLRACE_{variable}` |") == 1


def test_apis_page_is_what_make_generate_writes():
    assert (DOCS / "apis.md").read_text(encoding="utf-8") == apis_page()
    assert "| 0 | Produce | 0–13 |\n" in apis_page()


def test_names_of_variables_are_what_make_generate_writes():
    assert Path(millrace.variables.__file__).read_text(encoding="utf-8") == variables_module()
    assert {"MILLRACE_NUM_PARTITIONS", "MILLRACE_ETL_MASTER", "MILLRACE_ADMIN_HTTP"} < millrace.variables.VARIABLES


def test_cli_page_is_what_make_generate_writes():
    assert (DOCS / "cli.md").read_text(encoding="utf-8") == cli_page()


def test_the_readmes_commands_are_what_make_generate_writes():
    assert f"{README_START}{readme_table()}{README_END}" in (DOCS.parent / "README.md").read_text(encoding="utf-8")


def test_the_readmes_apis_are_what_make_generate_writes():
    listed = f"{APIS_START}{readme_apis()}{APIS_END}"
    assert listed in (DOCS.parent / "README.md").read_text(encoding="utf-8")
    assert "| 0 to 11 | Produce, Fetch, ListOffsets, Metadata," in listed


def test_rest_page_is_what_make_generate_writes():
    page = (DOCS / "rest.md").read_text(encoding="utf-8")
    assert page == rest_page()
    row = "| deleteKafkaTopic | `DELETE /v3/clusters/{cluster_id}/topics/{topic_name}` | admin | DELETE topic |"
    assert f"{row} Delete the topic with its records. |\n" in page
    assert "| `/metrics` | read | " in page
    assert "| `/docs` | public | " in page


def test_the_readmes_operations_are_what_make_generate_writes():
    table = readme_rest_table()
    assert "| [Broker (v3)](docs/rest.md#broker-v3) | 3 | Gateways that are up" in table
    assert f"{REST_START}{table}{REST_END}" in (DOCS.parent / "README.md").read_text(encoding="utf-8")


def test_every_command_is_run_by_a_test():
    tests = "".join(path.read_text(encoding="utf-8") for path in Path(__file__).parent.glob("test_*.py"))
    leaves = [each.path[1:] for each in all_commands() if not each.subcommands]
    called = {"up": '"up"', "etl": '("etl", "run a pipeline', "demo": '("demo", "use this'}
    words = [path[1:] if path[0] == "storage" else path for path in leaves]  # those tests have a function for the group
    missing = [path for path in words if called.get(path[0], ", ".join(f'"{word}"' for word in path)) not in tests]
    assert missing == []
