"""Errors of the log package.

LogError
├── DataFolderError        the data folder cannot be used
│   └── DataFolderInUse    another process holds its lock
├── StorageFailure         the operating system refused a read, write or sync
│   └── DiskFull           no space, quota or file size left: writing may work again later
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


class DiskFull(StorageFailure):
    """No space, quota or file size is left; writing may work again later."""


class Uncleanable(LogError):  # noqa: N818 (reads as what happened)
    """This log cannot be cleaned as it is, and why."""


class Stopped(LogError):  # noqa: N818 (reads as what happened)
    """Work in the background is not wanted any more."""
