import subprocess
import sys

import pytest
from pydantic import Field, SecretStr
from service_chassis.settings import ServiceSettings, SettingsError, load, reference


class Example(ServiceSettings):
    size_max: int = Field(7, ge=1, description="Largest size | in\nthings.")
    password: SecretStr = Field(SecretStr(""), description="A secret.")


class Silent(ServiceSettings):
    quiet: bool = False


def test_environment_gives_values_and_arguments_win(monkeypatch):
    monkeypatch.setenv("MILLRACE_SIZE_MAX", "12")
    monkeypatch.setenv("MILLRACE_UNKNOWN", "ignored")
    assert load(Example).size_max == 12
    assert load(Example, size_max=13).size_max == 13


def test_errors_name_every_variable_and_no_value(monkeypatch):
    monkeypatch.setenv("MILLRACE_SIZE_MAX", "hunter2")
    monkeypatch.setenv("MILLRACE_LOG_LEVEL", "loud")
    with pytest.raises(SettingsError) as caught:
        load(Example)
    assert "MILLRACE_SIZE_MAX: " in str(caught.value)
    assert "MILLRACE_LOG_LEVEL: " in str(caught.value)
    assert "hunter2" not in str(caught.value)
    assert caught.value.__cause__ is None


def test_shown_masks_secrets():
    shown = load(Example, password="hunter2").shown()
    assert shown["password"] == "**********"
    assert shown["size_max"] == 7


def test_reference():
    assert reference([Example], leave_out=ServiceSettings.model_fields) == (
        "| variable | default | meaning |\n|---|---|---|\n"
        "| `MILLRACE_SIZE_MAX` | `7` | Largest size \\| in things. |\n"
        "| `MILLRACE_PASSWORD` | (empty) | A secret. |\n"
    )


def test_reference_needs_descriptions():
    with pytest.raises(SettingsError, match=r"Silent\.quiet has no description"):
        reference([Silent])


def test_reference_refuses_one_name_with_two_meanings():
    class Other(ServiceSettings):
        size_max: int = Field(8, description="Something else.")

    with pytest.raises(SettingsError, match="MILLRACE_SIZE_MAX"):
        reference([Example, Other])


def test_import_is_light():
    """Neither grpc nor prometheus: a settings class is read by short-lived commands too."""
    heavy = "{'grpc', 'prometheus_client'}"
    code = f"import sys, service_chassis.settings; print(sorted({heavy} & {{*sys.modules}}))"
    output = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert output == "[]\n"
