"""docs/json-schema.md: each row of its tables is a test."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pyarrow as pa
import pytest
from spark_etl.decode.json_rows import Judge
from spark_etl.errors import ConfigError
from spark_etl.schemas.fields import RecordSchema

pytestmark = pytest.mark.etl

PAGE = (Path(__file__).parents[3] / "docs" / "json-schema.md").read_text(encoding="utf-8")
DEFINITIONS = {
    "Point": {"type": "object", "properties": {"x": {"type": "integer"}}},
    "Tree": {"type": "object", "properties": {"child": {"$ref": "#/$defs/Tree"}}},
}
_CELLS = re.compile(r"^\| `(.+?)` \| (.+?) \| (.+?) \| (.*?) ?\|$")
SUPPORTED = [match.groups() for line in PAGE.splitlines() if (match := _CELLS.match(line))]
REFUSED = re.findall(r"^\| `(.+?)` \| ([^|`]+) \|$", PAGE, re.MULTILINE)
_CODE = re.compile(r"`([^`]+)`")


def schema_of(text: str) -> RecordSchema:
    document = {"type": "object", "required": ["f"], "properties": {"f": json.loads(text)}, "$defs": DEFINITIONS}
    return RecordSchema.parse(document)


def test_the_page_has_rows():
    assert (len(SUPPORTED), len(REFUSED)) == (51, 19)


@pytest.mark.parametrize(("text", "column", "fits", "does_not_fit"), SUPPORTED, ids=[row[0] for row in SUPPORTED])
def test_a_row_of_what_is_supported(text, column, fits, does_not_fit):
    schema = schema_of(text)
    kind = column.replace("JSON text, ", "").replace("\\`", "\0").strip("`").replace("\0", "`")
    assert schema.fields[0].spark_type == kind
    assert (schema.fields[0].kind == "json") == column.startswith("JSON text") or "{}" in text
    judge = Judge(schema.root, "value", "reject")
    good = _CODE.findall(fits)
    found, _, faults = judge.judged(pa.array([b'{"f": %s}' % value.encode() for value in good], pa.binary()))
    assert good
    assert faults.to_pylist() == [None] * len(good)
    assert [row["f"] is None for row in found.to_pylist()] == [value == "null" for value in good]
    bad = _CODE.findall(does_not_fit)
    faults = judge.judged(pa.array([b'{"f": %s}' % value.encode() for value in bad], pa.binary()))[2]
    assert [fault["rule"] for fault in faults.to_pylist()] == [does_not_fit.split()[-1]] * len(bad) if bad else True


@pytest.mark.parametrize(("text", "reason"), REFUSED, ids=[row[0] for row in REFUSED])
def test_a_row_of_what_is_refused(text, reason):
    with pytest.raises(ConfigError, match=re.escape(reason)):
        schema_of(text)
