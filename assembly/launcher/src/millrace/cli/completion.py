"""`millrace completion`: a script that completes commands and options without a start of Python."""

from __future__ import annotations

from typing import Annotated, Literal

import typer

from millrace.cli.tree import Command, commands

Shell = Literal["bash", "zsh", "fish"]


def completion(context: typer.Context, shell: Annotated[Shell, typer.Argument(help="The shell.")]) -> None:
    """Print a script that completes commands and options in a shell."""
    typer.echo(script(shell, commands(context.find_root().command)), nl=False)


def script(shell: Shell, tree: list[Command]) -> str:
    """Return the script of a shell."""
    if shell == "fish":
        return "\n".join(["complete -c millrace -f", *map(_fish, tree)]) + "\n"
    cases = "\n".join(f"        '{' '.join(each.path[1:])}') words='{_words(each)}' ;;" for each in tree)
    body = _BASH.replace("CASES", cases)
    return body if shell == "bash" else f"autoload -U +X bashcompinit && bashcompinit\n{body}"


_BASH = """_millrace() {
    local path='' word words=''
    for word in "${COMP_WORDS[@]:1:COMP_CWORD-1}"; do
        [[ $word == -* ]] && break
        path="${path:+$path }$word"
    done
    while :; do
        case "$path" in
CASES
        esac
        [[ -n $words || -z $path ]] && break
        [[ $path == *' '* ]] && path="${path% *}" || path=''
    done
    COMPREPLY=($(compgen -W "$words" -- "${COMP_WORDS[COMP_CWORD]}"))
}
complete -o default -F _millrace millrace
"""


def _words(command: Command) -> str:
    options = [name for each in command.parameters for name in each.names]
    choices = [choice for each in command.parameters if not each.names for choice in each.choices]
    return " ".join([*command.subcommands, *choices, *options, "--help"])


def _fish(command: Command) -> str:
    path = command.path[1:]
    condition = " && ".join(f"__fish_seen_subcommand_from {name}" for name in path) or "__fish_use_subcommand"
    if command.subcommands and path:
        condition += f" && not __fish_seen_subcommand_from {' '.join(command.subcommands)}"
    return f"complete -c millrace -n '{condition}' -a '{_words(command)}'"
