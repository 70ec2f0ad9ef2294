"""Concatenated JSON: divided alike in any steps of bytes, within limits, and never within a text."""

from __future__ import annotations

import json
import random
import sys
import time

import pytest
from admin_api.errors import ApiError
from admin_api.object_splitter import DEPTH_MAX, OBJECT_BYTES_MAX, VALUES_MAX, ObjectSplitter

TEXTS = [
    b"{}",
    b'{"value": {"data": "}{][\\" \\\\"}}',
    b'{"\\\\": [{"a": []}], "b": "\\\\\\""}',
    '{"é": "🦀"}'.encode(),
    b'{ "a" : [1, 2, {"b": null}] }',
]


@pytest.mark.parametrize("between", [b"", b" \r\n\t "])
@pytest.mark.parametrize("step", [1, 2, 3, 7, 1000])
def test_objects_in_any_steps(between: bytes, step: int) -> None:
    body = between + between.join(TEXTS) + between
    splitter = ObjectSplitter()
    found = [text for at in range(0, len(body), step) for text in splitter.feed(body[at : at + step])]
    assert found == TEXTS
    splitter.check()
    assert splitter.is_between
    assert all(json.loads(text) is not None for text in found)


def test_random_objects() -> None:
    choice = random.Random(7)
    texts = []
    for _ in range(200):
        value = {"".join(choices(choice)): ["".join(choices(choice)), {"x": "".join(choices(choice))}]}
        texts.append(json.dumps(value, ensure_ascii=choice.random() < 0.5).encode())
    body = b"".join(texts)
    splitter, found, at = ObjectSplitter(), [], 0
    while at < len(body):
        step = choice.randrange(1, 40)
        found += splitter.feed(body[at : at + step])
        at += step
    assert found == texts


def choices(choice: random.Random) -> list[str]:
    return choice.choices('{}[]"\\,: aé\n', k=choice.randrange(8))


@pytest.mark.parametrize("body", [b"[]", b"5", b"}", b"nul", b'"a"', b"{},{}", b"\xef\xbb\xbf{}"])
def test_bytes_that_are_no_object(body: bytes) -> None:
    splitter = ObjectSplitter()
    assert splitter.feed(body) == ([b"{}"] if body.startswith(b"{}") else [])
    with pytest.raises(ApiError) as refused:
        splitter.check()
    assert (refused.value.status_code, refused.value.message) == (
        400,
        "Error processing message: every record must be a JSON object.",
    )


def test_an_object_that_does_not_end() -> None:
    splitter = ObjectSplitter()
    assert splitter.feed(b'{"a": 1') == []
    assert not splitter.is_between


@pytest.mark.parametrize(
    ("body", "status"),
    [
        (b'{"a":"' + b"x" * OBJECT_BYTES_MAX, 413),
        (b'{"a":"' + b"x" * OBJECT_BYTES_MAX + b'"}', 413),
        (b'{"a":' * (DEPTH_MAX + 1), 400),
        (b'{"a":[' + b"1," * VALUES_MAX + b"1]}", 400),
        (b'{"a":[' + b"[]" * VALUES_MAX, 400),
    ],
    ids=["without end", "large", "deep", "many values", "many brackets without end"],
)
def test_limits(body: bytes, status: int) -> None:
    splitter = ObjectSplitter()
    assert splitter.feed(body) == []
    with pytest.raises(ApiError) as refused:
        splitter.check()
    assert refused.value.status_code == status
    assert len(ObjectSplitter().feed(b'{"a":"' + b"x" * (OBJECT_BYTES_MAX - 8) + b'"}')) == 1
    assert len(ObjectSplitter().feed(b'{"a":' * DEPTH_MAX + b"1" + b"}" * DEPTH_MAX)) == 1


def test_a_text_of_escapes_is_one_step() -> None:
    """A step of Python for each escape took 0.3 s for two megabytes."""
    splitter, body = ObjectSplitter(), b'{"a":"' + b"\\n" * 500_000 + b'"}'
    steps = 0

    def count(_frame: object, event: str, _argument: object) -> None:
        nonlocal steps
        steps += event in ("call", "c_call")

    before = sys.getprofile()
    sys.setprofile(count)
    try:
        assert splitter.feed(body) == [body]
    finally:
        sys.setprofile(before)
    assert steps < 50


@pytest.mark.parametrize("unit", [b"a", b'""', b"\\\\", b"\\n", b"1,"])
def test_each_byte_is_looked_at_once(unit: bytes) -> None:
    """Eight times the bytes, in steps, take about eight times the processor time, and not sixty-four times."""

    def seconds(size: int) -> float:
        splitter = ObjectSplitter()
        body = b'{"a":' + (b'"' if unit in (b"a", b"\\\\", b"\\n") else b"[") + unit * (size // len(unit))
        begun = time.thread_time()
        for at in range(0, len(body), 8192):
            splitter.feed(body[at : at + 8192])
        return time.thread_time() - begun

    small = min(seconds(128 * 1024) for _ in range(3))
    assert min(seconds(1024 * 1024) for _ in range(3)) <= 24 * small + 0.05
