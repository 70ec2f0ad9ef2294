"""k8s/: every object valid against Kubernetes' schemas, and the rules that schemas do not know.

The overlays are rendered by `kubectl kustomize` (offline) where kubectl is installed. The text of the base and the
overlays is checked in any case. test_spark_application.py has the overlay for Spark's operator. test_secured.py has
what the secured ones add.
"""

import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import kubernetes_validate
import pytest
import yaml

ROOT = Path(__file__).parents[3]
K8S = ROOT / "k8s"
OVERLAYS = ("dev", "prod", "spark-job", "secured", "secured-spark-job")
#: The oldest and the newest Kubernetes whose schemas the objects are held to.
VERSIONS = ("1.31.0", "1.36.0")
WORKLOADS = ("Deployment", "StatefulSet", "Job")
LABELS = ("name", "component", "part-of", "version", "managed-by")

Document = dict[str, Any]


def documents_in(folder: Path) -> list[Document]:
    return [
        document
        for path in sorted(folder.glob("*.yaml"))
        if path.name != "kustomization.yaml"
        for document in yaml.safe_load_all(path.read_text())
    ]


def rendered(folder: Path) -> list[Document]:
    kubectl = shutil.which("kubectl")
    if kubectl is None:
        pytest.skip("kubectl is not installed")
    done = subprocess.run([kubectl, "kustomize", str(folder)], capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    return list(yaml.safe_load_all(done.stdout))


@pytest.fixture(scope="module", params=["sources", "base", *OVERLAYS])
def documents(request: pytest.FixtureRequest) -> list[Document]:
    """All objects of one rendering; `sources` is every manifest as it is written, which needs no kubectl."""
    if request.param == "sources":
        folders = (K8S / "base", *(K8S / "overlays" / name for name in OVERLAYS))
        return [document for folder in folders for document in documents_in(folder)]
    return rendered(K8S / "base" if request.param == "base" else K8S / "overlays" / request.param)


@pytest.fixture
def is_rendered(documents: list[Document]) -> bool:
    return any(document["kind"] == "ConfigMap" for document in documents)


def of_kind(documents: list[Document], *kinds: str) -> list[Document]:
    return [document for document in documents if document["kind"] in kinds]


def pod_of(workload: Document) -> Document:
    return dict(workload["spec"]["template"]["spec"])


def containers(documents: list[Document]) -> Iterator[tuple[str, Document]]:
    for workload in of_kind(documents, *WORKLOADS):
        pod = pod_of(workload)
        assert "initContainers" not in pod
        for container in pod["containers"]:
            yield workload["kind"], container


def pods_selected_by(labels: dict[str, str], documents: list[Document]) -> list[Document]:
    return [
        workload
        for workload in of_kind(documents, *WORKLOADS)
        if labels.items() <= workload["spec"]["template"]["metadata"]["labels"].items()
    ]


def named(document: Document) -> str:
    return f"{document['kind']}/{document['metadata']['name']}"


@pytest.mark.parametrize("version", VERSIONS)
def test_every_object_is_valid(documents: list[Document], version: str) -> None:
    for document in documents:
        if not document["apiVersion"].startswith("cert-manager.io/"):  # test_secured.py
            kubernetes_validate.validate(document, version, strict=True)


def test_the_validator_does_refuse_a_wrong_field() -> None:
    (service,) = [document for document in documents_in(K8S / "base") if named(document) == "Service/admin-api"]
    service["spec"]["selectors"] = {}
    with pytest.raises(kubernetes_validate.ValidationError, match="selectors"):
        kubernetes_validate.validate(service, VERSIONS[0], strict=True)


def test_the_parts_are_the_ones_we_have(documents: list[Document]) -> None:
    workloads = {named(document) for document in of_kind(documents, *WORKLOADS)} - {"Job/spark"}
    assert workloads == {"StatefulSet/storage-svc", "Deployment/gateway-svc", "Deployment/admin-api"}


def test_only_the_spark_overlay_has_the_job() -> None:
    assert "Job/spark" in {named(document) for document in documents_in(K8S / "overlays" / "spark-job")}
    for folder in (K8S / "base", K8S / "overlays" / "dev", K8S / "overlays" / "prod"):
        assert not of_kind(documents_in(folder), "Job")


def test_a_pod_has_no_privileges_and_no_token(documents: list[Document]) -> None:
    for workload in of_kind(documents, *WORKLOADS):
        pod = pod_of(workload)
        context = pod["securityContext"]
        assert context["runAsNonRoot"] is True
        assert (context["runAsUser"], context["runAsGroup"], context["fsGroup"]) == (10001, 10001, 10001)
        assert context["seccompProfile"] == {"type": "RuntimeDefault"}
        assert pod["automountServiceAccountToken"] is False
        assert pod["enableServiceLinks"] is False
        assert not {"hostNetwork", "hostPID", "hostIPC"} & set(pod)
        assert not any("hostPath" in volume for volume in pod["volumes"])


def test_a_container_can_change_nothing(documents: list[Document]) -> None:
    for _, container in containers(documents):
        assert container["securityContext"] == {
            "allowPrivilegeEscalation": False,
            "readOnlyRootFilesystem": True,
            "capabilities": {"drop": ["ALL"]},
        }


def test_the_namespace_enforces_what_the_pods_promise(documents: list[Document]) -> None:
    (namespace,) = of_kind(documents, "Namespace")
    assert namespace["metadata"]["labels"]["pod-security.kubernetes.io/enforce"] == "restricted"


def test_service_accounts_exist_and_mount_no_token(documents: list[Document]) -> None:
    accounts = {account["metadata"]["name"]: account for account in of_kind(documents, "ServiceAccount")}
    assert {pod_of(workload)["serviceAccountName"] for workload in of_kind(documents, *WORKLOADS)} == set(accounts)
    assert all(account["automountServiceAccountToken"] is False for account in accounts.values())


def test_a_container_has_requests_and_limits(documents: list[Document]) -> None:
    for _, container in containers(documents):
        for kind in ("requests", "limits"):
            assert set(container["resources"][kind]) == {"cpu", "memory"}


def test_temporary_folders_are_bounded(documents: list[Document]) -> None:
    for workload in of_kind(documents, *WORKLOADS):
        temporary = [volume for volume in pod_of(workload)["volumes"] if "emptyDir" in volume]
        assert [volume["name"] for volume in temporary] == ["tmp"]
        assert temporary[0]["emptyDir"]["sizeLimit"]


def test_a_service_has_three_probes_that_name_its_ports(documents: list[Document]) -> None:
    for kind, container in containers(documents):
        if kind == "Job":
            assert not any(key.endswith("Probe") for key in container)
            continue
        names = {port["name"]: port["containerPort"] for port in container["ports"]}
        for probe in ("startupProbe", "readinessProbe", "livenessProbe"):
            (handler,) = {"grpc", "tcpSocket", "httpGet"} & set(container[probe])
            port = container[probe][handler]["port"]
            assert port in (names.values() if handler == "grpc" else names)


def test_storage_is_asked_by_grpc_and_liveness_never_asks_what_depends_on_others(documents: list[Document]) -> None:
    for kind, container in containers(documents):
        if kind != "Job":
            assert container["livenessProbe"]["httpGet"]["path"] == "/healthz"
        if container["name"] == "storage-svc":
            encrypted = any(mount["name"] == "tls" for mount in container["volumeMounts"])
            asked = {"httpGet": {"path": "/readyz", "port": "http"}} if encrypted else {"grpc": {"port": 50051}}
            assert asked.items() <= container["readinessProbe"].items()
            startup = container["startupProbe"]
            assert startup["failureThreshold"] * startup["periodSeconds"] >= 600


def test_grace_exceeds_the_stop_deadline_and_the_wait_before_it(documents: list[Document]) -> None:
    deadlines = {
        config["metadata"]["name"]: float(config["data"]["MILLRACE_STOP_DEADLINE_S"])
        for config in of_kind(documents, "ConfigMap")
        if "MILLRACE_STOP_DEADLINE_S" in config["data"]
    }
    assert list(deadlines.values()) in ([], [50.0])  # none before kustomize has made the ConfigMaps
    for workload in of_kind(documents, *WORKLOADS):
        pod = pod_of(workload)
        (container,) = pod["containers"]
        wait_s = 5 if "preStop" in container.get("lifecycle", {}) else 0
        names = [source["configMapRef"]["name"] for source in container.get("envFrom", [])]
        deadline_s = max([deadlines.get(name, 25.0) for name in names], default=25.0)
        assert pod["terminationGracePeriodSeconds"] >= wait_s + deadline_s + 5


def test_selectors_select_their_own_pods(documents: list[Document]) -> None:
    for workload in of_kind(documents, "Deployment", "StatefulSet"):
        selected = pods_selected_by(workload["spec"]["selector"]["matchLabels"], documents)
        assert [named(pod) for pod in selected] == [named(workload)]


def test_services_select_pods_and_their_ports(documents: list[Document]) -> None:
    for service in of_kind(documents, "Service"):
        (workload,) = pods_selected_by(service["spec"]["selector"], documents)
        ports = {port["name"] for port in pod_of(workload)["containers"][0]["ports"]}
        assert {port["targetPort"] for port in service["spec"]["ports"]} <= ports
        assert service["spec"].get("type", "ClusterIP") == "ClusterIP"


def test_storage_has_a_headless_service_and_keeps_its_volume(documents: list[Document]) -> None:
    (storage,) = of_kind(documents, "StatefulSet")
    (headless,) = [
        service
        for service in of_kind(documents, "Service")
        if service["metadata"]["name"] == storage["spec"]["serviceName"]
    ]
    assert (headless["spec"]["clusterIP"], headless["spec"]["publishNotReadyAddresses"]) == ("None", True)
    assert storage["spec"]["replicas"] == 1
    assert storage["spec"]["persistentVolumeClaimRetentionPolicy"] == {"whenDeleted": "Retain", "whenScaled": "Retain"}
    (claim,) = storage["spec"]["volumeClaimTemplates"]
    mounts = {mount["name"]: mount["mountPath"] for mount in pod_of(storage)["containers"][0]["volumeMounts"]}
    assert claim["spec"]["accessModes"] == ["ReadWriteOnce"]
    assert mounts[claim["metadata"]["name"]] == "/var/lib/millrace"


def test_every_service_has_a_disruption_budget_that_lets_nodes_drain(documents: list[Document]) -> None:
    guarded = []
    for budget in of_kind(documents, "PodDisruptionBudget"):
        assert budget["spec"]["maxUnavailable"] == 1
        (workload,) = pods_selected_by(budget["spec"]["selector"]["matchLabels"], documents)
        guarded.append(named(workload))
    assert sorted(guarded) == ["Deployment/admin-api", "Deployment/gateway-svc", "StatefulSet/storage-svc"]


def test_gateways_advertise_the_address_of_their_service(documents: list[Document]) -> None:
    (gateway,) = [document for document in documents if named(document) == "Deployment/gateway-svc"]
    environment = pod_of(gateway)["containers"][0]["env"]
    assert [variable["name"] for variable in environment] == ["POD_NAMESPACE", "MILLRACE_ADVERTISED_LISTENERS"]
    assert environment[1]["value"] == "INTERNAL://gateway-svc.$(POD_NAMESPACE).svc:9092"
    (service,) = [document for document in documents if named(document) == "Service/gateway-svc"]
    assert [(port["port"], port["targetPort"]) for port in service["spec"]["ports"]] == [(9092, "kafka")]


def test_gateways_read_no_volume(documents: list[Document]) -> None:
    """They may run on any node: records travel over gRPC."""
    (gateway,) = [document for document in documents if named(document) == "Deployment/gateway-svc"]
    assert [volume["name"] for volume in pod_of(gateway)["volumes"] if "secret" not in volume] == ["tmp"]
    settings = (K8S / "base" / "kustomization.yaml").read_text() + yaml.safe_dump_all(documents)
    assert "MILLRACE_GATEWAY_DATA_DIR" not in settings


def test_admin_api_serves_the_names_of_its_service_and_of_a_port_forward(documents: list[Document]) -> None:
    kustomization = yaml.safe_load((K8S / "base" / "kustomization.yaml").read_text())
    (settings,) = [each for each in kustomization["configMapGenerator"] if each["name"] == "admin-settings"]
    given = dict(literal.split("=", 1) for literal in settings["literals"])
    namespace = kustomization["namespace"]
    assert given["MILLRACE_ADMIN_ALLOWED_HOSTS"].split(",") == [
        "localhost",
        "127.0.0.1",
        "admin-api",
        f"admin-api.{namespace}",
        f"admin-api.{namespace}.svc",
    ]
    (admin,) = [document for document in documents if named(document) == "Deployment/admin-api"]
    (container,) = pod_of(admin)["containers"]
    health = f"0.0.0.0:{ {port['name']: port['containerPort'] for port in container['ports']}['health'] }"
    assert given["MILLRACE_ADMIN_HEALTH_HTTP"] == health
    assert {container[probe]["httpGet"]["port"] for probe in ("startupProbe", "readinessProbe", "livenessProbe")} == {
        "health"
    }


def test_rolling_out_never_takes_the_last_gateway(documents: list[Document]) -> None:
    for deployment in of_kind(documents, "Deployment"):
        assert deployment["spec"]["strategy"]["rollingUpdate"] == {"maxSurge": 1, "maxUnavailable": 0}


def test_nothing_passes_that_no_policy_allows(documents: list[Document]) -> None:
    policies = {policy["metadata"]["name"]: policy["spec"] for policy in of_kind(documents, "NetworkPolicy")}
    assert policies["default-deny"] == {"podSelector": {}, "policyTypes": ["Ingress", "Egress"]}
    for name, policy in policies.items():
        if name in ("default-deny", "allow-dns"):
            continue
        (workload,) = pods_selected_by(policy["podSelector"]["matchLabels"], documents)
        ports = {port["name"] for port in pod_of(workload)["containers"][0].get("ports", ())}
        for rule in policy.get("ingress", ()):
            assert rule["from"]
            assert {port["port"] for port in rule["ports"]} <= ports
        for rule in policy.get("egress", ()):
            assert rule["to"]
            assert rule["ports"]


def test_storage_answers_gateways_and_admin_api_only(documents: list[Document]) -> None:
    (policy,) = [document for document in documents if named(document) == "NetworkPolicy/storage-svc"]
    grpc, metrics = policy["spec"]["ingress"]
    peers = [peer["podSelector"]["matchLabels"]["app.kubernetes.io/name"] for peer in grpc["from"]]
    assert peers == ["gateway-svc", "admin-api"]
    assert [port["port"] for port in grpc["ports"]] == ["grpc"]
    assert [port["port"] for port in metrics["ports"]] == ["http"]
    assert "egress" not in policy["spec"]


def test_every_object_of_a_rendering_has_our_labels(documents: list[Document], is_rendered: bool) -> None:
    if not is_rendered:
        pytest.skip("kustomize adds them")
    unnamed = {"Namespace", "ConfigMap", "NetworkPolicy"}
    for document in documents:
        labels = document["metadata"]["labels"]
        wanted = LABELS[2:] if document["kind"] in unnamed else LABELS
        assert {f"app.kubernetes.io/{label}" for label in wanted} <= set(labels), named(document)
    for workload in of_kind(documents, *WORKLOADS):
        labels = workload["spec"]["template"]["metadata"]["labels"]
        assert {f"app.kubernetes.io/{label}" for label in LABELS} <= set(labels)


def test_images_are_pinned_and_settings_roll_the_pods(documents: list[Document], is_rendered: bool) -> None:
    if not is_rendered:
        pytest.skip("kustomize sets them")
    settings = {document["metadata"]["name"]: document["data"] for document in of_kind(documents, "ConfigMap")}
    for _, container in containers(documents):
        assert container["image"] == f"millrace/{container['name']}:0.1.0"
        (source,) = container["envFrom"]
        name = source["configMapRef"]["name"]
        assert name in settings
        assert name.startswith(f"{container['name'].split('-')[0]}-settings-")
        assert all(key.startswith("MILLRACE_") for key in settings[name])
        if container["name"] == "gateway-svc":
            assert settings[name]["MILLRACE_GATEWAY_NAME"] == "gateway-svc"


def test_everything_is_in_one_namespace(documents: list[Document], is_rendered: bool) -> None:
    if not is_rendered:
        pytest.skip("kustomize sets it")
    (namespace,) = of_kind(documents, "Namespace")
    inside = {document["metadata"]["namespace"] for document in documents if document is not namespace}
    assert inside == {namespace["metadata"]["name"]}


def test_overlays_change_what_they_say() -> None:
    def gateway(overlay: str) -> Document:
        return next(found for found in rendered(K8S / "overlays" / overlay) if named(found) == "Deployment/gateway-svc")

    assert gateway("dev")["spec"]["replicas"] == 1
    assert "replicas" not in gateway("prod")["spec"]
    (scaler,) = of_kind(documents_in(K8S / "overlays" / "prod"), "HorizontalPodAutoscaler")
    assert scaler["spec"]["scaleTargetRef"] == {"apiVersion": "apps/v1", "kind": "Deployment", "name": "gateway-svc"}
    assert scaler["spec"]["minReplicas"] >= 2
