"""YAML as JSON has it: a time, and a word such as `on` or `no`, stays a text. `on` is a key of joins.

Ten lines of aliases can stand for a document that no memory holds, so the values that aliases repeat are limited.
"""

import re

import yaml

REPEATED_MAX = 100_000  # values that aliases add to a document


class Loader(yaml.SafeLoader):
    """A safe loader whose only booleans are `true` and `false`."""

    def compose_document(self) -> yaml.Node | None:
        """Return the document. YAMLError: its aliases repeat too many values, or one contains itself."""
        root: yaml.Node | None = super().compose_document()
        sizes = dict[int, int]()
        if root is not None and _size(root, sizes) > len(sizes) + REPEATED_MAX:
            raise yaml.YAMLError(f"aliases repeat more than {REPEATED_MAX} values")
        return root


def _size(node: yaml.Node, sizes: dict[int, int]) -> int:
    """Return the number of values in a node with its aliases written out; `sizes` keeps that of each node."""
    known = sizes.get(id(node))
    if known is None:
        sizes[id(node)] = 0
        parts = node.value if isinstance(node, yaml.CollectionNode) else ()
        inner = [each for part in parts for each in (part if isinstance(part, tuple) else (part,))]
        known = sizes[id(node)] = 1 + sum(_size(each, sizes) for each in inner)
    elif not known:
        raise yaml.YAMLError("an alias contains itself")
    return known


_REMOVED = ("tag:yaml.org,2002:timestamp", "tag:yaml.org,2002:bool")
Loader.yaml_implicit_resolvers = {
    first: [(tag, pattern) for tag, pattern in resolvers if tag not in _REMOVED]
    for first, resolvers in yaml.SafeLoader.yaml_implicit_resolvers.items()
}
Loader.add_implicit_resolver(
    "tag:yaml.org,2002:bool", re.compile("^(?:true|True|TRUE|false|False|FALSE)$"), list("tTfF")
)
