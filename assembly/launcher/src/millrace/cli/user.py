"""`millrace user`: users with a password (SCRAM credentials), over the Kafka protocol.

A password is never an argument, which other users of the machine could see. It comes from a prompt, from a file or
from standard input, and the broker gets a salted hash of it.
"""

from __future__ import annotations

import getpass
import sys
from enum import StrEnum
from typing import Annotated

import typer
from protocol_lib.client import Admin, SaslMechanism, SaslScram, ScramMechanism

from millrace.cli.client_properties import read_properties
from millrace.cli.errors import USAGE, CliError
from millrace.cli.kafka import administer, settings
from millrace.cli.options import Format, Kafka, Output, Properties, Yes
from millrace.cli.output import done, show

user = typer.Typer(help="List, create and delete users.", no_args_is_help=True, rich_markup_mode=None)

_PASSWORD_MAX = 1_024
_DEFAULT_ITERATIONS = 8_192


class Mechanism(StrEnum):
    """A mechanism of the command line."""

    SHA_256 = "SCRAM-SHA-256"
    SHA_512 = "SCRAM-SHA-512"


_MECHANISMS = {each.mechanism_name: each for each in ScramMechanism}
Name = Annotated[str, typer.Argument(metavar="USER", help="The user's name.")]
Chosen = Annotated[
    list[Mechanism] | None,
    typer.Option("--mechanism", "-m", help="For this mechanism alone; repeatable [default: both]."),
]


@user.command("list", epilog="Example: millrace user list")
def list_users(kafka: Kafka = None, properties: Properties = None, output: Output = Format.TABLE) -> None:
    """List the users, and the iterations of their passwords by mechanism."""

    async def work(admin: Admin) -> dict[str, dict[ScramMechanism, int]]:
        return await admin.users.describe()

    found = administer(kafka, work, properties)
    rows = [
        {"user": name, **{each.mechanism_name: own.get(each) for each in ScramMechanism}}
        for name, own in sorted(found.items())
    ]
    show(rows, output, columns=("user", *(each.mechanism_name for each in ScramMechanism)))


@user.command(epilog="Example: millrace user create alice --password-file alice.txt")
def create(
    name: Name,
    password_file: Annotated[
        str,
        typer.Option(
            "--password-file", metavar="PATH", help="File with the password in its first line; -: standard input."
        ),
    ] = "",
    mechanism: Chosen = None,
    iterations: Annotated[
        int, typer.Option("--iterations", min=4096, max=16384, help="Iterations of the password's hash.")
    ] = _DEFAULT_ITERATIONS,
    kafka: Kafka = None,
    properties: Properties = None,
    output: Output = Format.TABLE,
) -> None:
    """Create a user, or change the password of one; the prompt asks for it without --password-file."""
    if not name:
        raise CliError("a name is empty; is a shell variable not set?", USAGE)
    password = _password(password_file)
    wanted = _wanted(mechanism)

    own = _checked_by(settings(kafka, read_properties(properties or [])).sasl)

    async def work(admin: Admin) -> None:
        # A change of one's own password ends one's session. The login for the next change must still fit.
        for each in sorted(wanted, key=lambda mechanism: mechanism is own):
            await admin.users.set_password(name, password, each, iterations=iterations)

    administer(kafka, work, properties)
    names = [each.mechanism_name for each in wanted]
    done(f"password set: {name} ({', '.join(names)})", {"user": name, "mechanisms": names}, output)


@user.command(epilog="Example: millrace user delete alice --yes")
def delete(
    name: Name,
    mechanism: Chosen = None,
    yes: Yes = False,
    kafka: Kafka = None,
    properties: Properties = None,
    output: Output = Format.TABLE,
) -> None:
    """Delete a user."""

    async def work(admin: Admin) -> list[ScramMechanism]:
        own = (await admin.users.describe()).get(name, {})
        found = [each for each in _wanted(mechanism) if each in own]
        if yes:
            for each in found:
                await admin.users.delete_password(name, each)
        return found

    found = administer(kafka, work, properties)
    if not found:
        raise CliError(f"there is no user {name}")
    names = [each.mechanism_name for each in found]
    row = {"user": name, "mechanisms": names, "deleted": yes}
    which = f"{name} ({', '.join(names)})"
    done(f"deleted: {which}" if yes else f"would delete: {which}; add --yes to do it", row, output)


def _checked_by(login: SaslMechanism | None) -> ScramMechanism:
    """Return the mechanism whose credential a login is checked by: PLAIN has the first one."""
    return login.mechanism if isinstance(login, SaslScram) else ScramMechanism.SHA_256


def _wanted(chosen: list[Mechanism] | None) -> list[ScramMechanism]:
    return [_MECHANISMS[each.value] for each in chosen or Mechanism]


def _password(path: str) -> str:
    """Return the password of a file, of standard input, or of a person. Raises CliError."""
    if not path:
        if not sys.stdin.isatty():
            raise CliError("a password is needed: --password-file PATH, or - for standard input", USAGE)
        password = getpass.getpass("Password: ")
        if getpass.getpass("Again: ") != password:
            raise CliError("the two passwords differ", USAGE)
    else:
        try:
            if path == "-":
                line = sys.stdin.buffer.readline(_PASSWORD_MAX * 4 + 2)
            else:
                with open(path, "rb") as file:
                    line = file.readline(_PASSWORD_MAX * 4 + 2)
            password = line.decode().rstrip("\r\n")
        except OSError as error:
            raise CliError(f"--password-file {path}: {error.strerror}", USAGE) from error
        except UnicodeDecodeError:
            raise CliError(f"--password-file {path}: it is not UTF-8", USAGE) from None
    if not 0 < len(password) <= _PASSWORD_MAX:
        raise CliError(f"a password has 1 to {_PASSWORD_MAX} characters", USAGE)
    return password
