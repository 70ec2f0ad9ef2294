"""Can the time of a failed login tell users from other names? Prints the area under the ROC curve (AUC).

    python bench/login_timing.py [--trials 10000] [--mechanism PLAIN]

A trial is a login with a wrong password over a new connection, by chance with a user's name or with another one. The
time from the first token to the last answer counts. At 0.5 nobody can tell. The fixed delay of failures is a timer of
the event loop, and could hide a difference of microseconds: trials run without it. Names are of one length.
"""

from __future__ import annotations

import argparse
import asyncio
import random
import struct
import tempfile
import time
from pathlib import Path

from gateway_svc.app import Gateway
from gateway_svc.sasl import login
from millrace.direct import DirectSettings, direct_storage
from protocol_lib.codec import decode, encode
from protocol_lib.headers import RequestHeader, decode_response_header, encode_request_header
from protocol_lib.messages.sasl_authenticate import SaslAuthenticateRequest, SaslAuthenticateResponse
from protocol_lib.messages.sasl_handshake import SaslHandshakeRequest
from protocol_lib.plain import PlainToken, encode_plain
from protocol_lib.scram import ScramClient, ScramMechanism
from service_chassis import logs
from storage_svc.app import Storage

USERS = 100
_SCRAM = {each.mechanism_name: each for each in ScramMechanism}


async def trial(port: int, mechanism: str, name: str) -> float:
    """Return the seconds of a failed login."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)

    async def call(api_key: int, version: int, request: object) -> bytes:
        frame = encode_request_header(RequestHeader(api_key, version, 1, "timing")) + encode(request, version)
        writer.write(struct.pack(">i", len(frame)) + frame)
        (size,) = struct.unpack(">i", await reader.readexactly(4))
        return await reader.readexactly(size)

    async def authenticate(token: bytes) -> SaslAuthenticateResponse:
        frame = await call(36, 1, SaslAuthenticateRequest(auth_bytes=token))
        _, position = decode_response_header(36, 1, frame)
        answer: SaslAuthenticateResponse = decode(SaslAuthenticateResponse, 1, frame, position)
        return answer

    await call(17, 1, SaslHandshakeRequest(mechanism=mechanism))
    if mechanism == "PLAIN":
        token = encode_plain(PlainToken(name, "wrong"))
        started = time.perf_counter()
        answer = await authenticate(token)
        taken_s = time.perf_counter() - started
    else:
        client = ScramClient(_SCRAM[mechanism], name, "wrong")
        started = time.perf_counter()
        challenge = await authenticate(client.first())
        taken_s = time.perf_counter() - started
        final = client.final(bytes(challenge.auth_bytes))
        started = time.perf_counter()
        answer = await authenticate(final)
        taken_s += time.perf_counter() - started
    assert answer.error_code == 58
    writer.close()
    return taken_s


def area(users: list[float], others: list[float]) -> float:
    """Return the area under the ROC curve: the chance that a user's time is the longer one."""
    ranked = sorted([(each, True) for each in users] + [(each, False) for each in others])
    ranks = sum(rank for rank, (_, is_user) in enumerate(ranked, 1) if is_user)
    return (ranks - len(users) * (len(users) + 1) / 2) / (len(users) * len(others))


async def measure(trials: int, mechanism: str) -> float:
    """Return the AUC of so many trials, or 1 minus it: the greater one."""
    login.FAILURE_DELAY_S = 0.0  # type: ignore[misc]
    chance = random.Random(7)
    with tempfile.TemporaryDirectory() as folder, logs.configured("timing", "error", "text"):
        users = Path(folder) / "users"
        users.write_text("".join(f"user{number:04} secret-{number}\n" for number in range(USERS)))
        settings = DirectSettings(
            data_dir=Path(folder) / "data",
            listeners="EXTERNAL://127.0.0.1:0",
            listener_security_protocol_map="EXTERNAL:SASL_PLAINTEXT",
            sasl_enabled_mechanisms=mechanism,
            users_file=str(users),
            gateway_http="",
            connections_per_second=0,
        )
        core = await Storage.start(settings)
        gateway = await Gateway.start(settings, direct_storage(core))
        port = gateway.addresses["EXTERNAL"][1]
        times: dict[bool, list[float]] = {True: [], False: []}
        for number in range(trials + 100):
            is_user = chance.random() < 0.5
            name = f"{'user' if is_user else 'none'}{chance.randrange(USERS):04}"
            taken_s = await trial(port, mechanism, name)
            if number >= 100:  # the first ones compile and fill caches
                times[is_user].append(taken_s)
        await gateway.stop()
        await core.stop()
    found = area(times[True], times[False])
    return max(found, 1 - found)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--trials", type=int, default=10_000)
    parser.add_argument("--mechanism", choices=["PLAIN", *_SCRAM], action="append")
    given = parser.parse_args()
    for mechanism in given.mechanism or ["PLAIN", *_SCRAM]:
        print(f"{mechanism}: AUC {asyncio.run(measure(given.trials, mechanism)):.3f} of {given.trials} failed logins")


if __name__ == "__main__":
    main()
