"""`millrace up` with a listener that asks for logins: the REST API has one, too."""

import base64
import json
import urllib.error
import urllib.request
from pathlib import Path

import pytest
from millrace.first_users import admin_mechanism
from up_process import RunningUp

ADMIN, PASSWORD = "admin", "change-me-soon"
SASL = {
    "MILLRACE_LISTENER_SECURITY_PROTOCOL_MAP": "EXTERNAL:SASL_PLAINTEXT",
    "MILLRACE_SASL_ENABLED_MECHANISMS": "SCRAM-SHA-512,PLAIN",
    "MILLRACE_ADMIN_AUTH": "users",
}


def basic(user, password):
    return "Basic " + base64.b64encode(f"{user}:{password}".encode()).decode()


def answered(http, path):
    wanted = urllib.request.Request(f"http://{http}{path}", headers={"authorization": basic(ADMIN, PASSWORD)})
    try:
        with urllib.request.urlopen(wanted, timeout=60) as answer:
            return answer.read()
    except urllib.error.HTTPError as error:
        return error.read()


def produced(http, user, password):
    """Return the offset of a record that is written through the REST API, or the status of the refusal."""
    wanted = urllib.request.Request(
        f"http://{http}/v3/clusters/-/topics/orders/records",
        json.dumps({"value": {"type": "STRING", "data": "x"}}).encode(),
        {
            "content-type": "application/json",
            "authorization": basic(user, password),
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
    passwords, shown = set(), []
    for offset in (0, 1):
        log = tmp_path / f"log-{offset}"
        with RunningUp(*options, environment={**SASL, **own, "MILLRACE_LOG_LEVEL": "debug"}, log_path=log) as running:
            assert produced(running.http, ADMIN, PASSWORD) == offset
            assert produced(running.http, "bob", "of-bob") == 403, "the rights of the sender decide"
            assert produced(running.http, "bob", "wrong-of-bob") == 401
            for path in ("/metrics", "/api/v1/users", "/v3/clusters", "/v3/clusters/-/broker-configs"):
                shown.append(answered(running.http, path))
            pids = [running.pid, *(pid for own_pids in running.services().values() for pid in own_pids)]
            shown += [Path(f"/proc/{pid}/cmdline").read_bytes() for pid in pids]
            for address in running.metrics().values():
                with urllib.request.urlopen(address, timeout=60) as answer:
                    shown.append(answer.read())
        shown.append(log.read_bytes())
        kept = data / "admin-api.password"
        assert kept.stat().st_mode & 0o777 == 0o600
        passwords.add(kept.read_text().strip())
    assert len(passwords) == 1
    assert b"login refused" in shown[-1]
    secrets = [PASSWORD, "of-bob", *passwords, basic(ADMIN, PASSWORD)[6:], basic("bob", "of-bob")[6:]]
    assert [text[:100] for text in shown if any(secret.encode() in text for secret in secrets)] == []


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
