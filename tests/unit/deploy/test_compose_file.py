"""docker-compose.yml: hardened, limited and watched containers. Nothing is open by default, and compose accepts it."""

import re
import shutil
import subprocess
from itertools import chain
from pathlib import Path
from typing import Any

import pytest

SERVICES = ("storage-svc", "gateway-svc", "admin-api")
#: Service → the variable with the address of its /readyz.
HEALTH_ADDRESSES = {
    "storage-svc": "MILLRACE_STORAGE_HTTP",
    "gateway-svc": "MILLRACE_GATEWAY_HTTP",
    "admin-api": "MILLRACE_ADMIN_HEALTH_HTTP",
}
JOBS = {"demo": ["demo"], "spark": ["spark"]}
#: The one image that is not built here: test_registry.py has its rules.
REGISTRY = {"registry": ["registry"]}
VARIABLE = re.compile(r"\$\{([A-Z_]+)(:-[^}]*)?\}")


def resolved(value: str) -> str:
    """Return the text with every ${NAME:-default} replaced by its default."""
    return VARIABLE.sub(lambda match: (match[2] or "")[2:], value)


@pytest.fixture(params=[*SERVICES, *JOBS])
def container(request: pytest.FixtureRequest, compose: dict[str, Any]) -> dict[str, Any]:
    return dict(compose["services"][request.param])


def test_the_services_are_the_ones_we_have(compose: dict[str, Any]) -> None:
    assert set(compose["services"]) == {*SERVICES, *JOBS, *REGISTRY}


def test_jobs_and_the_registry_are_behind_profiles(compose: dict[str, Any]) -> None:
    profiles = {name: service["profiles"] for name, service in compose["services"].items() if "profiles" in service}
    assert profiles == JOBS | REGISTRY


def test_no_key_that_one_of_the_two_composes_refuses_or_that_prevents_scaling(compose: dict[str, Any]) -> None:
    assert {key for key in compose if not key.startswith("x-")} == {"services", "networks", "volumes"}
    assert "container_name" not in set(chain.from_iterable(compose["services"].values()))


def test_a_container_is_hardened(container: dict[str, Any]) -> None:
    assert container["user"] == "10001:10001"
    assert container["read_only"] is True
    assert container["cap_drop"] == ["ALL"]
    assert container["security_opt"] == ["no-new-privileges:true"]
    assert container["init"] is True
    job = container["image"].startswith("millrace/spark")
    assert container["stop_grace_period"] == ("2m" if job else "30s")  # Spark finishes its batch
    assert [entry.split(":")[0] for entry in container["tmpfs"]] == ["/tmp"]
    assert all("size=" in entry for entry in container["tmpfs"])
    assert not {"privileged", "cap_add", "network_mode", "pid", "ipc", "devices", "env_file"} & set(container)


def test_a_container_has_limits_and_bounded_logs(container: dict[str, Any]) -> None:
    assert re.fullmatch(r"\d+[mg]", resolved(container["mem_limit"]))
    assert 0 < float(resolved(container["cpus"])) <= 2
    assert container["pids_limit"] == 512
    assert container["logging"] == {"driver": "json-file", "options": {"max-size": "10m", "max-file": "3"}}


def test_images_are_built_here_and_pinned(container: dict[str, Any], compose: dict[str, Any]) -> None:
    name = next(name for name, service in compose["services"].items() if service["image"] == container["image"])
    assert resolved(container["image"]) == f"millrace/{name}:0.1.0"
    build = dict(container["build"])
    arguments = {key: resolved(value) for key, value in build.pop("args").items()}
    assert arguments == {"BASE_IMAGE": "python:3.11-slim-bookworm"}
    assert {key: resolved(value) for key, value in build.items()} == {
        "context": ".",
        "dockerfile": "assembly/Dockerfile",
        "network": "default",
        "target": name,
    }


@pytest.mark.parametrize("name", SERVICES)
def test_a_service_restarts_and_says_whether_it_is_healthy(name: str, compose: dict[str, Any]) -> None:
    service = compose["services"][name]
    assert service["restart"] == "unless-stopped"
    assert service["healthcheck"] == {
        "test": ["CMD", "healthcheck", HEALTH_ADDRESSES[name]],
        "interval": "30s",
        "timeout": "3s",
        "retries": 3,
        "start_period": "20s",
    }


@pytest.mark.parametrize("name", JOBS)
def test_a_job_ends_for_good(name: str, compose: dict[str, Any]) -> None:
    assert compose["services"][name]["restart"] == "no"


