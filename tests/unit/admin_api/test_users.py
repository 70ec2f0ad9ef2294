"""Users with a password over HTTP, and that no password leaves again."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import httpx
import pytest
from broker_contract import users_pb2
from protocol_lib.scram import ScramCredential, ScramMechanism
from service_chassis import logs

from tests.unit.admin_api.conftest import until_ready

if TYPE_CHECKING:
    from tests.unit.admin_api.conftest import Stack

USERS = "/api/v1/users"
SECRET = "only-in-this-test"
SHA_256, SHA_512 = "SCRAM-SHA-256", "SCRAM-SHA-512"


def refusal(answer: httpx.Response) -> tuple[int, int, str]:
    return answer.status_code, answer.json()["error_code"], answer.json()["message"]


def credential(stack: Stack, name: str, mechanism: ScramMechanism) -> ScramCredential:
    request = users_pb2.FindCredentialRequest(user=name, mechanisms=[mechanism.value])
    found = stack.loop.run(stack.core.users.find_credential(request))
    return ScramCredential(found.salt, found.iterations, found.stored_key, found.server_key)


def test_made_changed_listed_and_deleted(stack: Stack) -> None:
    path = f"{USERS}/ann%2Fü"
    made = stack.http.put(path, json={"password": SECRET})
    assert (made.status_code, made.content) == (204, b"")
    both = [{"mechanism": SHA_256, "iterations": 8192}, {"mechanism": SHA_512, "iterations": 8192}]
    assert stack.http.get(path).json() == {"user_name": "ann/ü", "credentials": both}
    for mechanism in ScramMechanism:
        assert credential(stack, "ann/ü", mechanism).fits(mechanism, SECRET)
    stack.http.put(path, json={"password": "another", "mechanism": SHA_256, "iterations": 4096})
    both[0]["iterations"] = 4096
    assert {"user_name": "ann/ü", "credentials": both} in stack.http.get(USERS).json()["data"]
    assert credential(stack, "ann/ü", ScramMechanism.SHA_256).fits(ScramMechanism.SHA_256, "another")
    assert not credential(stack, "ann/ü", ScramMechanism.SHA_512).fits(ScramMechanism.SHA_512, "another")
    assert stack.http.delete(path, params={"mechanism": SHA_256}).status_code == 204
    absent = (404, 404, "There is no such user, or it has no such password.")
    assert refusal(stack.http.delete(path, params={"mechanism": SHA_256})) == absent
    assert stack.http.get(path).json()["credentials"] == both[1:]
    assert stack.http.delete(path).status_code == 204
    assert refusal(stack.http.get(path)) == refusal(stack.http.delete(path)) == absent


def test_pages(stack: Stack) -> None:
    for name in ("page-a", "page-b", "page-c"):
        stack.http.put(f"{USERS}/{name}", json={"password": SECRET, "mechanism": SHA_256, "iterations": 4096})
    names = []
    url: str | None = f"{USERS}?page_size=2"
    while url is not None:
        answer = stack.http.get(url).json()
        names += [each["user_name"] for each in answer["data"]]
        url = answer["next"]
    assert names == sorted(names)
    assert [each for each in names if each.startswith("page-")] == ["page-a", "page-b", "page-c"]
    for name in ("page-a", "page-b", "page-c"):
        stack.http.delete(f"{USERS}/{name}")


@pytest.mark.parametrize(
    ("name", "change", "expected"),
    [
        ("few", {"iterations": 4095}, (400, 40002, "Too few iterations")),
        ("many", {"iterations": 16385}, (400, 40002, "Too many iterations")),
        ("x" * 1025, {}, (400, 40002, "A user name has at most 1024 bytes")),
        ("other", {"mechanism": "SCRAM-SHA-1"}, (400, 400, "body.mechanism: Input should be 'SCRAM-SHA-256' or ")),
        ("empty", {"password": ""}, (400, 400, "body.password: Value should have at least 1 item")),
        ("long", {"password": SECRET * 100}, (400, 400, "body.password: Value should have at most 1024 items")),
        ("wrong", {"password": [SECRET]}, (400, 400, "body.password.list: Input should be a valid string")),
    ],
)
def test_what_cannot_be_a_user(stack: Stack, name: str, change: dict[str, Any], expected: tuple[int, int, str]) -> None:
    answer = stack.http.put(f"{USERS}/{name}", json={"password": SECRET, **change})
    status, code, message = refusal(answer)
    assert (status, code) == expected[:2]
    assert message.startswith(expected[2].replace("password.list", "password")), message
    assert SECRET not in answer.text
    assert stack.http.get(f"{USERS}/{name}").status_code == 404


def test_a_password_is_in_no_answer_and_no_line(stack: Stack, monkeypatch: pytest.MonkeyPatch) -> None:
    lines: list[str] = []
    audited: list[dict[str, Any]] = []

    def write(log: logs.Logger, event: str, **fields: Any) -> None:
        lines.append(f"{log.name} {event} {fields}")
        if log.name == "admin_api.audit":
            audited.append(fields)

    for level in ("debug", "info", "warning", "error", "exception"):
        monkeypatch.setattr(logs.Logger, level, write)
    monkeypatch.setattr(logs.Logger, "debug_enabled", property(lambda _: True))
    answers = [
        stack.http.put(f"{USERS}/quiet", json={"password": SECRET}),
        stack.http.get(f"{USERS}/quiet"),
        stack.http.get(USERS),
        stack.http.put(f"{USERS}/quiet", json={"password": SECRET, "iterations": 1}),
        stack.http.put(f"{USERS}/quiet", json={"password": {"in": SECRET}}),
        stack.http.put(f"{USERS}/quiet", json={"password": SECRET, SECRET: 1}),
        stack.http.put(
            f"{USERS}/quiet", content=f'{{"password": "{SECRET}"', headers={"content-type": "application/json"}
        ),
        stack.http.delete(f"{USERS}/quiet"),
    ]
    assert [each.status_code for each in answers] == [204, 200, 200, 400, 400, 400, 400, 204]
    until_ready(lambda: len(audited) == 6)  # the line of a request follows its answer
    stored = [credential(stack, "quiet", each) for each in ScramMechanism]
    secrets = [SECRET, *(each.salt.hex() for each in stored), *(each.stored_key.hex() for each in stored)]
    # The name of an unknown field is the caller's own, and in its own answer alone.
    shown = [each.text for each in (*answers[:5], *answers[6:])] + lines
    assert [text for text in shown if any(each in text for each in secrets)] == []
    assert [(each["operation"], each["status"], each.get("mechanism")) for each in audited] == [
        ("setUserPassword", 204, "both"),
        ("setUserPassword", 400, "both"),
        *[("setUserPassword", 400, None)] * 3,
        ("deleteUser", 204, "both"),
    ]
    assert {each["path"] for each in audited} == {f"{USERS}/quiet"}
