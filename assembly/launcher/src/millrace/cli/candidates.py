"""Names for completion: `millrace _names topics|groups|profiles WORD…`, which the scripts of the shells call.

Words are those of the line: the cluster is the one of its --rest or --kafka. Anything that goes wrong means no names,
because nobody can read a message in the middle of a line.
"""

from __future__ import annotations

import contextlib
import os
import sys
import threading
from collections.abc import Iterable
from typing import Final

from millrace.cli.errors import CliError
from millrace.cli.rest import HURRIED_S, RestClient

#: Seconds for the names, whatever they wait for: a person waits at the TAB key. The start of Python comes before them.
TAB_S: Final = 0.8
#: More names than a person reads; a shell would be busy with them.
NAMES_MAX = 2_000


def print_names(kind: str, words: list[str]) -> int:
    """Print the names of a kind that fit on a line of their own, sorted. End the process where they come too late."""
    found: list[str] = []

    def look_up() -> None:
        with contextlib.suppress(CliError, TimeoutError):
            found.extend(sorted(name for name in set(_names(kind, words)) if name.isprintable() and name))

    thread = threading.Thread(target=look_up, name="names", daemon=True)
    thread.start()
    thread.join(TAB_S)
    if thread.is_alive():  # it resolves a name, or has read one of many pages: an end in order would wait for it
        sys.stdout.flush()
        os._exit(0)
    for name in found[:NAMES_MAX]:
        print(name)
    return 0


def _names(kind: str, words: list[str]) -> Iterable[str]:
    if kind == "profiles":
        from millrace.cli.profile import Profiles

        return Profiles().profiles
    rest, kafka = _option("--rest", words), _option("--kafka", words)
    if rest is None and kafka is not None:
        return _asked(kind, kafka)
    path, name = {"topics": ("topics", "topic_name"), "groups": ("consumer-groups", "consumer_group_id")}[kind]
    with RestClient(rest, hurried=True) as client:  # a person waits at the TAB key
        return [str(row[name]) for row in client.rows(path) if not row.get("is_internal")]


def _asked(kind: str, kafka: str) -> Iterable[str]:
    from millrace.cli.kafka import administer

    if kind == "topics":
        return administer(kafka, lambda admin: admin.topics.list(), limit_s=HURRIED_S)
    return (each.group_id for each in administer(kafka, lambda admin: admin.groups.list(), limit_s=HURRIED_S))


def _option(name: str, words: list[str]) -> str | None:
    """Return the value of an option on a line, None if it is not there, or not yet whole."""
    for index, word in enumerate(words):
        if word.startswith(f"{name}="):
            return word.partition("=")[2]
        if word == name and index + 1 < len(words):
            return words[index + 1]
    return None
