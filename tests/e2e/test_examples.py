"""The programs of `examples` and the manifests of docs/kubernetes.md run, or are valid, as they are."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import textwrap
from collections.abc import Iterator
from pathlib import Path

import kubernetes_validate
import pytest
import yaml
from millrace.broker import Broker

ROOT = Path(__file__).parents[2]
EXAMPLES = ROOT / "examples"
#: The output of each example.
PRINTED = {
    "produce_consume.py": "produced 10\nconsumed 10\n",
    "async_group.py": "billed 10 in 5 records\n",
    "kcat.sh": "all of it:\nalice 3 source=example\nbob 5 source=example\nalice 4 source=example\n"
    "the newest record:\n2 alice 4\n",
    "rest.sh": '"value":"60000"\ndeleted: 204\n',
    "ProduceConsume.java": "consumed 5\n",
}
#: Folders: the tests of docs/etl.md and docs/schemas.md run their files.
PIPELINES = {"etl", "schemas"}


@pytest.fixture(scope="module")
def broker() -> Iterator[Broker]:
    with Broker(admin=True) as broker:
        yield broker


def run(broker: Broker, *command: str) -> str:
    assert broker.http_address is not None
    host, port = broker.http_address
    environment = {**os.environ, "BOOTSTRAP": broker.bootstrap_servers, "HTTP": f"{host}:{port}"}
    done = subprocess.run(command, capture_output=True, text=True, timeout=100, env=environment)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_every_example_is_listed_and_tested() -> None:
    found = {path.name for path in EXAMPLES.iterdir()} - {"README.md", "__pycache__"}
    listed = set(re.findall(r"^\| \[[\w.]+\]\(([\w.]+)", (EXAMPLES / "README.md").read_text(), re.MULTILINE))
    assert found == listed == PRINTED.keys() | PIPELINES


@pytest.mark.parametrize("name", [name for name in PRINTED if name.endswith(".py")])
def test_python(broker: Broker, name: str) -> None:
    assert run(broker, sys.executable, str(EXAMPLES / name)) == PRINTED[name]


@pytest.mark.parametrize("name", [name for name in PRINTED if name.endswith(".sh")])
def test_shell(broker: Broker, name: str) -> None:
    for needed in ("kcat", "curl"):
        if shutil.which(needed) is None and not os.environ.get("CI"):
            pytest.skip(f"{needed} is not installed")
    assert run(broker, "bash", str(EXAMPLES / name)) == PRINTED[name]


@pytest.mark.conformance
def test_java(broker: Broker) -> None:
    from support.kafka_broker import libraries, need_java

    need_java()
    assert run(broker, "java", "-cp", libraries(), str(EXAMPLES / "ProduceConsume.java")) == "consumed 5\n"


def manifests() -> dict[str, str]:
    text = (ROOT / "docs" / "kubernetes.md").read_text()
    blocks = re.findall(r"<!-- manifest: (\w+) -->\n *```yaml\n(.*?)\n *```", text, flags=re.S)
    return {name: textwrap.dedent(block) for name, block in blocks}


def test_manifests_for_access_from_outside_are_valid() -> None:
    service, policy = yaml.safe_load_all(manifests()["external"])
    for document in (service, policy):
        kubernetes_validate.validate(document, "1.31.0", strict=True)
    patch = yaml.safe_load(yaml.safe_load(manifests()["kustomization"])["patches"][0]["patch"])
    gateway = next(
        each
        for each in yaml.safe_load_all((ROOT / "k8s/base/gateway.yaml").read_text())
        if each["kind"] == "Deployment"
    )
    container = gateway["spec"]["template"]["spec"]["containers"][0]
    assert container["env"][1]["name"] == "MILLRACE_ADVERTISED_LISTENERS"  # the patch replaces it by its number
    assert [step["path"].rpartition("/containers/0/")[2] for step in patch] == ["env/1/value", "ports/-"]
    assert service["spec"]["selector"].items() <= gateway["spec"]["template"]["metadata"]["labels"].items()
    assert service["spec"]["ports"][0]["targetPort"] == patch[1]["value"]["name"]


def test_the_overlay_for_access_from_outside_is_rendered(tmp_path: Path) -> None:
    kubectl = shutil.which("kubectl")
    if kubectl is None:
        pytest.skip("kubectl is not installed")
    shutil.copytree(ROOT / "k8s", tmp_path / "k8s")
    overlay = tmp_path / "k8s" / "overlays" / "outside"
    overlay.mkdir()
    for name, text in manifests().items():
        (overlay / f"{name}.yaml").write_text(text)
    done = subprocess.run([kubectl, "kustomize", str(overlay)], capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    assert "EXTERNAL://kafka.example.com:9094" in done.stdout
    certificates = [each for each in yaml.safe_load_all(done.stdout) if each["kind"] == "Certificate"]
    (gateway,) = [each for each in certificates if each["metadata"]["name"] == "gateway-svc"]
    assert gateway["spec"]["dnsNames"][-1] == "kafka.example.com"
