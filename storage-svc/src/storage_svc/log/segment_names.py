"""The names of a segment's files.

00000000000000000300.log .index .timeindex .txnindex       the base offset in 20 digits, and the content of the file
00000000000000000300.txnindex.crc32c                       the checksum of a .txnindex that is complete
<one of these>.cleaned .swap .deleted                      and the state it is in (partition_folder.py)
"""

from __future__ import annotations

from typing import Final

LOG_SUFFIX: Final = ".log"
INDEX_SUFFIX: Final = ".index"
TIME_INDEX_SUFFIX: Final = ".timeindex"
TRANSACTION_INDEX_SUFFIX: Final = ".txnindex"
TRANSACTION_SEAL_SUFFIX: Final = ".txnindex.crc32c"
SUFFIXES: Final = (LOG_SUFFIX, INDEX_SUFFIX, TIME_INDEX_SUFFIX, TRANSACTION_INDEX_SUFFIX, TRANSACTION_SEAL_SUFFIX)
#: Suffixes after one of the others: not finished by compaction, finished by it, to be deleted.
CLEANED_SUFFIX: Final = ".cleaned"
SWAP_SUFFIX: Final = ".swap"
DELETED_SUFFIX: Final = ".deleted"


def file_stem(offset: int) -> str:
    """Return the name of a segment's files without suffix: the base offset in 20 digits."""
    return f"{offset:020d}"
