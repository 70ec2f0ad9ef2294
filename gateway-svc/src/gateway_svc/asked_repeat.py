"""A heartbeat said again, where storage has to be asked whether its answer holds."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable


class AskedRepeat(ABC):
    """As `storage.Repeat`: the member says it again, word for word, over the same connection.

    True: it is answered as it was. False: it has to come whole, and this is of no use any more.
    """

    @property
    @abstractmethod
    def may_be_asked(self) -> bool:
        """Whether the heartbeat was answered, and there is anything to ask for."""

    @abstractmethod
    def ask(self, done: Callable[[bool], None]) -> None:
        """Calls `done` exactly once, later or before it returns."""

    @abstractmethod
    def forget(self) -> None:
        """It is not asked any more."""
