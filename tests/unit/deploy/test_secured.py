"""The secured deployments: no service is without TLS, a login or its files, and every file that is named is mounted."""

import os
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

ROOT = Path(__file__).parents[3]
OVERLAYS = ("secured", "secured-spark-job")
SERVICES = ("storage-svc", "gateway-svc", "admin-api")
#: The variables whose value is the path of a file that the deployment must mount.
FILES = re.compile(r"MILLRACE_\w+_FILE")

Document = dict[str, Any]


def rendered(overlay: str) -> list[Document]:
    kubectl = shutil.which("kubectl")
    if kubectl is None:
        pytest.skip("kubectl is not installed")
    command = [kubectl, "kustomize", str(ROOT / "k8s" / "overlays" / overlay)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    return list(yaml.safe_load_all(done.stdout))


@pytest.fixture
def overlay(root: Path) -> dict[str, Any]:
    return dict(yaml.safe_load((root / "docker-compose.secured.yml").read_text()))


def environments_of_kubernetes(documents: list[Document]) -> dict[str, tuple[dict[str, str], list[Document], Document]]:
    """Return the variables, the mounts and the volumes of each container by its name."""
    settings = {each["metadata"]["name"]: each["data"] for each in documents if each["kind"] == "ConfigMap"}
    found = {}
    for workload in documents:
        if workload["kind"] in ("Deployment", "StatefulSet", "Job"):
            pod = workload["spec"]["template"]["spec"]
            (container,) = pod["containers"]
            variables = settings[container["envFrom"][0]["configMapRef"]["name"]]
            volumes = {volume["name"]: volume for volume in pod["volumes"]}
            found[container["name"]] = (variables, container["volumeMounts"], volumes)
    return found


def check_secured(name: str, variables: dict[str, str]) -> None:
    assert variables["MILLRACE_INTERNAL_TLS"] == "mutual"
    assert {f"MILLRACE_INTERNAL_TLS_{kind}_FILE" for kind in ("KEY", "CERTIFICATE", "CA")} <= set(variables)
    if name == "storage-svc":
        assert variables["MILLRACE_INTERNAL_TLS_NAMES"] == "gateway-svc,admin-api"
        assert variables["MILLRACE_USERS_FILE"]
    elif name == "gateway-svc":
        protocols = variables["MILLRACE_LISTENER_SECURITY_PROTOCOL_MAP"].split(",")
        assert {each.partition(":")[2] for each in protocols} == {"SASL_SSL"}
        assert {each.partition(":")[0] for each in protocols} >= {"INTERNAL"}
        assert variables["MILLRACE_OPEN_LISTENERS"] == ""
        assert variables["MILLRACE_AUTHORIZER"] == "acl"
        assert variables["MILLRACE_SUPER_USERS"] == "User:admin;User:admin-api"
    else:
        assert variables["MILLRACE_ADMIN_AUTH"] == "users"
        assert variables["MILLRACE_AUTHORIZER"] == "acl"
        assert variables["MILLRACE_SUPER_USERS"] == "User:admin;User:admin-api"
        assert variables["MILLRACE_ADMIN_GATEWAY_USER"] == "admin-api"
        assert variables["MILLRACE_ADMIN_GATEWAY_CA_FILE"]


@pytest.mark.parametrize("name", OVERLAYS)
def test_pods_have_tls_and_logins(name: str) -> None:
    found = environments_of_kubernetes(rendered(name))
    for service in SERVICES:
        check_secured(service, found[service][0])
    if name == "secured-spark-job":
        assert found["spark"][0]["MILLRACE_ETL_SECURITY_PROTOCOL"] == "SASL_SSL"


@pytest.mark.parametrize("name", OVERLAYS)
def test_each_file_of_a_pod_is_in_a_secret_that_is_mounted(name: str) -> None:
    for variables, mounts, volumes in environments_of_kubernetes(rendered(name)).values():
        folders = {mount["mountPath"]: volumes[mount["name"]] for mount in mounts if mount.get("readOnly")}
        for variable in filter(FILES.fullmatch, variables):
            secret = folders[str(Path(variables[variable]).parent)]["secret"]
            assert secret["defaultMode"] == 0o440
        for path, volume in folders.items():
            assert any(value.startswith(f"{path}/") for value in variables.values()), f"{path}: {volume}"


@pytest.mark.parametrize("name", OVERLAYS)
def test_certificates_are_for_the_names_that_are_used(name: str) -> None:
    documents = rendered(name)
    certificates = {each["metadata"]["name"]: each["spec"] for each in documents if each["kind"] == "Certificate"}
    issuers = {each["metadata"]["name"]: each["spec"] for each in documents if each["kind"] == "Issuer"}
    assert {each["apiVersion"] for each in documents if each["kind"] in ("Certificate", "Issuer")} == {
        "cert-manager.io/v1"
    }
    found = environments_of_kubernetes(documents)
    assert (
        found["gateway-svc"][0]["MILLRACE_STORAGE_ADDRESS"].partition(":")[0] in certificates["storage-svc"]["dnsNames"]
    )
    assert {"gateway-svc", "gateway-svc.millrace.svc"} <= set(certificates["gateway-svc"]["dnsNames"])
    for service in SERVICES:
        spec = certificates[service]
        assert service in spec["dnsNames"]
        volumes = found[service][2]
        assert volumes["tls"]["secret"]["secretName"] == spec["secretName"] == f"{service}-tls"
        assert issuers[spec["issuerRef"]["name"]]["ca"]["secretName"] == certificates["millrace-ca"]["secretName"]
        wanted = {"storage-svc": {"server auth"}, "admin-api": {"client auth"}}
        assert set(spec["usages"]) == wanted.get(service, {"server auth", "client auth"})


def test_containers_have_tls_and_logins(overlay: dict[str, Any]) -> None:
    for service in SERVICES:
        check_secured(service, overlay["services"][service]["environment"])


def test_each_file_of_a_container_is_a_secret_of_it(overlay: dict[str, Any]) -> None:
    for service in overlay["services"].values():
        variables = service.get("environment", {})
        named = {value for variable, value in variables.items() if FILES.fullmatch(variable)}
        others = (*service.get("command", ()), *(text for text in variables.values() if "/run/secrets/" in text))
        named |= {f"/run/secrets/{name}" for text in others for name in re.findall(r"/run/secrets/([\w.-]+)", text)}
        if any(part.startswith("--client-config") for part in service.get("command", ())):
            named.add("/run/secrets/ca.pem")  # demo.properties has it
        assert named == {f"/run/secrets/{secret}" for secret in service["secrets"]}


def test_make_secrets_makes_what_the_overlay_mounts(root: Path, overlay: dict[str, Any], tmp_path: Path) -> None:
    folder = tmp_path / "made"
    command = ["sh", str(root / "assembly" / "make_secrets.sh"), str(folder), "kafka.example.com"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stderr) == (0, "")
    assert folder.stat().st_mode & 0o777 == 0o700
    assert (folder / "ca.key").stat().st_mode & 0o777 == 0o600
    for name, secret in overlay["secrets"].items():
        assert secret == {"file": f"${{SECRETS:-./secrets}}/{name}"}
        assert (folder / name).stat().st_mode & 0o777 == 0o644  # the user of a container reads it
    for service in SERVICES:
        check = ["openssl", "verify", "-x509_strict", "-CAfile", str(folder / "ca.pem"), str(folder / f"{service}.pem")]
        subprocess.run(check, check=True, capture_output=True, timeout=60)
    shown = subprocess.run(
        ["openssl", "x509", "-noout", "-ext", "subjectAltName", "-in", str(folder / "gateway-svc.pem")],
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert shown.stdout.split("\n")[1].strip() == "DNS:gateway-svc, DNS:kafka.example.com"
    users = dict(line.split() for line in (folder / "users").read_text().splitlines())
    assert list(users) == ["admin", "admin-api", "demo", "registry", "spark"]
    assert len(set(users.values())) == len(users)
    assert not [password for password in users.values() if password in done.stdout]
    # Its folder may be anywhere, also a mount of a container.
    assert "ssl.ca.location=ca.pem\n" in (folder / "admin.properties").read_text()
    assert [path.name for path in folder.iterdir() if str(tmp_path).encode() in path.read_bytes()] == []
    again = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert again.returncode != 0
    assert dict(line.split() for line in (folder / "users").read_text().splitlines()) == users


def test_docker_compose_accepts_both_files_together(root: Path, tmp_path: Path) -> None:
    program = shutil.which("docker-compose")
    if program is None:
        pytest.skip("docker-compose is not installed")
    files = [f"--file={root / name}" for name in ("docker-compose.yml", "docker-compose.secured.yml")]
    done = subprocess.run(
        [program, *files, "--profile=demo", "--profile=spark", "--profile=registry", "config"],
        capture_output=True,
        text=True,
        timeout=60,
        env={**os.environ, "SECRETS": str(tmp_path)},
    )
    assert (done.returncode, done.stderr) == (0, "")
    services = yaml.safe_load(done.stdout)["services"]
    assert services["gateway-svc"]["environment"]["MILLRACE_INTERNAL_TLS"] == "mutual"
    assert services["gateway-svc"]["read_only"] is True
    assert services["admin-api"]["environment"]["MILLRACE_ADMIN_TOKENS_FILE"] == "/run/secrets/tokens"
    assert services["registry"]["environment"]["APICURIO_STORAGE_KIND"] == "kafkasql"
    assert services["registry"]["environment"]["APICURIO_KAFKA_COMMON_SASL_MECHANISM"] == "SCRAM-SHA-512"
