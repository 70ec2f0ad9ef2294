"""Errors of the log package.

LogError
├── DataFolderError        the data folder cannot be used
│   └── DataFolderInUse    another process holds its lock
├── StorageFailure         the operating system refused a read, write or sync
│   ├── NotThere           there is no file of this name
│   └── Refused            nothing was harmed, and the same call may work later
│       ├── DiskFull       no space, quota or file size left
│       └── NotNow         no descriptor or memory left, or the call was interrupted
├── Uncleanable            a log cannot be cleaned as it is
└── Stopped                a cleaning or scrub is not wanted any more
"""


class LogError(Exception):
    """Root of this package's exceptions."""


class DataFolderError(LogError):
    """The data folder cannot be used, and why."""


class DataFolderInUse(DataFolderError):  # noqa: N818 (reads as what happened)
    """Another process holds the data folder's lock."""


class StorageFailure(LogError):  # noqa: N818 (reads as what happened)
    """The operating system refused a read, write or sync."""


class NotThere(StorageFailure):
    """No file or folder has this name."""


class Refused(StorageFailure):
    """The system carried nothing out, harmed nothing, and may carry out the same call later."""


class DiskFull(Refused):
    """No space, quota or file size is left; writing may work again later."""


class NotNow(Refused):
    """No descriptor or memory is left, or a signal interrupted the call."""


class Uncleanable(LogError):  # noqa: N818 (reads as what happened)
    """This log cannot be cleaned as it is, and why.

    `last_offset` is that of the batch which is the reason, or -1: without this batch the log could be cleaned.
    """

    def __init__(self, reason: str, last_offset: int = -1) -> None:
        super().__init__(reason)
        self.last_offset = last_offset


class Stopped(LogError):  # noqa: N818 (reads as what happened)
    """Work in the background is not wanted any more."""
