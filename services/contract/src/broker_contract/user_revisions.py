"""Revisions of users: each change of a user's credentials gives the user the next number, for ever.

A login counts as long as the credential that it was checked against. It has that credential's revision, and ends when
the user gets another one, or is deleted:

    number of the login > latest                    a newer credential than those known here: it is current
    number of the login = the user's number         it is current
    another number, or no such user                 the user was altered or deleted since
"""

from __future__ import annotations

from collections.abc import Mapping


class UserRevisions:
    """The number of each user, and the latest one. Storage has those in force, a gateway those that it knows."""

    def __init__(self, numbers: Mapping[str, int], latest: int) -> None:
        self._numbers = dict(numbers)
        self.latest = latest

    def replace(self, numbers: Mapping[str, int], latest: int) -> None:
        """Have these users and no others."""
        self._numbers = dict(numbers)
        self.latest = latest

    def change(self, numbers: Mapping[str, int], latest: int) -> None:
        """Give these users other numbers; 0 deletes a user."""
        for name, number in numbers.items():
            if number:
                self._numbers[name] = number
            else:
                self._numbers.pop(name, None)
        self.latest = max(self.latest, latest)

    def of(self, name: str) -> int:
        """Return a user's number; 0 if there is no such user."""
        return self._numbers.get(name, 0)

    def all(self) -> Mapping[str, int]:
        """Return the number of each user."""
        return self._numbers

    def is_current(self, name: str, number: int) -> bool:
        """Return whether a login by the credential with this number still counts."""
        # mutant: newer-credential-counts
        return number > self.latest or (number > 0 and number == self._numbers.get(name))
