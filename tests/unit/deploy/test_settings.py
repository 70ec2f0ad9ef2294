"""Every MILLRACE_* variable that a deployment file sets exists in the service it is for, and its value is accepted."""

import re
from pathlib import Path
from typing import Any

import pytest
import yaml
from admin_api.settings import AdminSettings
from gateway_svc.settings import GatewaySettings
from service_chassis.schema_registry.settings import RegistrySettings
from service_chassis.settings import Settings
from spark_etl.settings import EtlSettings
from storage_svc.settings import StorageSettings

ROOT = Path(__file__).parents[3]
SETTINGS: dict[str, type[Settings] | type[EtlSettings]] = {
    "storage-svc": StorageSettings,
    "gateway-svc": GatewaySettings,
    "admin-api": AdminSettings,
    "spark": EtlSettings,
}


def pipeline_variables() -> set[str]:
    """Return the variables that a pipeline file reads from the environment, or from the files that they name."""
    names = set(re.findall(r"\$\{(MILLRACE_[A-Z_]+)", (ROOT / "spark" / "pipelines" / "flights.yaml").read_text()))
    return names | {f"{name}_FILE" for name in names}


def from_compose() -> dict[str, dict[str, str]]:
    text = re.sub(r"\$\{[A-Z_]+:-([^}]*)\}", r"\1", (ROOT / "docker-compose.yml").read_text())
    services = yaml.safe_load(text)["services"]
    return {name: services[name]["environment"] for name in SETTINGS}


def from_secured_compose() -> dict[str, dict[str, str]]:
    services = yaml.safe_load((ROOT / "docker-compose.secured.yml").read_text())["services"]
    return {name: given | services[name]["environment"] for name, given in from_compose().items()}


def from_images() -> dict[str, dict[str, str]]:
    found: dict[str, dict[str, str]] = {}
    for stage in (ROOT / "assembly" / "Dockerfile").read_text().split("\nFROM ")[1:]:
        name = stage.split("\n", 1)[0].split(" AS ")[1]
        if name in SETTINGS:
            found[name] = dict(re.findall(r"(MILLRACE_[A-Z_]+)=(\S+)", stage))
    return found


def from_kubernetes() -> dict[str, dict[str, str]]:
    found: dict[str, dict[str, str]] = {}
    overlays = ("overlays/dev", "overlays/prod", "overlays/spark-job", "overlays/spark-application")
    for overlay in ("base", *overlays, "components/secured", "overlays/secured-spark-job"):
        kustomization: dict[str, Any] = yaml.safe_load((ROOT / "k8s" / overlay / "kustomization.yaml").read_text())
        for generator in kustomization["configMapGenerator"]:
            service = next(name for name in SETTINGS if name.split("-")[0] == generator["name"].split("-")[0])
            found.setdefault(service, {}).update(literal.split("=", 1) for literal in generator["literals"])
    advertised = "INTERNAL://gateway-svc.millrace.svc:9092"
    found["gateway-svc"]["MILLRACE_ADVERTISED_LISTENERS"] = advertised
    return found


@pytest.mark.parametrize("name", SETTINGS)
@pytest.mark.parametrize(
    "source",
    [from_compose, from_secured_compose, from_images, from_kubernetes],
    ids=["compose", "secured compose", "images", "kubernetes"],
)
def test_variables_exist_and_their_values_are_accepted(source: Any, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    environment = source().get(name, {})
    assert environment
    settings_class = SETTINGS[name]
    fields = settings_class.fields if issubclass(settings_class, Settings) else settings_class.model_fields
    known = {f"MILLRACE_{field.upper()}" for field in fields}
    if name == "spark":
        known |= pipeline_variables() | {f"MILLRACE_{field.upper()}" for field in RegistrySettings.fields}
    assert set(environment) <= known

    for variable, value in environment.items():
        monkeypatch.setenv(variable, str(value))
    settings = settings_class()
    shown = settings.shown() if isinstance(settings, Settings) else settings.model_dump(mode="json")
    if name == "spark":
        shown |= RegistrySettings().shown()

    for variable, value in environment.items():
        field = variable.removeprefix("MILLRACE_").lower()
        if field in shown:
            assert str(shown[field]).lower() == str(value).lower()