def test_everything_waits_for_what_it_needs(compose: dict[str, Any]) -> None:
    waits = {
        name: {other: condition["condition"] for other, condition in service.get("depends_on", {}).items()}
        for name, service in compose["services"].items()
    }
    healthy, started = "service_healthy", "service_started"
    assert waits == {
        "storage-svc": {},
        "gateway-svc": {"storage-svc": started},
        "admin-api": {"storage-svc": started},
        "demo": {"gateway-svc": healthy, "admin-api": healthy},
        "spark": {"gateway-svc": healthy},
        "registry": {"gateway-svc": healthy},
    }


def test_ports_are_published_on_the_loopback_address_unless_told_otherwise(compose: dict[str, Any]) -> None:
    published = {name: service["ports"] for name, service in compose["services"].items() if "ports" in service}
    assert {name: [resolved(port) for port in ports] for name, ports in published.items()} == {
        "gateway-svc": ["127.0.0.1:9092:9092"],
        "admin-api": ["127.0.0.1:8082:8082"],
        "spark": ["127.0.0.1:9404:9404", "127.0.0.1:4040:4040"],
        "registry": ["127.0.0.1:8081:8080"],
    }
    assert all(port.startswith("${BIND:-127.0.0.1}:") for ports in published.values() for port in ports)


def test_each_listener_advertises_its_own_address(compose: dict[str, Any]) -> None:
    environment = compose["services"]["gateway-svc"]["environment"]
    assert environment["MILLRACE_LISTENERS"] == "INTERNAL://0.0.0.0:29092,EXTERNAL://0.0.0.0:9092"
    advertised = resolved(environment["MILLRACE_ADVERTISED_LISTENERS"])
    assert advertised == "INTERNAL://gateway-svc:29092,EXTERNAL://localhost:9092"
    assert "${ADVERTISED_HOST:-localhost}:${KAFKA_PORT:-9092}" in environment["MILLRACE_ADVERTISED_LISTENERS"]


def test_only_storage_writes_the_data_volume(compose: dict[str, Any]) -> None:
    mounts = {name: service["volumes"] for name, service in compose["services"].items() if "volumes" in service}
    assert mounts == {
        "storage-svc": ["data:/var/lib/millrace"],
        "gateway-svc": ["data:/var/lib/millrace:ro"],
        "admin-api": ["${ADMIN_TOKENS:-/dev/null}:/run/admin-tokens:ro"],
        "spark": ["etl:/var/lib/etl"],
    }
    services = compose["services"]
    assert services["storage-svc"]["environment"]["MILLRACE_DATA_DIR"] == "/var/lib/millrace"
    assert services["gateway-svc"]["environment"]["MILLRACE_GATEWAY_DATA_DIR"] == "/var/lib/millrace"
    assert set(compose["volumes"]) == {"data", "etl"}


def test_storage_is_reached_by_our_services_only(compose: dict[str, Any]) -> None:
    assert compose["networks"]["storage"] == {"internal": True}
    on_storage = {name for name, service in compose["services"].items() if "storage" in service.get("networks", [])}
    assert on_storage == {"storage-svc", "gateway-svc", "admin-api"}
    assert compose["services"]["storage-svc"]["networks"] == ["storage"]


def test_every_variable_has_its_default_here_and_stands_in_the_example(root: Path) -> None:
    found = VARIABLE.findall((root / "docker-compose.yml").read_text())
    defaults = {name: default[2:] for name, default in found if name != "VARIABLE"}
    assert all(default.startswith(":-") for name, default in found if name != "VARIABLE")
    example = dict(
        line.split("=", 1)
        for line in (root / ".env.example").read_text().splitlines()
        if line and not line.startswith("#")
    )
    assert example == defaults


@pytest.mark.parametrize(
    "profiles", [(), ("demo",), ("spark",), ("registry",), ("demo", "spark", "registry")], ids="+".join
)
def test_docker_compose_accepts_every_choice_of_profiles(profiles: tuple[str, ...], root: Path) -> None:
    program = shutil.which("docker-compose")
    if program is None:
        pytest.skip("docker-compose is not installed")
    chosen = [argument for profile in profiles for argument in ("--profile", profile)]
    done = subprocess.run(
        [program, "--file", str(root / "docker-compose.yml"), *chosen, "config", "--quiet"],
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert (done.returncode, done.stderr) == (0, "")
