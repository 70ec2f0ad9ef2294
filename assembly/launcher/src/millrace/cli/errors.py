"""The error of a command, and the exit statuses: 0 done, 1 refused or failed, 2 a wrong command line."""

from __future__ import annotations

FAILED = 1
USAGE = 2


class CliError(Exception):
    """The end of a command; the message is one line for people."""

    def __init__(self, message: str, status: int = FAILED) -> None:
        super().__init__(message)
        self.status = status
