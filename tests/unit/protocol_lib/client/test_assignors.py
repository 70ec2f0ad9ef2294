"""Range and roundrobin: the same outcome as Kafka's, with either client as the leader."""

from __future__ import annotations

import random
import subprocess
from pathlib import Path

import pytest
from protocol_lib.client.assignors import GroupMember, RangeAssignor, RoundRobinAssignor
from protocol_lib.client.metadata import TopicPartition
from support.kafka_broker import HEAP, JVM, libraries, need_java

TOPICS = ("clicks", "orders", "users", "zoo")
OURS = {"range": RangeAssignor(), "roundrobin": RoundRobinAssignor()}
#: `orders=3,users=1 a/=orders+users b/static=users` becomes, per assignor, `range a=orders-0+users-0 b=` or so.
JAVA = """
import java.util.*;
import org.apache.kafka.clients.consumer.*;
import org.apache.kafka.clients.consumer.ConsumerPartitionAssignor.Subscription;
import org.apache.kafka.clients.consumer.internals.AbstractPartitionAssignor;
public class Main {
    public static void main(String[] arguments) {
        Scanner lines = new Scanner(System.in);
        while (lines.hasNextLine()) {
            String[] words = lines.nextLine().split(" ");
            for (AbstractPartitionAssignor assignor : List.of(new RangeAssignor(), new RoundRobinAssignor())) {
                Map<String, Integer> partitions = new HashMap<>();
                for (String word : words[0].split(","))
                    partitions.put(word.split("=")[0], Integer.parseInt(word.split("=")[1]));
                Map<String, Subscription> members = new HashMap<>();
                for (int i = 1; i < words.length; i++) {
                    String[] said = words[i].split("=");
                    String[] names = said[0].split("/", -1);
                    Subscription subscription = new Subscription(List.of(said[1].split("[+]")));
                    if (!names[1].isEmpty()) subscription.setGroupInstanceId(Optional.of(names[1]));
                    members.put(names[0], subscription);
                }
                StringBuilder out = new StringBuilder(assignor.name());
                new TreeMap<>(assignor.assign(partitions, members)).forEach((member, places) -> {
                    List<String> sorted = new ArrayList<>();
                    places.forEach(place -> sorted.add(place.toString()));
                    Collections.sort(sorted);
                    out.append(" ").append(member).append("=").append(String.join("+", sorted));
                });
                System.out.println(out);
            }
        }
    }
}
"""


def groups(count: int) -> list[tuple[dict[str, int], list[GroupMember]]]:
    """Make topics with partitions, and members that want some of them; a wanted topic may be missing."""
    draw = random.Random(4)
    made = []
    for _ in range(count):
        partitions = {topic: draw.randrange(1, 8) for topic in draw.sample(TOPICS, draw.randrange(1, 5))}
        names = draw.sample("abcdefgh", draw.randrange(1, 6))
        members = [
            GroupMember(
                name,
                frozenset(draw.sample(TOPICS, draw.randrange(1, 5))),
                group_instance_id=f"{draw.choice('yz')}{name}" if draw.random() < 0.3 else None,
            )
            for name in names
        ]
        made.append((partitions, members))
    return made


def question(partitions: dict[str, int], members: list[GroupMember]) -> str:
    topics = ",".join(f"{topic}={count}" for topic, count in partitions.items())
    texts = [f"{m.member_id}/{m.group_instance_id or ''}={'+'.join(sorted(m.topics))}" for m in members]
    return " ".join((topics, *texts))


def answer(name: str, partitions: dict[str, int], members: list[GroupMember]) -> str:
    shares = OURS[name].assign(partitions, members)
    texts = [f"{each}={'+'.join(sorted(str(partition) for partition in shares[each]))}" for each in sorted(shares)]
    return " ".join((name, *texts))


def test_they_share_out_as_java_does(tmp_path: Path) -> None:
    need_java()
    source = tmp_path / "Main.java"
    source.write_text(JAVA)
    asked = groups(400)
    done = subprocess.run(
        [*JVM, HEAP, "-cp", libraries(), str(source)],
        input="\n".join(question(*each) for each in asked),
        capture_output=True,
        text=True,
        check=True,
        timeout=100,
    )
    assert done.stdout.splitlines() == [answer(name, *each) for each in asked for name in OURS]


def assigned(assignor, partitions, wants) -> dict[str, list[tuple[str, int]]]:
    members = [GroupMember(member_id, topics) for member_id, topics in wants.items()]
    return {each: sorted(assignment) for each, assignment in assignor.assign(partitions, members).items()}


@pytest.mark.parametrize(
    ("assignor", "a", "b"),
    [
        (RangeAssignor(), [("t", 0), ("t", 1), ("u", 0), ("u", 1)], [("t", 2), ("u", 2)]),
        (RoundRobinAssignor(), [("t", 0), ("t", 2), ("u", 1)], [("t", 1), ("u", 0), ("u", 2)]),
    ],
    ids=["range", "roundrobin"],
)
def test_an_example_of_kafkas_documentation(assignor, a, b):
    wants = {"a": frozenset({"t", "u"}), "b": frozenset({"t", "u"})}
    assert assigned(assignor, {"t": 3, "u": 3}, wants) == {"a": a, "b": b}


def test_round_robin_passes_members_by_that_do_not_want_the_topic():
    wants = {"a": frozenset({"t"}), "b": frozenset({"t", "u"}), "c": frozenset({"t", "u", "v"})}
    assert assigned(RoundRobinAssignor(), {"t": 1, "u": 2, "v": 3}, wants) == {
        "a": [("t", 0)],
        "b": [("u", 0)],
        "c": [("u", 1), ("v", 0), ("v", 1), ("v", 2)],
    }


@pytest.mark.parametrize("assignor", [RangeAssignor(), RoundRobinAssignor()], ids=["range", "roundrobin"])
def test_static_members_come_first_in_the_order_of_their_names(assignor):
    members = [
        GroupMember("1", frozenset({"t"})),
        GroupMember("2", frozenset({"t"}), group_instance_id="z"),
        GroupMember("3", frozenset({"t"}), group_instance_id="y"),
    ]
    found = assignor.assign({"t": 3}, members)
    assert found == {"3": [TopicPartition("t", 0)], "2": [TopicPartition("t", 1)], "1": [TopicPartition("t", 2)]}
