"""The completion scripts, in the shells that they are for."""

import json
import os
import pty
import re
import select
import shlex
import shutil
import subprocess
import sys
import time

import pytest
from millrace.cli import commands
from millrace.cli.completion import script
from millrace.cli_page import all_commands

TREE = all_commands()
SHELLS = ("bash", "zsh", "fish")
#: Names that a shell would run, split or hide if it took them for more than text.
HOSTILE = ["$(touch broken)", "`touch broken`", "; touch broken;", "two words", "quo'te\"s", "~", "*", "-x", "a:b"]
TABLES = {
    "millrace gr": ["group"],
    "millrace topic tr": ["trim-prefix"],
    "millrace --no-color topic li": ["list"],
    "millrace cluster config ": ["list", "set", "edit"],
    "millrace topic create orders --pa": ["--partitions"],
    "millrace up --met": ["--metrics-port"],
    "millrace completion f": ["fish"],
    "millrace topic list -o ": ["table", "json", "yaml"],
    "millrace topic list --output y": ["yaml"],
    "millrace produce orders -z s": ["snappy"],
    "millrace produce orders --input ": ["text", "json-each-row"],
    "millrace consume orders -c ": [],
    "millrace topic describe o": ["orders", "other"],
    "millrace topic describe orders ot": ["other"],
    "millrace consume --rest localhost:1 ord": ["orders"],
    "millrace consume orders -G b": ["billing"],
    "millrace group offset-delete billing orde": ["orders"],
    "millrace group copy billing ": [],
    "millrace profile use p": ["prod"],
    "millrace storage verify data/or": ["data/orders-0"],
    "millrace storage verify nothing": [],
    "millrace up --data-dir da": ["data"],
}


AVAILABLE = [
    pytest.param(shell, marks=pytest.mark.skipif(shutil.which(shell) is None, reason=f"{shell} is not installed"))
    for shell in SHELLS
]


@pytest.fixture
def scripts(tmp_path, monkeypatch):
    """The folder of the scripts, which ask a program of this test for names."""
    names = {"topics": ["orders", "other"], "groups": ["billing", *HOSTILE], "profiles": ["prod", "test"]}
    (tmp_path / "program").write_text(f"import sys; print(*{names!r}[sys.argv[5]], sep='\\n')")
    fake = tmp_path / "python"
    fake.write_text(f'#!/bin/sh\nexec {shlex.quote(sys.executable)} -I -S {tmp_path}/program "$@"\n')
    fake.chmod(0o755)
    monkeypatch.setattr("millrace.cli.completion.sys.executable", str(fake))
    for shell in SHELLS:
        (tmp_path / f"script.{shell}").write_text(script(shell, TREE))
    (tmp_path / "data" / "orders-0").mkdir(parents=True)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def completed(shell, line):
    """Return what a shell offers for a line, in one process of it."""
    if shell == "bash":
        call = "COMP_POINT=${#COMP_LINE}; _millrace; printf '%s\\n' \"${COMPREPLY[@]}\""
        code = f"source script.bash; COMP_LINE={shlex.quote(line)}; {call}"
    elif shell == "zsh":
        words = [*line.split(" ")]
        listed = " ".join(map(shlex.quote, words))
        # the builtins of a completion: those that match what is typed
        stubs = (
            'compadd() { shift; local each; for each in "$@"; do'
            ' [[ $each == "$words[CURRENT]"* ]] && print -r -- "$each"; done }; '
            "_files() { print -rl -- ${words[CURRENT]}* }; "
            "setopt nullglob extendedglob rcexpandparam; "  # those of the completion system, on which _files relies
        )
        code = f"source ./script.zsh; {stubs} words=({listed}); CURRENT={len(words)}; _millrace; true"
    else:
        code = f"source script.fish; complete -C {shlex.quote(line)}"
    arguments = {"bash": ["--norc"], "zsh": ["-f"], "fish": ["--no-config"]}[shell]
    done = subprocess.run([shell, *arguments, "-c", code], capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stderr) == (0, "")
    return [each.rstrip("/") for each in done.stdout.split("\n") if each]


