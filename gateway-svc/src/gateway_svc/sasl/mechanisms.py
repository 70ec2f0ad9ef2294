"""The SASL mechanisms of a gateway's listeners, and what they share: threads, known passwords, keys, sessions.

    MILLRACE_SASL_ENABLED_MECHANISMS=SCRAM-SHA-512,INTERNAL:PLAIN,INTERNAL:OAUTHBEARER

A mechanism with the name of a listener is for that listener, which then has no others. The others are for all listeners
with SASL.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from broker_contract.user_revisions import UserRevisions
from protocol_lib.scram import ScramMechanism
from service_chassis.bearer_tokens import BearerTokens
from service_chassis.password_checks import PasswordChecks

from gateway_svc.metrics import GatewayMetrics
from gateway_svc.sasl.exchanges import BearerExchange, Exchange, PlainExchange, ScramExchange
from gateway_svc.sasl.session import Sessions
from gateway_svc.settings import GatewaySettings, parse_mechanisms
from gateway_svc.storage.protocols import Users

_SCRAM: Final = {each.mechanism_name: each for each in ScramMechanism}


class Mechanisms:
    """Owner: the gateway. `close` must follow."""

    def __init__(
        self, settings: GatewaySettings, users: Users, revisions: UserRevisions, metrics: GatewayMetrics
    ) -> None:
        """Start no thread before the first login."""
        self._users = users
        self.sessions = Sessions(revisions)
        #: The counters of logins.
        self.metrics = metrics
        self._by_listener = parse_mechanisms(settings.sasl_enabled_mechanisms)
        #: Milliseconds after which a client must log in again; 0: never, unless its token ends.
        self.session_max_ms = settings.connections_max_reauth_ms
        self._passwords = PasswordChecks()
        self._tokens = BearerTokens(settings)

    def of(self, listener: str) -> Sequence[str]:
        """Return the names of a listener's mechanisms, in the order of the setting."""
        return self._by_listener.get(listener.upper()) or self._by_listener.get("", ())

    def exchange(self, name: str) -> Exchange:
        """Begin an exchange of a mechanism, which must be one of a listener's."""
        if name == "PLAIN":
            return PlainExchange(self._users, self._passwords)
        if name in _SCRAM:
            return ScramExchange(_SCRAM[name], self._users)
        return BearerExchange(self._tokens)

    def close(self) -> None:
        self._passwords.close()
        self._tokens.close()
