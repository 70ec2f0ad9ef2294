"""Where the schema registry is, and how to log in to it: the settings of every program that asks one."""

from __future__ import annotations

from urllib.parse import urlsplit

from service_chassis.settings import Settings, setting


def _check_url(text: str) -> None:
    parts = urlsplit(text)
    if text and (parts.scheme not in ("http", "https") or not parts.hostname or parts.query or parts.fragment):
        raise ValueError(f"{text!r} is not a URL as in https://registry.example/apis/ccompat/v7")
    if parts.username is not None:
        raise ValueError("the user belongs into another setting, the password into a file")


class RegistrySettings(Settings):
    """The registry and its login."""

    schema_registry: str = setting(
        "",
        check=_check_url,
        description=(
            "URL of the schema registry, in the form that Confluent's clients take: http://registry:8081, or"
            " http://registry:8080/apis/ccompat/v7 of Apicurio. Empty: records are not decoded by schemas."
        ),
    )
    schema_registry_user: str = setting("", description="User at the schema registry. Empty: no password is sent.")
    schema_registry_password_file: str = setting(
        "", description="Secret file with the password of that user in its first line."
    )
    schema_registry_token_file: str = setting(
        "", description="Secret file with a bearer token for the schema registry in its first line."
    )
    schema_registry_ca_file: str = setting(
        "", description="PEM file with the CAs of the schema registry's certificate. Empty: those of the system."
    )
    schema_registry_timeout_s: float = setting(
        1.0,
        gt=0,
        le=60,
        description=(
            "Longest wait for one answer of the schema registry, in seconds. A request waits 1.5 times as long for all"
            " of its schemas."
        ),
    )
