"""The cluster and the topics that the offsets of a checkpoint belong to.

    CHECKPOINT/_etl/identity.json   {"cluster": "Xb2…", "topics": {"orders": "MBW0…"}, "again": ["orders"]}
    CHECKPOINT/_etl/start.json      a query that began again: {"offsets": {"orders": {"0": -2}}, "after": ["8f2c…"]}

Offsets are numbers. A topic that is deleted and created again has the same name and other records at the same offsets,
and Spark would skip the first of them. Its topic id differs, and the ids are compared at the start of a run and before
each commit: at the commit, every record of the batch has been read from the topic that still exists. With
`on_data_loss: continue` a topic of a pattern may be gone. Its id is kept as long as Spark has offsets of it.

`again` names the topics of which the outputs have rows of an earlier topic too: other records with the same offsets.
`left` has the topics that the source had before.
"""

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any
from uuid import uuid4

from spark_etl.checkpoint.offsets import Checkpoint, Offsets
from spark_etl.config import Source, StartOffsets, StartTimestamp
from spark_etl.errors import IdentityError, OutputError
from spark_etl.kafka.admin import KafkaAdmin, UnknownTopicError
from spark_etl.kafka.sources import EARLIEST, LATEST
from spark_etl.letters import replays
from spark_etl.registry import pins
from spark_etl.sinks import windows

UNKNOWN = "unknown"  # the id of a topic that was gone before it could be asked for
_IDENTITY, _START = "identity", "start"


@dataclass(frozen=True, slots=True)
class Identity:
    cluster: str
    topics: dict[str, str]  # topic → topic id
    again: tuple[str, ...] = ()  # topics that were created again, and read from their start
    left: tuple[str, ...] = ()  # topics that the source had before


def document_of(
    cluster: str, topics: Mapping[str, str], again: Collection[str], left: Collection[str] = ()
) -> dict[str, Any]:
    """Return the note that keeps an identity."""
    document: dict[str, Any] = {"cluster": cluster, "topics": dict(topics)}
    return document | ({"again": sorted(again)} if again else {}) | ({"left": sorted(left)} if left else {})


def start_offsets(checkpoint: Checkpoint) -> Offsets | None:
    """Return the offsets that a query which began again starts at; None if it did not begin again."""
    document = checkpoint.notes.read(_START)
    if document is None:
        return None
    return {name: {int(number): at for number, at in found.items()} for name, found in document["offsets"].items()}


