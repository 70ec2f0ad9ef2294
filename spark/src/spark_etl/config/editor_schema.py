"""The JSON Schema of the pipeline file, for editors: `python -m spark_etl.config.editor_schema` prints it.

`${NAME}` may stand in any text; the schema therefore allows such a text where the file allows a number.
"""

import json
from collections.abc import Iterator
from typing import Any

from spark_etl.config import PipelineConfig

VARIABLE = {"type": "string", "pattern": r"^\$\{[A-Za-z_][A-Za-z0-9_]*(:-[^}]*)?\}$"}
_UNION = ("anyOf", "oneOf")


def schema() -> dict[str, Any]:
    """Return the schema (draft 2020-12)."""
    document: dict[str, Any] = _with_variables(PipelineConfig.model_json_schema(by_alias=True))
    return {"$schema": "https://json-schema.org/draft/2020-12/schema", **document, "title": "Pipeline file"}


def text() -> str:
    """Return the schema as the file docs/etl.schema.json has it."""
    return json.dumps(schema(), indent=2, ensure_ascii=False) + "\n"


def options() -> dict[str, Any]:
    """Return every option of the file, such as `sinks[delta].path`, with its default; `...` for a required one."""
    document = PipelineConfig.model_json_schema(by_alias=True)
    return dict(_options(document, document["$defs"], ""))


def _options(node: dict[str, Any], definitions: dict[str, Any], place: str) -> Iterator[tuple[str, Any]]:
    for name, spec in node["properties"].items():
        if name == "type" and "const" in spec:
            continue
        where = f"{place}.{name}" if place else name
        yield where, spec.get("default", ...)
        for inner, suffix in _sections(spec, definitions):
            yield from _options(inner, definitions, where + suffix)


def _sections(spec: dict[str, Any], definitions: dict[str, Any]) -> Iterator[tuple[dict[str, Any], str]]:
    """Yield the mappings that an option can have as its value, or as items of its list."""
    items = spec.get("items")
    if isinstance(items, dict):
        yield from ((inner, suffix or "[]") for inner, suffix in _sections(items, definitions))
    for member in [spec, *(member for union in _UNION for member in spec.get(union, []))]:
        inner = definitions.get(str(member.get("$ref", "")).rpartition("/")[2])
        if inner is not None and "properties" in inner:
            kind = inner["properties"].get("type", {}).get("const")
            yield inner, f"[{kind}]" if kind else ""


def _with_variables(node: Any) -> Any:
    if isinstance(node, list):
        return [_with_variables(item) for item in node]
    if not isinstance(node, dict):
        return node
    changed = {name: _with_variables(item) for name, item in node.items()}
    if node.get("type") in ("integer", "number", "boolean") and "const" not in node:
        kept = {name: changed.pop(name) for name in ("title", "default", "description") if name in changed}
        return {**kept, "anyOf": [changed, VARIABLE]}
    return changed


if __name__ == "__main__":
    print(text(), end="")
