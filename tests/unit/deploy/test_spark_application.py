"""k8s/overlays/spark-application: its objects, and that the image has everything that the operator's pods need."""

import os
import shutil
import subprocess
from pathlib import Path
from typing import Any

import jsonschema
import kubernetes_validate
import pytest
import yaml
from support.late import Late

session = Late("spark_etl.jvm.session")

ROOT = Path(__file__).parents[3]
OVERLAY = ROOT / "k8s" / "overlays" / "spark-application"
Document = dict[str, Any]


@pytest.fixture(scope="module")
def documents() -> list[Document]:
    return list(yaml.safe_load_all((OVERLAY / "application.yaml").read_text()))


@pytest.fixture(scope="module")
def application(documents: list[Document]) -> Document:
    (found,) = [document for document in documents if document["kind"] == "SparkApplication"]
    assert found["apiVersion"] == "sparkoperator.k8s.io/v1beta2"
    return dict(found["spec"])


@pytest.mark.parametrize("version", ["1.31.0", "1.36.0"])
def test_every_object_of_kubernetes_is_valid(documents: list[Document], version: str) -> None:
    own = [document for document in documents if document["kind"] != "SparkApplication"]
    assert {document["kind"] for document in own} == {
        "ServiceAccount",
        "Role",
        "RoleBinding",
        "PersistentVolumeClaim",
        "NetworkPolicy",
    }
    for document in own:
        kubernetes_validate.validate(document, version, strict=True)


def closed(schema: Any) -> Any:
    """Return a schema of a CustomResourceDefinition that refuses fields it does not name."""
    if isinstance(schema, list):
        return [closed(each) for each in schema]
    if not isinstance(schema, dict):
        return schema
    found = {name: closed(each) for name, each in schema.items()}
    if found.pop("x-kubernetes-int-or-string", False):
        found.pop("type", None)
    opened = {"additionalProperties", "x-kubernetes-preserve-unknown-fields"} & set(found)
    return found if opened or "properties" not in found else {**found, "additionalProperties": False}


def test_the_application_fits_the_operators_own_schema() -> None:
    """MILLRACE_TEST_SPARK_CRD names the operator's sparkoperator.k8s.io_sparkapplications.yaml; it is not ours."""
    path = os.environ.get("MILLRACE_TEST_SPARK_CRD")
    if path is None:
        pytest.skip("MILLRACE_TEST_SPARK_CRD names no file")
    versions = yaml.safe_load(Path(path).read_text())["spec"]["versions"]
    (schema,) = [each["schema"]["openAPIV3Schema"] for each in versions if each["name"] == "v1beta2"]
    documents = yaml.safe_load_all((OVERLAY / "application.yaml").read_text())
    (application,) = [each for each in documents if each["kind"] == "SparkApplication"]
    checker = jsonschema.Draft202012Validator(closed(schema["properties"]["spec"]))
    assert [error.message for error in checker.iter_errors(application["spec"])] == []
    application["spec"]["driver"]["core"] = 1
    (found,) = checker.iter_errors(application["spec"])
    assert "'core' was unexpected" in found.message


def test_driver_and_executors_have_no_privileges_and_the_same_volumes(application: Document) -> None:
    for role in ("driver", "executor"):
        pod = application[role]
        assert pod["securityContext"] == {
            "allowPrivilegeEscalation": False,
            "readOnlyRootFilesystem": True,
            "capabilities": {"drop": ["ALL"]},
        }
        assert pod["podSecurityContext"]["runAsNonRoot"] is True
        assert pod["podSecurityContext"]["runAsUser"] == 10001
        assert {mount["name"] for mount in pod["volumeMounts"]} == {volume["name"] for volume in application["volumes"]}
        assert pod["labels"]["millrace.io/kafka-client"] == "true"  # base/network-policies.yaml admits these
        assert pod["envFrom"] == [{"configMapRef": {"name": "spark-settings"}}]


def test_the_main_file_and_the_jars_are_in_the_image(application: Document) -> None:
    dockerfile = (ROOT / "assembly" / "Dockerfile").read_text()
    main = application["mainApplicationFile"].removeprefix("local:///opt/venv/lib/python3.11/site-packages/")
    assert (ROOT / "spark" / "src" / main).is_file()
    assert application["arguments"] == ["run", "/pipelines/flights.yaml"]
    assert "COPY spark/pipelines /pipelines\n" in dockerfile
    assert "MILLRACE_ETL_JARS_DIR=/opt/spark-jars" in dockerfile
    for role in ("driver", "executor"):
        assert application["sparkConf"][f"spark.{role}.extraClassPath"] == "/opt/spark-jars/*"
        assert application["sparkConf"][f"spark.{role}.extraJavaOptions"] == session.OF_EVERY_JVM
    assert f'"pyspark=={application["sparkVersion"]}"' in (ROOT / "pyproject.toml").read_text()
    assert application["image"] == "millrace/spark:0.1.0"


def test_the_driver_may_start_executors_and_nothing_outside_its_namespace(documents: list[Document]) -> None:
    (binding,) = [document for document in documents if document["kind"] == "RoleBinding"]
    (role,) = [document for document in documents if document["kind"] == "Role"]
    assert binding["roleRef"]["name"] == role["metadata"]["name"] == "spark-driver"
    assert [rule["apiGroups"] for rule in role["rules"]] == [[""]]
    assert role["rules"][0]["resources"] == ["pods", "services", "configmaps", "persistentvolumeclaims"]


def test_the_driver_has_time_to_finish_its_batch(application: Document) -> None:
    assert application["driver"]["terminationGracePeriodSeconds"] == 120
    assert application["restartPolicy"]["type"] == "OnFailure"


def test_the_overlay_is_rendered_with_the_settings_under_their_plain_name() -> None:
    kubectl = shutil.which("kubectl")
    if kubectl is None:
        pytest.skip("kubectl is not installed")
    done = subprocess.run([kubectl, "kustomize", str(OVERLAY)], capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    found = list(yaml.safe_load_all(done.stdout))
    (settings,) = [each for each in found if each["metadata"]["name"] == "spark-settings"]
    assert settings["data"]["MILLRACE_BOOTSTRAP_SERVERS"] == "gateway-svc:9092"
