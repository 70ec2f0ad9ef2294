"""Apache Kafka's kafka-configs.sh (its ConfigCommand) sets, shows and removes configs of groups."""

import pytest
from support.kafka_tools import tool
from support.maven import need_java

pytestmark = [pytest.mark.conformance, pytest.mark.timeout(300)]

COMMAND = "kafka.admin.ConfigCommand"
SESSION, HEARTBEAT = "consumer.session.timeout.ms", "consumer.heartbeat.interval.ms"
BROKERS_SESSION = f"DEFAULT_CONFIG:group.{SESSION}=45000"


def test_configs_of_groups(bootstrap: str, layout: str) -> None:
    need_java()
    group = f"configured-{layout}"

    def command(*arguments: str) -> list[str]:
        output = tool(COMMAND, "--bootstrap-server", bootstrap, "--entity-type", "groups", *arguments)
        return [line.strip() for line in output.splitlines()]

    assert command("--describe", "--entity-name", group) == [
        f"The group '{group}' doesn't exist and doesn't have dynamic config."
    ]
    changed = [f"Completed updating config for group {group}."]
    assert command("--alter", "--entity-name", group, "--add-config", f"{SESSION}=50000") == changed
    own = f"{SESSION}=50000 sensitive=false synonyms={{DYNAMIC_GROUP_CONFIG:{SESSION}=50000, {BROKERS_SESSION}}}"
    described = [f"Dynamic configs for group {group} are:", own]
    assert command("--describe", "--entity-name", group) == described
    of_all = command("--describe")  # found by ListGroups and ListConfigResources
    assert of_all[of_all.index(described[0]) :][:2] == described
    _, assignment, heartbeat, session = command("--describe", "--entity-name", group, "--all")
    assert (assignment.partition("=")[0], session) == ("consumer.assignment.interval.ms", own)
    assert heartbeat.startswith(
        f"{HEARTBEAT}=500 sensitive=false synonyms={{STATIC_BROKER_CONFIG:group.{HEARTBEAT}=500"
    )
    with pytest.raises(AssertionError, match=f"{SESSION} must be less than or equal to group.consumer.max.session"):
        command("--alter", "--entity-name", group, "--add-config", f"{SESSION}=60001")
    assert command("--alter", "--entity-name", group, "--delete-config", SESSION) == changed
    assert described[0] not in command("--describe")
