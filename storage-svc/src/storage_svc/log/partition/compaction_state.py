"""What a log remembers of its compaction."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(slots=True)
class CompactionState:
    """Owned by its PartitionLog, changed by the Cleaner and the Scrubber."""

    #: The log is dirty from here on (`cleaner-offset-checkpoint`); None: it was never cleaned.
    cleaned_to: int | None = None
    #: Why no cleaning is tried any more until the next start, or until damage was taken out.
    uncleanable: str | None = None
    #: Segments are being rewritten: none is deleted meanwhile.
    running: bool = False
