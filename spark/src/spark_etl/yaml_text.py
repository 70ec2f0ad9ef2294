"""YAML as JSON has it: a time, and a word such as `on` or `no`, stays a text. `on` is a key of joins."""

import re

import yaml


class Loader(yaml.SafeLoader):
    """A safe loader whose only booleans are `true` and `false`."""


_REMOVED = ("tag:yaml.org,2002:timestamp", "tag:yaml.org,2002:bool")
Loader.yaml_implicit_resolvers = {
    first: [(tag, pattern) for tag, pattern in resolvers if tag not in _REMOVED]
    for first, resolvers in yaml.SafeLoader.yaml_implicit_resolvers.items()
}
Loader.add_implicit_resolver(
    "tag:yaml.org,2002:bool", re.compile("^(?:true|True|TRUE|false|False|FALSE)$"), list("tTfF")
)
