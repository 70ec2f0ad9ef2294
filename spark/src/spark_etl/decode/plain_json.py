"""The usual JSON record, recognised by one regular expression.

A plain text is one flat object with nothing after it; its fields are the schema's, each at most once and in the
schema's order, all required ones there; a field of text is a text or null. White space is free, and so are escapes,
except in names.

Whether the rest is JSON, and numbers are numbers of their type, from_json finds out; so what both accept needs none of
the other checks of json_text.py. Every other text takes those.
"""

import re

from spark_etl.schema import Field, RecordSchema

#: Java's matcher calls itself a few times for each field, on the stack of a task's thread.
FIELDS_MAX = 100

_SPACE = r"[ \t\r\n]*+"
_TEXT = r'(?:"[^"\\]*+(?:\\.[^"\\]*+)*+"|null)'
_OTHER = r'[^",{}\[\]]++'


def pattern(schema: RecordSchema) -> str | None:
    """Return Java's regular expression of the schema's plain texts; None if it has nested or too many fields.

    Every repetition is possessive: no text takes more than one pass, or deep recursion.
    """
    if len(schema.fields) > FIELDS_MAX or any(field.nested for field in schema.fields):
        return None
    fields = "".join(map(_field, schema.fields))
    return rf"\A{_SPACE}\{{{_SPACE}{fields}\}}{_SPACE}\z"


def _field(field: Field) -> str:
    """Return the expression of a field and the comma after it. from_json refuses a comma too many or too few."""
    value = _TEXT if field.json_type == "string" else _OTHER
    found = f'"{re.escape(field.name)}"{_SPACE}:{_SPACE}{value}{_SPACE},?+{_SPACE}'
    return found if field.required else f"(?:{found})?+"