class SourceIdentity:
    """Compares the source with the identity in the checkpoint, and keeps it there."""

    def __init__(self, checkpoint: Checkpoint, admin: KafkaAdmin, source: Source) -> None:
        self._checkpoint = checkpoint
        self._admin = admin
        self._source = source

    def check(self, topics: Iterable[str] = ()) -> Identity:
        """Return the identity of the source, and keep that of topics that are new or left out.

        `topics` are those of a batch: a pattern finds more of them over time. IdentityError: the cluster or a topic is
        not the one of the checkpoint. UnknownTopicError: a topic of the source does not exist. OutputError: a topic
        comes back to the source, and Spark would read it again; or it is left out, and the file does not allow that.
        """
        kept = self._kept()
        known = set(topics)
        if self._source.pattern and kept is not None:
            known |= {name for name in kept.topics if self._source.matches(name)}
        may_be_gone = known if self._source.pattern and self._source.on_data_loss == "continue" else set()
        now = self._now({*self._source.topics, *known}, may_be_gone)
        if kept is None:
            self._keep(now)
            return now
        self._check_left(kept, now)
        changed = self._changes(kept, now)
        if changed:
            raise IdentityError(
                f"{'; '.join(changed)}: the offsets in {self._checkpoint.location} do not belong to it. "
                "Remove that folder to begin again, or set source.on_topic_change: restart"
            )
        gone = may_be_gone - now.topics.keys()
        forgotten = self._forgotten(gone)  # mutant: gone-topic-forgotten
        before = {name: kept.topics.get(name, UNKNOWN) for name in {*kept.topics, *gone} - forgotten}
        found = {**before, **now.topics}
        current = Identity(now.cluster, found, tuple(sorted({*kept.again, *forgotten})), self._left(found))
        if current != kept:
            self._keep(current)
        return current

    def _forgotten(self, gone: set[str]) -> set[str]:
        """Return the topics whose offsets Spark has forgotten: new topics of these names are read from their start."""
        last = self._checkpoint.last_planned() if gone else None
        return gone - (self._checkpoint.end_offsets(last) or {}).keys() if last is not None else gone

    def _left(self, names: Iterable[str]) -> tuple[str, ...]:
        return tuple(sorted(name for name in names if not self._source.reads(name)))

    def _check_left(self, kept: Identity, now: Identity) -> None:
        """Refuse topics that come back after a batch without them: Spark has forgotten their offsets since.

        And refuse to leave topics out where Spark may not lose data: it would say so, without a name.
        """
        returned = {name for name in kept.left if now.topics.get(name) == kept.topics[name]}
        left = set(self._left(kept.topics))
        if not (returned or left) or kept.cluster != now.cluster:
            return
        last = self._checkpoint.last_planned()
        offsets = self._checkpoint.end_offsets(last) if last is not None else start_offsets(self._checkpoint)
        if offsets is None:  # nothing was read yet
            return
        planned = offsets.keys()
        for topic in sorted(returned - planned):
            raise OutputError(
                f"the topic {topic} was left out of the source for a while, and Spark has forgotten its offsets:"
                " its records would be written twice. Read it with another pipeline"
            )
        if self._source.on_data_loss != "continue":
            for topic in sorted(left & planned):
                raise OutputError(
                    f"the source no longer has the topic {topic}, and records after its offsets in"
                    f" {self._checkpoint.location} would not be read. To leave it out, set source.on_data_loss:"
                    " continue until the next batch is committed"
                )

    def kept(self) -> Identity:
        """Return the identity in the checkpoint; an empty one if the checkpoint has none."""
        return self._kept() or Identity("", {})

    def unchanged(self) -> set[str]:
        """Return the topics whose records the offsets in the checkpoint still name."""
        return self._unchanged(self._found())

    def start_over(self, end: Offsets) -> list[str]:
        """Put a new checkpoint in the place of this one; return the names of the topics that it reads from the start.

        `end` are the offsets after the last records that the outputs hold. Topics that did not change go on from there,
        and from `source.start` if Spark never began to read.
        """
        now = self._found()
        same = self._unchanged(now)
        end = end or self._first(same)
        offsets = {
            name: {
                str(number): end.get(name, {}).get(number, EARLIEST) if name in same else EARLIEST
                for number in partitions
            }
            for name, partitions in self._admin.end_offsets(filter(self._source.reads, now.topics)).items()
        }
        replacement = self._checkpoint.replacement()
        kept = self.kept()
        again = {name for name in now.topics if name in kept.again or (name in kept.topics and name not in same)}
        left = self._left({*kept.left, *now.topics})
        ids = {**now.topics, **{name: kept.topics[name] for name in left if name in kept.topics}}
        replacement.notes.write(_IDENTITY, document_of(now.cluster, ids, again - set(left), left))
        before = self._checkpoint.query_id()
        queries = [*self.queries_before(), *([before] if before is not None else [])]
        for name in (
            pins.NOTE,
            replays.NOTE,
        ):  # versions of schemas; which letters came back, and their replays' numbers
            kept_note = self._checkpoint.notes.read(name)
            if kept_note is not None:
                replacement.notes.write(name, kept_note)  # mutant: replays-outlive-a-new-start
        replacement.notes.write(_START, {"offsets": offsets, "after": queries})
        # wall clock: a version that is higher than those of an earlier query
        replacement.notes.write(windows.NOTE, {"first": int(datetime.now(UTC).timestamp() * 1000)})
        # Without a query, nothing else tells this checkpoint from another one that was replaced before its first batch.
        self._checkpoint.replace(f"replaced-{before or f'unused-{uuid4().hex[:8]}'}")
        return sorted(filter(self._source.reads, set(now.topics) - same))

    def _first(self, topics: Collection[str]) -> Offsets:
        """Return where `source.start` begins in topics; nothing for their first records."""
        match self._source.start:
            case StartOffsets(numbers=numbers):
                return numbers
            case StartTimestamp(milliseconds=milliseconds):
                return self._admin.offsets_at(topics, milliseconds)
            case "latest":
                found = self._admin.end_offsets(topics)
                return {topic: dict.fromkeys(partitions, LATEST) for topic, partitions in found.items()}
            case _:
                return {}

    def start(self) -> Offsets | None:
        """Return the offsets at which a query that begins again starts; None if it does not.

        They name the partitions that the source has now, since Spark takes no others: some may be newer.
        """
        kept = start_offsets(self._checkpoint)
        if kept is None:
            return None
        topics = self._source.topics or [name for name in self._admin.topics() if self._source.matches(name)]
        return {
            name: {number: kept.get(name, {}).get(number, EARLIEST) for number in partitions}
            for name, partitions in self._admin.end_offsets(topics).items()
        }

    def queries_before(self) -> list[str]:
        """Return the ids of the queries that a query which began again replaces."""
        after = (self._checkpoint.notes.read(_START) or {"after": []})["after"]
        return after if isinstance(after, list) else [str(after)]

    def _found(self) -> Identity:
        """Return the identity of the topics that exist, of the source and of the checkpoint."""
        ids = self._admin.topic_ids({*self._source.topics, *self.kept().topics})
        return Identity(self._admin.cluster_id(), {name: found for name, found in ids.items() if found is not None})

    def _unchanged(self, now: Identity) -> set[str]:
        kept = self.kept()
        if kept.cluster != now.cluster:
            return set()
        # mutant: offsets-of-same-topic
        return {name for name, topic_id in now.topics.items() if kept.topics.get(name) == topic_id}

    def _kept(self) -> Identity | None:
        document = self._checkpoint.notes.read(_IDENTITY)
        if document is None:
            return None
        again, left = (tuple(document.get(name, ())) for name in ("again", "left"))
        return Identity(str(document["cluster"]), dict(document["topics"]), again, left)

    def _keep(self, identity: Identity) -> None:
        document = document_of(identity.cluster, identity.topics, identity.again, identity.left)
        self._checkpoint.notes.write(_IDENTITY, document)

    def _now(self, names: Iterable[str], may_be_gone: Iterable[str]) -> Identity:
        ids = self._admin.topic_ids(names)
        absent = sorted(name for name, topic_id in ids.items() if topic_id is None and name not in may_be_gone)
        if absent:
            raise UnknownTopicError(f"source: no topic {', '.join(absent)} in the cluster")
        return Identity(self._admin.cluster_id(), {name: found for name, found in ids.items() if found is not None})

    def _changes(self, kept: Identity, now: Identity) -> list[str]:
        if kept.cluster != now.cluster:
            return [f"the cluster is another one (id {kept.cluster} before, {now.cluster} now)"]
        # mutant: recreated-topic-stops
        return [
            f"the topic {name} was deleted and created again (id {kept.topics[name]} before, {topic_id} now)"
            for name, topic_id in sorted(now.topics.items())
            if kept.topics.get(name, topic_id) != topic_id
        ]
