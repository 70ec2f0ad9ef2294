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
    assert str(caught.value) == (
        "MILLRACE_LOG_LEVEL: must be 'debug', 'info', 'warning' or 'error'; MILLRACE_SIZE_MAX: not a whole number"
    )
    assert caught.value.__cause__ is None


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"size_max": 0}, "MILLRACE_SIZE_MAX: must be 1 or more"),
        ({"size_max": "1" * 5000}, "MILLRACE_SIZE_MAX: too many digits"),
        ({"stop_deadline_s": 0}, "MILLRACE_STOP_DEADLINE_S: must be above 0"),
        ({"stop_deadline_s": 4000}, "MILLRACE_STOP_DEADLINE_S: must be 3600 or less"),
        ({"stop_deadline_s": "soon"}, "MILLRACE_STOP_DEADLINE_S: not a number"),
        ({"stop_on_stdin": "perhaps"}, "MILLRACE_STOP_ON_STDIN: neither true nor false"),
    ],
)
def test_a_fault_has_our_words(given, words):
    with pytest.raises(SettingsError) as caught:
        load(Example, **given)
    assert str(caught.value) == words


def test_of_changed_settings_the_others_are_left_out(monkeypatch):
    monkeypatch.delenv("MILLRACE_EVENT_LOOP_STALL_FILE", raising=False)  # the tests' guard of event loops
    assert load(Example, size_max=8).shown(changed_only=True) == {"size_max": 8}


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