@pytest.mark.parametrize("shell", SHELLS)
def test_the_completion_knows_every_command_and_option(shell, capsys):
    assert commands.run(["completion", shell]) == 0
    shown = capsys.readouterr().out
    assert shown == script(shell, TREE)
    options = {name for each in TREE for option in each.parameters for name in option.names}
    assert [name for name in (*options, *(each.path[-1] for each in TREE)) if name not in shown] == []


@pytest.mark.parametrize("shell", AVAILABLE)
def test_commands_options_values_and_names(shell, scripts):
    found = {line: sorted(completed(shell, line)) for line in TABLES}
    assert found == {line: sorted(expected) for line, expected in TABLES.items()}


@pytest.mark.parametrize("shell", AVAILABLE)
def test_names_are_text_and_nothing_of_them_is_run(shell, scripts):
    found = completed(shell, "millrace group describe ")
    expected = sorted(["billing", *HOSTILE])
    if shell == "bash":  # which inserts words as they are
        found = [shlex.split(each)[0] for each in found]
    elif shell == "fish":
        expected.remove("-x")  # fish offers that after a minus sign
        found = [each for each in found if each != "-x"]
    assert sorted(found) == expected
    assert not (scripts / "broken").exists()


@pytest.mark.parametrize("shell", AVAILABLE)
def test_nothing_of_the_current_folder_is_run(shell, home, monkeypatch):
    (home / "millrace").mkdir()
    profiles = {"current": "", "profiles": {"prod": {"rest": "h:1", "kafka": "h:1", "token_file": ""}}}
    (home / "millrace" / "profiles.json").write_text(json.dumps(profiles))
    (home / f"script.{shell}").write_text(script(shell, TREE))
    for module in ("typer", "json", "millrace"):
        (home / f"{module}.py").write_text("open('broken', 'w')")
    monkeypatch.chdir(home)
    assert completed(shell, "millrace profile use p") == ["prod"]
    assert not (home / "broken").exists()


@pytest.mark.parametrize("shell", AVAILABLE)
def test_a_tab_in_a_terminal(shell, scripts):
    """What a person sees: the rest of the word, and no error of the shell."""
    arguments = {"bash": ["--norc", "-i"], "zsh": ["-f", "-i"], "fish": ["--no-config", "-i"]}[shell]
    prepare = "autoload -U compinit; compinit -u -D; " if shell == "zsh" else ""
    pid, terminal = pty.fork()
    if pid == 0:
        os.environ.update(TERM="dumb", PS1="$ ", HOME=str(scripts), COLUMNS="200")
        os.execlp(shell, shell, *arguments)
    try:
        os.write(terminal, f"{prepare}source ./script.{shell}; echo load''ed\n".encode())
        seen = _until(terminal, "loaded")
        os.write(terminal, b"echo millrace; millrace top\t")
        seen = _until(terminal, "millrace topic")
        os.write(terminal, b"desc\t")
        seen += _until(terminal, "describe")
        os.write(terminal, b"ord\t")
        seen += _until(terminal, "orders")
    finally:
        os.kill(pid, 9)
        os.waitpid(pid, 0)
        os.close(terminal)
    assert not re.search(r"error|unrecognized|not found|bad ", seen), seen


def _until(terminal, text):
    """Return what a terminal prints until a text is in it."""
    seen, deadline = "", time.monotonic() + 30
    while text not in re.sub(r"\x1b[^A-Za-z]*[A-Za-z]|\r|\x08", "", seen):
        readable, _, _ = select.select([terminal], [], [], max(0, deadline - time.monotonic()))
        assert readable, seen
        seen += os.read(terminal, 4096).decode(errors="replace")
    return seen


def test_names_that_come_too_late_are_not_waited_for():
    """A name server that does not answer holds a thread in C, where no time-out of ours reaches it."""
    program = (
        "import threading, time\n"
        "from millrace.cli import candidates\n"
        "candidates.TAB_S = 0.05\n"
        "def stuck(kind, words):\n"
        "    other = threading.Thread(target=time.sleep, args=(60,)); other.start(); other.join()\n"
        "candidates._names = stuck\n"
        "candidates.print_names('topics', [])\n"
        "print('went on')\n"
    )
    ended = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=30)
    assert (ended.returncode, ended.stdout, ended.stderr) == (0, "", "")
