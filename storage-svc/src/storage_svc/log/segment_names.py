"""What the files of a segment are called.

00000000000000000300.log .index .timeindex .txnindex       its base offset in 20 digits, and what the file is
00000000000000000300.txnindex.crc32c                       what its .txnindex is, to which nothing is added any more
<one of these>.cleaned .swap .deleted                      and what becomes of it (partition_folder.py)
"""

from __future__ import annotations

from typing import Final

LOG_SUFFIX: Final = ".log"
INDEX_SUFFIX: Final = ".index"
TIME_INDEX_SUFFIX: Final = ".timeindex"
TRANSACTION_INDEX_SUFFIX: Final = ".txnindex"
TRANSACTION_SEAL_SUFFIX: Final = ".txnindex.crc32c"
SUFFIXES: Final = (LOG_SUFFIX, INDEX_SUFFIX, TIME_INDEX_SUFFIX, TRANSACTION_INDEX_SUFFIX, TRANSACTION_SEAL_SUFFIX)
#: Behind one of the others: what compaction has not finished, what it has, what is to be deleted.
CLEANED_SUFFIX: Final = ".cleaned"
SWAP_SUFFIX: Final = ".swap"
DELETED_SUFFIX: Final = ".deleted"


def file_stem(offset: int) -> str:
    return f"{offset:020d}"
