"""Texts that cannot be the folder NAME=TEXT of a partition: a task that met one would stop the pipeline at each try.

Delta Lake reads an empty text back as null. Spark writes some characters as %XX, and a folder's name has 255 bytes.
"""

from pyspark.sql import Column
from pyspark.sql import functions as F  # noqa: N812

NAME_BYTES_MAX = 255
NULL = "is null, no partition to write to"
_ESCAPED = r"""[\x01-\x1F"#%'*/:=?\\\x7F{\[\]^]"""  # ExternalCatalogUtils.charToEscape


def faults(name: str) -> list[tuple[Column, str]]:
    """Return the conditions of unfit texts in a partition column, each with the rest of a sentence."""
    text = F.col(name)
    room = NAME_BYTES_MAX - len(name) - 1
    escaped = F.octet_length(F.regexp_replace(text, _ESCAPED, "%XX"))
    return [
        (text.isNull(), NULL),
        (text == "", "is empty, which a table cannot tell from null"),
        (F.contains(text, F.lit("\0")), "has the character U+0000, which no folder can have"),
        (F.when(F.octet_length(text) * 3 > room, escaped > room), "is too long for the name of a folder"),
    ]
