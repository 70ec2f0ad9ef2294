"""admin-api in its container, under attack: it answers, stays alive and within its memory. And the stack at rest."""

from __future__ import annotations

import asyncio
import contextlib
import http.client
import json
import time
import urllib.request
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import TYPE_CHECKING

import pytest

from tests.compose.rest_attacks import ATTACKS, under_attack

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.compose.conftest import Stack

pytestmark = [pytest.mark.compose, pytest.mark.timeout(1800)]

SERVICES = ("storage-svc", "gateway-svc", "admin-api")
#: Seconds of one attack, and the number of answers to an ordinary client in it.
ATTACK_S = 6.0
ANSWERS = 2
ANSWERED_WITHIN_S = 120.0
#: The largest memory of admin-api, half of its container's limit.
PEAK_MIB_MAX = 256
REST_S = 60.0
#: Processor time of the three containers at rest, as a share of one core. The last work of the clients before may reach
#: into the first periods.
REST_SHARE_MAX = 0.01
REST_PERIODS = 3

PEAK_MIB = """
for process in /proc/[0-9]*; do
  read -r name < $process/comm
  if [[ $name == admin-api ]]; then
    while read -r key kilobytes _; do [[ $key == VmHWM: ]] && echo $((kilobytes / 1024)); done < $process/status
  fi
done
exit 0
"""
PROCESSOR_TIME = """
for file in /sys/fs/cgroup/cpu.stat /sys/fs/cgroup/cpuacct/cpuacct.usage; do
  [[ -r $file ]] && while read -r line; do echo "$line"; done < $file
done
exit 0
"""


def peak_mib(stack: Stack) -> int:
    return int(stack.execute("admin-api", "bash", "-c", PEAK_MIB).stdout)


def seconds_used(stack: Stack, service: str) -> float:
    """Return the processor time of a container since its start, from its control group of version 2 or 1."""
    lines = stack.execute(service, "bash", "-c", PROCESSOR_TIME).stdout.split("\n")
    for line in lines:
        if line.startswith("usage_usec "):
            return int(line.split()[1]) / 1e6
    return int(lines[0]) / 1e9


def answer_now(url: str) -> bytes:
    """Return a whole answer, or nothing: the API may be full, or cut an answer off."""
    try:
        with urllib.request.urlopen(url, timeout=ANSWERED_WITHIN_S) as response:
            return bytes(response.read())
    except (OSError, http.client.HTTPException):
        return b""


def answer(url: str) -> bytes:
    """Request until the API has answered. A place or a turn may be missing now and then."""
    return until(lambda: answer_now(url))


def create(topics: str, topic: str) -> bytes:
    """Create a topic and return its description, or nothing yet. An answer may get lost after the topic is there."""
    body, headers = json.dumps({"topic_name": topic}).encode(), {"Content-Type": "application/json"}
    with contextlib.suppress(OSError, http.client.HTTPException):
        urllib.request.urlopen(urllib.request.Request(topics, data=body, headers=headers), timeout=60).close()
    return answer_now(f"{topics}/{topic}")


def until(attempt: Callable[[], bytes]) -> bytes:
    deadline = time.monotonic() + ANSWERED_WITHIN_S
    while not (result := attempt()):
        assert time.monotonic() < deadline
        time.sleep(0.1)
    return result


@pytest.mark.parametrize("names", [*([name] for name in ATTACKS), list(ATTACKS)], ids="+".join)
def test_it_answers_whatever_others_do(stack: Stack, names: list[str]) -> None:
    async def attacked() -> None:
        async with under_attack(stack.http_port, names):
            begun = time.monotonic()
            count = 0
            while count < ANSWERS or time.monotonic() < begun + ATTACK_S:
                await asyncio.to_thread(answer, f"{stack.rest}/v3/clusters")
                check = await asyncio.to_thread(stack.execute, "admin-api", "healthcheck", "MILLRACE_ADMIN_HEALTH_HTTP")
                assert check.returncode == 0
                count += 1

    before = stack.inspect("admin-api")
    asyncio.run(attacked())
    after = stack.inspect("admin-api")
    assert after["State"]["OOMKilled"] is False
    assert after["State"]["Pid"] == before["State"]["Pid"]
    assert after["RestartCount"] == before["RestartCount"]
    assert peak_mib(stack) <= PEAK_MIB_MAX
    answer(f"{stack.rest}/v3/clusters")


def test_lists_of_many_topics_stay_within_the_memory(stack: Stack) -> None:
    """Each of these topics has 34 configurations: all of them together are more than one answer may have."""
    clusters = f"{stack.rest}/v3/clusters"
    (cluster,) = json.loads(answer(clusters))["data"]
    topics = f"{clusters}/{cluster['cluster_id']}/topics"
    for number in range(400):
        until(partial(create, topics, f"listed-{number}"))
    with ThreadPoolExecutor(20) as clients:
        assert any(clients.map(answer_now, [f"{topics}/-/configs"] * 20))
    assert peak_mib(stack) <= PEAK_MIB_MAX


def test_at_rest_the_stack_takes_a_hundredth_of_a_core(stack: Stack) -> None:
    time.sleep(10)  # storage answers the last of the clients above
    periods = []
    for _ in range(REST_PERIODS):
        before = {service: seconds_used(stack, service) for service in SERVICES}
        time.sleep(REST_S)
        periods.append({service: round(seconds_used(stack, service) - before[service], 3) for service in SERVICES})
        if sum(periods[-1].values()) <= REST_SHARE_MAX * REST_S:
            break
    print(f"processor time in {REST_S:.0f} s at rest: {periods}")
    assert sum(periods[-1].values()) <= REST_SHARE_MAX * REST_S, periods
