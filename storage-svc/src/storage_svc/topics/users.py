"""Users: the SCRAM credentials that the catalog keeps (KIP-554; Kafka's ScramControlManager and ScramImage).

    find       the credential of a name, real or made up, and its revision; a login asks for one at a time
    describe   the mechanisms and iterations of users, never salts or keys
    alter      per user: 93 for an empty name or iterations out of bounds, 33 for an unknown mechanism, 91 for a
               deletion of what is not there, 92 for a user that is named twice. The user's sessions end

A name that is no user's gets a credential of the form that most credentials have. The form is the mechanism, the
iterations, and the alphabet and length of the salt. Its salt is always the same, from a secret of the catalog. No
password fits. So neither an answer nor its time shows which users exist.
"""

from __future__ import annotations

import hashlib
import secrets
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from protocol_lib.errors import ErrorCode
from protocol_lib.scram import ITERATIONS_MAX, ITERATIONS_MIN, ScramCredential, ScramMechanism
from service_chassis import logs as service_logs

from storage_svc.topics.access_rules import AccessRules
from storage_svc.topics.catalog import Catalog
from storage_svc.topics.catalog_file import CatalogError
from storage_svc.topics.change_order import ChangeOrder

log = service_logs.get(__name__)

#: Users, and the bytes of a name and of a salt.
USERS_MAX: Final = 100_000
NAME_MAX: Final = 1_024
SALT_MAX: Final = 1_024

#: Iterations of the credentials that storage makes.
ITERATIONS: Final = 8_192

#: Digits of the salts that Kafka's own tool makes.
_BASE_36: Final = b"0123456789abcdefghijklmnopqrstuvwxyz"

_MECHANISMS: Final = {each.value: each for each in ScramMechanism}

#: The credentials of users: by name and mechanism.
Credentials = Mapping[str, Mapping[ScramMechanism, ScramCredential]]


@dataclass(frozen=True, slots=True)
class Deletion:
    user: str
    mechanism: int


@dataclass(frozen=True, slots=True)
class Upsertion:
    user: str
    mechanism: int
    iterations: int
    salt: bytes
    salted_password: bytes = field(repr=False)


@dataclass(frozen=True, slots=True)
class Refusal:
    """The reason why a user's credentials were not altered."""

    error: ErrorCode
    message: str


@dataclass(frozen=True, slots=True)
class _Form:
    """All of a credential that a client can see without the password."""

    mechanism: ScramMechanism
    iterations: int
    salt_size: int
    is_base_36: bool


