import json
import logging
import re
import sys

import pytest
from service_chassis import logs


def _lines(capsys):
    return [json.loads(line) for line in capsys.readouterr().err.splitlines()]


def test_json_line(capsys):
    log = logs.get("part")
    logs.configure("storage-svc", "info", "json")
    log.info("topic created", topic="orders", partitions=3, name="a\nb")
    (line,) = _lines(capsys)
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{6}Z", line.pop("ts"))
    assert line == {
        "level": "info", "service": "storage-svc", "logger": "part", "event": "topic created",
        "topic": "orders", "partitions": 3, "name": "a\nb",
    }  # fmt: skip


def test_levels(capsys):
    log = logs.get("part")
    for level, count in (("debug", 4), ("info", 3), ("warning", 2), ("error", 1)):
        logs.configure("s", level, "json")
        assert logs.get("a.b").debug_enabled == (level == "debug")
        for write in (log.debug, log.info, log.warning, log.error):
            write("x")
        assert len(_lines(capsys)) == count


def test_levels_of_packages_and_modules(capsys):
    inner, other = logs.get("pack.age.module"), logs.get("packaged")
    logs.configure("s", "info", "json")

    def written(log):
        for write in (log.debug, log.info, log.warning, log.error):
            write("x")
        return [line["level"] for line in _lines(capsys)]

    assert {name: logs.levels()[name] for name in ("pack", "pack.age.module", "root")} == {
        "pack": "INFO", "pack.age.module": "INFO", "root": "INFO",
    }  # fmt: skip
    logs.set_level("pack", "DEBUG")
    assert (written(inner), written(other)) == (
        ["debug", "info", "warning", "error"],
        ["info", "warning", "error"],
    )
    logs.set_level("pack.age.module", "FATAL")
    assert (written(inner), logs.get("pack.later").debug_enabled) == ([], True)
    logs.set_level("root", "ERROR")
    assert written(other) == ["error"]
    logs.set_level("pack.age.module", None)
    logs.set_level("pack", None)
    assert written(inner) == ["error"]
    with pytest.raises(ValueError, match="root"):
        logs.set_level("root", None)
    with pytest.raises(KeyError):
        logs.set_level("pack", "LOUD")
    logs.set_level("pack", "TRACE")
    with logs.configured("t", "warning"):
        assert [logs.levels()[name] for name in ("pack", "root")] == ["WARN", "WARN"]
    assert [logs.levels()[name] for name in ("pack.age.module", "root")] == ["TRACE", "ERROR"]
    logs.configure("s", "info", "json")
    assert logs.levels()["pack"] == "INFO"


def test_secrets_are_masked_at_any_depth(capsys):
    logs.configure("s", "info", "json")
    logs.get("part").info("x", sasl_password="a", settings={"admin_token": "b", "empty_secret": "", "n": 1})
    text = capsys.readouterr().err
    line = json.loads(text)
    assert line["sasl_password"] == "**********"
    assert line["settings"] == {"admin_token": "**********", "empty_secret": "", "n": 1}


def test_fields_cannot_pass_for_the_head(capsys):
    logs.configure("s", "info", "json")
    logs.get("part").info("x", level="debug", service="other", ts="never")
    (line,) = _lines(capsys)
    assert (line["level"], line["service"]) == ("info", "s")
    assert line["ts"] != "never"


def test_text_is_one_line_whatever_comes_from_outside(capsys):
    logs.configure("s", "info", "text")
    logs.get("part").info("x", client_id="a\n2026 error forged\x1b[31m")
    lines = capsys.readouterr().err.splitlines()
    assert len(lines) == 1
    assert lines[0].endswith("info    part: x client_id='a\\n2026 error forged\\x1b[31m'")


def test_configured_for_a_while(capsys):
    logs.configure("s", "error", "json")
    with logs.configured("t", "debug", "text"):
        logs.get("part").debug("x")
    logs.get("part").warning("y")
    assert capsys.readouterr().err.endswith("Z debug   part: x\n")


@pytest.mark.parametrize("given", ["handled", "error", "exc_info"])
def test_exception(capsys, given):
    logs.configure("s", "info", "json")
    log = logs.get("part")
    try:
        raise ValueError("broken")
    except ValueError as error:
        if given == "handled":
            log.exception("failed", n=1)
        else:
            log.error("failed", n=1, exc_info=error if given == "error" else sys.exc_info())
    (line,) = _lines(capsys)
    assert (line.pop("level"), line.pop("event"), line.pop("n")) == ("error", "failed", 1)
    traceback = line.pop("exception").splitlines()
    assert (traceback[0], traceback[-1]) == ("Traceback (most recent call last):", "ValueError: broken")
    assert line.keys() == {"ts", "service", "logger"}


def test_there_may_be_no_exception(capsys):
    logs.configure("s", "info", "text")
    logs.get("part").exception("failed")
    assert capsys.readouterr().err.endswith("error   part: failed\n")


def test_standard_logging_comes_through(capsys):
    root = logging.getLogger()
    handlers, level = root.handlers[:], root.level
    try:
        logs.configure("s", "info", "json")
        logs.capture_standard_logging()
        logging.getLogger("library").warning("odd %s", "thing")
        logging.getLogger("library").info("chatter")
    finally:
        root.handlers[:] = handlers
        root.setLevel(level)
    (line,) = _lines(capsys)
    assert (line["logger"], line["level"], line["event"]) == ("library", "warning", "odd thing")
