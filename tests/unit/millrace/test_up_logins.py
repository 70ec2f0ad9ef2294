"""`millrace up` with a listener that asks for logins: the REST API has one of its own."""

import base64
import json
import urllib.error
import urllib.request

import pytest
from millrace.first_users import admin_mechanism
from up_process import RunningUp

ADMIN, PASSWORD = "admin", "change-me-soon"
SASL = {
    "MILLRACE_LISTENER_SECURITY_PROTOCOL_MAP": "EXTERNAL:SASL_PLAINTEXT",
    "MILLRACE_SASL_ENABLED_MECHANISMS": "SCRAM-SHA-512,PLAIN",
    "MILLRACE_ADMIN_AUTH": "users",
}


def produced(http, user, password):
    """Return the offset of a record that is written through the REST API, or the status of the refusal."""
    wanted = urllib.request.Request(
        f"http://{http}/v3/clusters/-/topics/orders/records",
        json.dumps({"value": {"type": "STRING", "data": "x"}}).encode(),
        {
            "content-type": "application/json",
            "authorization": "Basic " + base64.b64encode(f"{user}:{password}".encode()).decode(),
        },
    )
    try:
        with urllib.request.urlopen(wanted, timeout=60) as answer:
            return json.loads(answer.read()).get("offset")
    except urllib.error.HTTPError as error:
        return error.code


@pytest.mark.parametrize("layout", [(), ("--processes",)], ids=["combined", "separate"])
def test_the_rest_api_writes_records_before_and_after_a_restart(tmp_path, layout):
    users = tmp_path / "users.txt"
    users.write_text(f"{ADMIN} {PASSWORD}\nbob of-bob\n")
    data = tmp_path / "data"
    own = {"MILLRACE_USERS_FILE": str(users), "MILLRACE_AUTHORIZER": "acl", "MILLRACE_SUPER_USERS": "User:admin"}
    options = ("--data-dir", str(data), "--kafka-port", "0", "--http-port", "0", "--topics", "orders:1", *layout)
    passwords = set()
    for offset in (0, 1):
        with RunningUp(*options, environment={**SASL, **own}) as running:
            assert produced(running.http, ADMIN, PASSWORD) == offset
            assert produced(running.http, "bob", "of-bob") == 403, "the rights of the sender decide"
        kept = data / "admin-api.password"
        assert kept.stat().st_mode & 0o777 == 0o600
        passwords.add(kept.read_text())
    assert len(passwords) == 1


@pytest.mark.parametrize(
    ("variables", "expected"),
    [
        ({}, None),
        ({"MILLRACE_LISTENER_SECURITY_PROTOCOL_MAP": "EXTERNAL:SSL"}, None),
        (SASL, "SCRAM-SHA-512"),
        ({**SASL, "MILLRACE_ADMIN_GATEWAY_SASL_MECHANISM": "PLAIN"}, None),
        ({**SASL, "MILLRACE_SASL_ENABLED_MECHANISMS": "external:PLAIN,SCRAM-SHA-256"}, "PLAIN"),
        ({**SASL, "MILLRACE_SASL_ENABLED_MECHANISMS": "INTERNAL:PLAIN,SCRAM-SHA-256"}, "SCRAM-SHA-256"),
        ({**SASL, "MILLRACE_SASL_ENABLED_MECHANISMS": "OAUTHBEARER"}, ""),
    ],
)
def test_the_mechanism_of_the_rest_api(variables, expected):
    assert admin_mechanism(variables, "EXTERNAL") == expected