class Users:
    """Owner: the storage service's event loop."""

    def __init__(self, catalog: Catalog, credentials: Credentials, secret: bytes, rules: AccessRules) -> None:
        """Begin with the credentials of the catalog.

        `secret` makes the salts of names that are no user's. `rules` have the revisions of users, which gateways
        follow.
        """
        self._catalog = catalog
        self._rules = rules
        self._secret = secret
        self._users = {name: dict(own) for name, own in credentials.items()}
        self._order = ChangeOrder()
        #: The forms of each user's credentials, and of the first one of each, counted.
        self._forms: Counter[_Form] = Counter()
        self._first_forms: Counter[_Form] = Counter()
        for name in self._users:
            self._count(name, 1)

    def __len__(self) -> int:
        return len(self._users)

    def find(self, user: str, mechanisms: Sequence[ScramMechanism]) -> tuple[ScramMechanism, ScramCredential]:
        """Return the user's credential of the first of these mechanisms for which there is one; else a made-up one."""
        made_up = self._made_up(user, mechanisms)  # for each name, so that it takes the same time
        own = self._users.get(user, {})
        return next(((each, own[each]) for each in mechanisms if each in own), made_up)

    def revision_of(self, user: str) -> int:
        """Return the number of the last change of a user's credentials; 0 if there is no such user."""
        return self._rules.users.of(user)

    def describe(self, names: Sequence[str] | None) -> dict[str, dict[ScramMechanism, int]]:
        """Return the iterations of the users' credentials, by default of all."""
        found = sorted(self._users) if names is None else [name for name in names if name in self._users]
        return {name: {each: own.iterations for each, own in sorted_items(self._users[name])} for name in found}

    async def alter(self, deletions: Sequence[Deletion], upsertions: Sequence[Upsertion]) -> dict[str, Refusal | None]:
        """Make the changes, one transaction for all; return the refusal of each user, or None.

        Sessions from before have ended then, at all gateways that follow.
        """
        users = {each.user for each in deletions} | {each.user for each in upsertions}
        refusals, revision = await self._order.run(users, lambda: self._alter(deletions, upsertions))
        if revision:
            await self._rules.held_everywhere(revision)  # mutant: alteration-waits-for-gateways
        return refusals

    async def _alter(
        self, deletions: Sequence[Deletion], upsertions: Sequence[Upsertion]
    ) -> tuple[dict[str, Refusal | None], int]:
        refused: dict[str, Refusal] = {}
        wanted: list[Deletion | Upsertion] = [*deletions, *upsertions]
        changes: dict[str, Deletion | Upsertion] = {}
        for each in wanted:
            if changes.pop(each.user, None) is not None or each.user in refused:
                text = "A user credential cannot be altered twice in the same request"
                refused[each.user] = Refusal(ErrorCode.DUPLICATE_RESOURCE, text)
            elif (fault := self._fault(each)) is not None:
                refused[each.user] = fault
            else:
                changes[each.user] = each
        made = {
            (user, _MECHANISMS[each.mechanism]): _credential(each) if isinstance(each, Upsertion) else None
            for user, each in changes.items()
        }
        try:
            revision = await self._store(made)
        except CatalogError as error:
            log.warning("credentials not stored", error=str(error))
            lost = Refusal(ErrorCode.KAFKA_STORAGE_ERROR, "The catalog cannot be written.")
            return dict.fromkeys((*changes, *refused), lost), 0
        return {**dict.fromkeys(changes), **refused}, revision

    async def add(self, passwords: Mapping[str, str]) -> list[str]:
        """Give a password to each of these names that is no user's, for each mechanism; return those names.

        Computing takes some 10 ms a user: for a start, before anything is served.

        Raises:
            CatalogError: the catalog cannot be written.
        """
        made = {
            (name, mechanism): ScramCredential.of_password(mechanism, password, iterations=ITERATIONS)
            for name, password in passwords.items()
            if name not in self._users
            for mechanism in ScramMechanism
        }
        await self._store(made)
        return list(dict.fromkeys(name for name, _ in made))

    async def _store(self, made: Mapping[tuple[str, ScramMechanism], ScramCredential | None]) -> int:
        """Store credentials; return the revision of the rules that ends sessions from before, 0 if there are none."""
        changed = {
            (name, each): found for (name, each), found in made.items() if found != self._users.get(name, {}).get(each)
        }
        if not changed:
            return 0
        number = await self._catalog.set_credentials(
            {(name, each.value): found for (name, each), found in changed.items()}
        )
        has_sessions = any(name in self._users for name, _ in changed)
        for (name, mechanism), credential in changed.items():
            self._count(name, -1)
            own = self._users.setdefault(name, {})
            own.pop(mechanism, None)
            if credential is not None:
                own[mechanism] = credential
            if not own:
                del self._users[name]
            self._count(name, 1)
        # In one step with the credentials: a login has those from before with the number from before, or neither.
        revision = self._rules.change_users({name: number if name in self._users else 0 for name, _ in changed}, number)
        return revision if has_sessions else 0

    def _count(self, name: str, change: int) -> None:
        """Count the forms of a user's credentials, or count them no more."""
        forms = [_form(*each) for each in sorted_items(self._users.get(name, {}))]
        for form, counted in (
            *((each, self._forms) for each in forms),
            *((each, self._first_forms) for each in forms[:1]),
        ):
            counted[form] += change
            if not counted[form]:
                del counted[form]

    def _fault(self, change: Deletion | Upsertion) -> Refusal | None:
        if not change.user:
            return Refusal(ErrorCode.UNACCEPTABLE_CREDENTIAL, "Username must not be empty")
        mechanism = _MECHANISMS.get(change.mechanism)
        if mechanism is None:
            return Refusal(ErrorCode.UNSUPPORTED_SASL_MECHANISM, "Unknown SCRAM mechanism")
        own = self._users.get(change.user, {})
        if isinstance(change, Deletion):
            if mechanism in own:
                return None
            text = "Attempt to delete a user credential that does not exist"
            return Refusal(ErrorCode.RESOURCE_NOT_FOUND, text)
        fault = None
        if change.iterations < ITERATIONS_MIN:
            fault = "Too few iterations"
        elif change.iterations > ITERATIONS_MAX:
            fault = "Too many iterations"
        elif len(change.user.encode(errors="replace")) > NAME_MAX:
            fault = f"A user name has at most {NAME_MAX} bytes"
        elif not 0 < len(change.salt) <= SALT_MAX:
            fault = f"A salt has 1 to {SALT_MAX} bytes"
        elif len(change.salted_password) != mechanism.hash_size:
            fault = f"The salted password of {mechanism.mechanism_name} has {mechanism.hash_size} bytes"
        elif not own and len(self._users) >= USERS_MAX:
            fault = f"There are {USERS_MAX} users, the most there may be"
        return None if fault is None else Refusal(ErrorCode.UNACCEPTABLE_CREDENTIAL, fault)

    def _made_up(self, user: str, mechanisms: Sequence[ScramMechanism]) -> tuple[ScramMechanism, ScramCredential]:
        form = self._usual_form(mechanisms)
        mechanism = form.mechanism
        label = b"salt " + user.encode(errors="replace")
        salt = hashlib.shake_256(mechanism.hmac(self._secret, label)).digest(form.salt_size)
        if form.is_base_36:
            salt = bytes(_BASE_36[digit % 36] for digit in salt)
        # No password gives a random key.
        stored_key = secrets.token_bytes(mechanism.hash_size)
        return mechanism, ScramCredential(salt, form.iterations, stored_key, mechanism.hmac(self._secret, label))

    def _usual_form(self, mechanisms: Sequence[ScramMechanism]) -> _Form:
        counted = self._forms if len(mechanisms) == 1 else self._first_forms
        known = [(count, form) for form, count in counted.items() if form.mechanism in mechanisms]
        if not known:
            return _Form(mechanisms[0], ITERATIONS, 16, is_base_36=False)
        return max(known, key=lambda each: (each[0], -each[1].iterations, -each[1].mechanism.value, each[1].salt_size))[
            1
        ]

    async def finish(self) -> None:
        """Wait for the changes that are under way."""
        await self._order.finish()


def sorted_items(own: Mapping[ScramMechanism, ScramCredential]) -> list[tuple[ScramMechanism, ScramCredential]]:
    return sorted(own.items(), key=lambda item: item[0].value)


def _credential(change: Upsertion) -> ScramCredential:
    mechanism = _MECHANISMS[change.mechanism]
    return ScramCredential.of_salted_password(mechanism, change.salted_password, change.salt, change.iterations)


def _form(mechanism: ScramMechanism, credential: ScramCredential) -> _Form:
    return _Form(mechanism, credential.iterations, len(credential.salt), not credential.salt.strip(_BASE_36))
