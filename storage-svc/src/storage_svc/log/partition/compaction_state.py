"""The compaction of one log, as its log remembers it."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(slots=True)
class CompactionState:
    """The state of a log's compaction, owned by its PartitionLog and changed by the Cleaner and the Scrubber."""

    #: The log is dirty from here on (`cleaner-offset-checkpoint`); None: it was never cleaned.
    cleaned_to: int | None = None
    #: The reason why no cleaning is tried any more until the next start, or until damage was removed.
    uncleanable: str | None = None
    #: The last offset of the batch that is the reason; -1: it is no single batch. The log can be cleaned without it.
    uncleanable_to: int = -1
    #: Whether segments are being rewritten: none is deleted during that time.
    running: bool = False
