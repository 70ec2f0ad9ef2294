"""The status codes of gRPC, and the error of a call that ended with one other than OK."""

from __future__ import annotations

import enum


class Status(enum.IntEnum):
    """The codes of gRPC's `grpc-status` (https://grpc.io/docs/guides/status-codes)."""

    OK = 0
    CANCELLED = 1
    UNKNOWN = 2
    INVALID_ARGUMENT = 3
    DEADLINE_EXCEEDED = 4
    NOT_FOUND = 5
    ALREADY_EXISTS = 6
    PERMISSION_DENIED = 7
    RESOURCE_EXHAUSTED = 8
    FAILED_PRECONDITION = 9
    ABORTED = 10
    OUT_OF_RANGE = 11
    UNIMPLEMENTED = 12
    INTERNAL = 13
    UNAVAILABLE = 14
    DATA_LOSS = 15
    UNAUTHENTICATED = 16

    @classmethod
    def of(cls, number: str) -> Status:
        """Return the status of a `grpc-status` field; UNKNOWN for one that gRPC does not define."""
        return _BY_NUMBER.get(number, cls.UNKNOWN)


_BY_NUMBER = {str(each.value): each for each in Status}


class RpcError(Exception):
    """A call that ended with a status. A handler raises it to end its call, and a caller gets it."""

    def __init__(self, status: Status, details: str) -> None:
        super().__init__(f"{status.name}: {details}")
        self.status = status
        self.details = details
