"""The command line of `millrace up`: the quick reader and typer read the same."""

import subprocess
import sys

import pytest
from millrace.cli import commands
from millrace.launch_options import LaunchOptions

EVERY_OPTION = {
    "data_dir": "data",
    "kafka_port": 1,
    "http_port": 2,
    "metrics_port": 3,
    "host": "h",
    "http_host": "localhost",
    "advertised_host": "a",
    "topics": "orders:3",
    "gateways": 2,
    "processes": True,
}


def as_typer_reads(arguments, monkeypatch):
    launched = []
    monkeypatch.setattr("millrace.launch.launch", lambda options: launched.append(options) or 7)
    assert commands.run(["up", *arguments]) == 7
    return launched[0]


@pytest.mark.parametrize("joined", [True, False])
@pytest.mark.parametrize("name", [None, *EVERY_OPTION])
def test_typer_and_the_quick_reader_agree(name, joined, monkeypatch):
    values = {} if name is None else {name: EVERY_OPTION[name]}
    arguments = []
    for each, value in values.items():
        option = f"--{each.replace('_', '-')}"
        arguments += [option] if value is True else [f"{option}={value}"] if joined else [option, str(value)]
    expected = LaunchOptions(**values)
    assert LaunchOptions.read(arguments) == expected
    assert as_typer_reads(arguments, monkeypatch) == expected


def test_every_option_has_a_case():
    assert vars(LaunchOptions(**EVERY_OPTION)) == EVERY_OPTION


def test_the_launcher_loads_no_library_for_command_lines():
    code = (
        "import sys\nfrom millrace.cli import main\n"
        "sys.argv = ['millrace', 'up', '--data-dir', '/dev/null', '--kafka-port=0', '--http-port=0']\n"
        "print(main(), sorted({'typer', 'click', 'argparse', 'rich'} & {*sys.modules}))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
    assert (done.stdout, done.stderr) == ("1 []\n", "millrace up: --data-dir: /dev/null is not a folder\n")


@pytest.mark.parametrize("arguments", [["--help"], ["--host"], ["--host", "--processes"], ["--processes=1"], ["x"]])
def test_other_command_lines_are_left_to_typer(arguments):
    assert LaunchOptions.read(arguments) is None


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--kafka-port", "65536"], "--kafka-port: 65536 is not a port"),
        (["--http-port", "-1"], "--http-port: -1 is not a port"),
        (["--gateways", "0"], "--gateways: 0 is not a number from 1 to 64"),
        (["--data-dir", ""], "--data-dir: the name is empty; is a shell variable not set?"),
        (["--host", ""], "--host: the host is empty; 0.0.0.0 stands for every interface"),
        (["--http-host="], "--http-host: the host is empty"),
        (["--advertised-host="], "--advertised-host: the host is empty"),
        (["--kafka-port", "29194", "--http-port", "29194"], "--http-port: port 29194 is that of --kafka-port"),
        (["--metrics-port", "8081"], "--metrics-port: port 8082 is that of --http-port too"),
        (["--metrics-port", "9090", "--gateways", "2"], "--metrics-port: port 9092 is that of --kafka-port"),
        (["--metrics-port", "65535"], "--metrics-port: 2 services need 2 ports from there"),
        (["--data", "x"], "No such option: --data"),
    ],
)
def test_wrong_options_are_refused(arguments, message, capsys):
    assert LaunchOptions.read(arguments) is None
    assert commands.run(["up", *arguments]) == 2
    assert message in " ".join(capsys.readouterr().err.replace("│", " ").split())
