"""A JSON Schema of a registry with those that it refers to: one document, which has them under `$defs`.

    {"$ref": "place.json#/definitions/City"}    →    {"$ref": "#/$defs/place.json/definitions/City"}

No other reference is followed.
"""

from collections.abc import Collection, Sequence
from typing import Any

from spark_etl.errors import ConfigError
from spark_etl.schemas.fields import document

DEPTH_MAX = 100


def whole(text: str, references: Sequence[tuple[str, str]]) -> Any:
    """Return the document. ConfigError: a text is not JSON, or nests too deep."""
    found = document(text)
    if not references or not isinstance(found, dict):
        return found
    names = {name for name, _ in references}
    others = {name: _moved(document(each), names, _place(name), 0) for name, each in references}
    found = _moved(found, names, "#", 0)
    own = found.get("$defs")
    return {**found, "$defs": {**(own if isinstance(own, dict) else {}), **others}}


def _moved(value: Any, names: Collection[str], base: str, depth: int) -> Any:
    """Return a part of a document that is now at `base`, with its references as they are from there."""
    if depth > DEPTH_MAX:
        raise ConfigError(f"it nests deeper than {DEPTH_MAX}")
    if isinstance(value, list):
        return [_moved(each, names, base, depth + 1) for each in value]
    if not isinstance(value, dict):
        return value
    found = {name: _moved(each, names, base, depth + 1) for name, each in value.items()}
    pointer = value.get("$ref")
    if isinstance(pointer, str):
        name, _, fragment = pointer.partition("#")
        if not name:
            found["$ref"] = f"{base}{fragment}"
        elif name in names:
            found["$ref"] = f"{_place(name)}{fragment}"
    return found


def _place(name: str) -> str:
    return f"#/$defs/{name.replace('~', '~0').replace('/', '~1')}"
