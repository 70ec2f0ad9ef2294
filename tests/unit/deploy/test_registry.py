"""The schema registry of the deployments: the image that conformance/test_registry.py tried, hardened like ours."""

import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import kubernetes_validate
import pytest
import yaml
from support.registry import VERSION

ROOT = Path(__file__).parents[3]
OVERLAYS = ("registry", "secured-registry")

Document = dict[str, Any]


@pytest.fixture(scope="module", params=OVERLAYS)
def documents(request: pytest.FixtureRequest) -> list[Document]:
    kubectl = shutil.which("kubectl")
    if kubectl is None:
        pytest.skip("kubectl is not installed")
    command = [kubectl, "kustomize", str(ROOT / "k8s" / "overlays" / request.param)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    return list(yaml.safe_load_all(done.stdout))


def one(documents: list[Document], kind: str, name: str) -> Document:
    (found,) = [each for each in documents if each["kind"] == kind and each["metadata"]["name"].startswith(name)]
    return found


@pytest.mark.parametrize("version", ["1.31.0", "1.36.0"])
def test_every_object_is_valid(documents: list[Document], version: str) -> None:
    for document in documents:
        if not document["apiVersion"].startswith("cert-manager.io/"):
            kubernetes_validate.validate(document, version, strict=True)


def test_the_pod_is_the_tried_version_without_privileges(documents: list[Document]) -> None:
    pod = one(documents, "Deployment", "registry")["spec"]["template"]["spec"]
    (container,) = pod["containers"]
    assert container["image"] == f"apicurio/apicurio-registry:{VERSION}"
    assert container["securityContext"] == {
        "allowPrivilegeEscalation": False,
        "readOnlyRootFilesystem": True,
        "capabilities": {"drop": ["ALL"]},
    }
    assert pod["securityContext"]["runAsNonRoot"] is True
    assert pod["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
    assert pod["automountServiceAccountToken"] is False
    assert set(container["resources"]["requests"]) == set(container["resources"]["limits"]) == {"cpu", "memory"}
    assert container["livenessProbe"]["httpGet"]["path"] == "/health/live"
    assert container["readinessProbe"]["httpGet"]["path"] == "/health/ready"


def test_its_data_are_in_the_broker_of_the_overlay(documents: list[Document]) -> None:
    settings = one(documents, "ConfigMap", "registry-settings")["data"]
    assert settings["APICURIO_STORAGE_KIND"] == "kafkasql"
    assert settings["APICURIO_RULES_GLOBAL_COMPATIBILITY"] == "BACKWARD"
    host, _, port = settings["APICURIO_KAFKASQL_BOOTSTRAP_SERVERS"].partition(":")
    gateway = one(documents, "Service", host)
    assert [each["port"] for each in gateway["spec"]["ports"]] == [int(port)]


def test_policies_admit_its_clients_and_it_to_the_gateways(documents: list[Document]) -> None:
    pod = one(documents, "Deployment", "registry")["spec"]["template"]
    gateways = one(documents, "NetworkPolicy", "gateway-svc")["spec"]["ingress"][0]["from"]
    labels = [peer["podSelector"]["matchLabels"] for peer in gateways if "podSelector" in peer]
    assert any(each.items() <= pod["metadata"]["labels"].items() for each in labels)
    policy = one(documents, "NetworkPolicy", "registry")["spec"]
    assert policy["policyTypes"] == ["Ingress", "Egress"]
    assert policy["egress"][0]["ports"] == [{"protocol": "TCP", "port": 9092}]
    assert policy["ingress"][0]["ports"] == [{"protocol": "TCP", "port": "http"}]
    url = one(documents, "ConfigMap", "admin-settings")["data"]["MILLRACE_SCHEMA_REGISTRY"]
    (served,) = one(documents, "Service", "registry")["spec"]["ports"]
    assert url == f"http://registry:{served['port']}/apis/ccompat/v7"
    allowed = one(documents, "NetworkPolicy", "admin-api-to-registry")["spec"]
    assert allowed["podSelector"]["matchLabels"] == {"app.kubernetes.io/name": "admin-api"}
    (target,) = pod["spec"]["containers"][0]["ports"]
    assert allowed["egress"][0]["ports"] == [{"protocol": "TCP", "port": target["containerPort"]}]


def test_the_secured_one_logs_in_over_tls(documents: list[Document]) -> None:
    settings = one(documents, "ConfigMap", "registry-settings")["data"]
    gateways = one(documents, "ConfigMap", "gateway-settings")["data"]
    if "MILLRACE_AUTHORIZER" not in gateways:
        assert "APICURIO_KAFKA_COMMON_SECURITY_PROTOCOL" not in settings
        return
    protocols = gateways["MILLRACE_LISTENER_SECURITY_PROTOCOL_MAP"]
    assert protocols == f"INTERNAL:{settings['APICURIO_KAFKA_COMMON_SECURITY_PROTOCOL']}"
    assert settings["APICURIO_KAFKA_COMMON_SASL_MECHANISM"] in gateways["MILLRACE_SASL_ENABLED_MECHANISMS"].split(",")
    pod = one(documents, "Deployment", "registry")["spec"]["template"]["spec"]
    folders = {each["mountPath"] for each in pod["containers"][0]["volumeMounts"] if each.get("readOnly")}
    files = [settings["APICURIO_KAFKA_COMMON_SSL_TRUSTSTORE_LOCATION"], settings["JAVA_OPTS_APPEND"].partition("=")[2]]
    assert {str(Path(file).parent) for file in files} == folders


def test_the_container_is_the_tried_version_without_privileges(compose: dict[str, Any]) -> None:
    container = compose["services"]["registry"]
    assert container["image"] == f"apicurio/apicurio-registry:{VERSION}"
    assert "build" not in container
    assert container["user"] == "10001:0"
    assert container["read_only"] is True
    assert container["cap_drop"] == ["ALL"]
    assert container["security_opt"] == ["no-new-privileges:true"]
    assert container["networks"] == ["default"]
    assert re.fullmatch(r"\$\{REGISTRY_MEMORY:-\d+[mg]\}", container["mem_limit"])
    address = container["environment"]["APICURIO_KAFKASQL_BOOTSTRAP_SERVERS"]
    listeners = compose["services"]["gateway-svc"]["environment"]["MILLRACE_ADVERTISED_LISTENERS"]
    assert f"INTERNAL://{address}," in listeners
