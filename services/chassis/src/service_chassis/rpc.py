"""gRPC as our services use it: a channel and a server that know the version of the contract.

An address is `host:port` or `unix:/path`. Any gRPC client can call the server, and the channel any gRPC server. `tls`
is that of `internal_tls`, or None.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Any

from service_chassis.grpc_channel import Channel
from service_chassis.grpc_health import SERVICE, HealthService
from service_chassis.grpc_server import Server
from service_chassis.internal_tls import InternalTls
from service_chassis.version import VERSION

__all__ = ["HealthService", "channel", "server"]

#: The words of a user agent that name the caller's release and its version of the contract.
_PROGRAM, _CONTRACT = "millrace/", "contract/"


def channel(address: str, contract: str = "", *, tls: InternalTls | None = None) -> Channel:
    """Return a channel that connects when it is first used, and reconnects automatically.

    `contract` is the version of the contract. It travels with every call, in the user agent.
    """
    agent = f"{_PROGRAM}{VERSION} {_CONTRACT}{contract}" if contract else "millrace"
    return Channel(address, agent, tls=None if tls is None else tls.context)


def server(contract: str = "", *, tls: InternalTls | None = None) -> Server:
    """Return a server without services or ports.

    With `contract`, it refuses callers that have another version of the contract, or none: FAILED_PRECONDITION. Health
    checks need none.
    """
    end: dict[str, Any] = {} if tls is None else {"tls": tls.listening, "peer_refusal": tls.refusal}
    if not contract:
        return Server(**end)
    refused = functools.lru_cache(64)(functools.partial(_refusal, contract))

    def refusal(path: str, agent: str) -> str | None:
        return None if path.startswith(f"/{SERVICE}/") else refused(agent)

    return Server(refusal, **end)


def _refusal(contract: str, agent: str) -> str | None:
    """Return why a caller with this user agent is refused during a roll-out; None if it is of this release."""
    words = agent.split(" ")
    theirs = _word_after(_CONTRACT, words)
    if theirs == contract:  # mutant: release-checked
        return None
    return (
        f"storage is Millrace {VERSION} with contract {contract}, the caller is Millrace "
        f"{_word_after(_PROGRAM, words) or 'unknown'} with contract {theirs or 'unknown'}: "
        "all services must be of one release"
    )


def _word_after(prefix: str, words: Sequence[str]) -> str:
    return next((word.removeprefix(prefix) for word in words if word.startswith(prefix)), "")
