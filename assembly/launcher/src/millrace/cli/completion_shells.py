"""The parts of the completion scripts that are the same for every tree of commands; MILLRACE is the program."""

from __future__ import annotations

#: bash 3.2 and zsh: where the words before the cursor lead to. `at` is the command, `kind` what comes next.
POSIX_STATE = r"""
_millrace_state() {
    local word number=0
    at='' kind=''
    for word in "$@"; do
        if [[ -n $kind ]]; then
            kind=''
        elif [[ $word == -* ]]; then
            _millrace_value "$at $word"
            kind=$REPLY
        else
            _millrace_options "${at:+$at }$word"
            if [[ $number == 0 && -n $REPLY ]]; then
                at="${at:+$at }$word"
            else
                number=$((number + 1))
            fi
        fi
    done
    is_value=$kind
    [[ -n $kind ]] && return
    _millrace_argument "$at $number"
    kind=$REPLY
}

_millrace_listed() {
    if [[ -n $is_value ]]; then
        REPLY=$kind
        return
    fi
    _millrace_commands "$at"
    [[ $kind != @* && $kind != - ]] && REPLY="$REPLY $kind"
    if [[ $1 == -* || -z ${REPLY// /} && -z $kind ]]; then
        _millrace_options "$at"
    fi
}
"""

BASH = r"""
_millrace() {
    local at kind is_value REPLY words word name quoted line="${COMP_LINE:0:COMP_POINT}"
    read -r -a words <<< "$line"
    local current=''
    if [[ $line != *[[:space:]] ]]; then
        current="${words[${#words[@]}-1]}"
        unset "words[${#words[@]}-1]"
    fi
    _millrace_state "${words[@]:1}"
    COMPREPLY=()
    if [[ $kind == @files && $current != -* ]]; then
        while IFS= read -r name; do COMPREPLY+=("$name"); done < <(compgen -f -- "$current")
        type compopt > /dev/null 2>&1 && compopt -o filenames 2> /dev/null
    elif [[ $kind == @* && $current != -* ]]; then
        while IFS= read -r name; do
            printf -v quoted %q "$name"
            [[ $name == "$current"* || $quoted == "$current"* ]] && COMPREPLY+=("$quoted")
        done < <(MILLRACE _names "${kind#@}" "${words[@]:1}" 2> /dev/null < /dev/null)
    elif [[ -z $is_value || $kind != - ]]; then
        _millrace_listed "$current"
        for word in $REPLY; do
            [[ $word == "$current"* ]] && COMPREPLY+=("$word")
        done
    fi
    # bash replaces what follows the last of these letters alone
    local kept="${current%"${current##*[:=]}"}" index
    for index in "${!COMPREPLY[@]}"; do
        COMPREPLY[index]="${COMPREPLY[index]#"$kept"}"
    done
}
complete -F _millrace millrace
"""

ZSH = r"""
_millrace() {
    local at kind is_value REPLY current="${words[CURRENT]}"
    local -a found
    _millrace_state "${(@Q)words[2,CURRENT-1]}"
    if [[ $kind == @files && $current != -* ]]; then
        _files
    elif [[ $kind == @* && $current != -* ]]; then
        found=("${(@f)$(MILLRACE _names "${kind#@}" "${(@Q)words[2,CURRENT-1]}" 2> /dev/null < /dev/null)}")
        compadd -- "${(@)found:#}"
    elif [[ -z $is_value || $kind != - ]]; then
        _millrace_listed "$current"
        compadd -- ${=REPLY}
    fi
}
if [[ ${funcstack[1]} == _millrace ]]; then
    _millrace "$@"
elif (( $+functions[compdef] )); then
    compdef _millrace millrace
fi
"""

FISH = r"""
function __millrace
    set -l at ''
    set -l kind
    set -l number 0
    set -l before (commandline -opc)
    set -l current (commandline -ct)
    for word in $before[2..-1]
        if test -n "$kind"
            set kind
        else if string match -q -- '-*' $word
            set kind (__millrace_value "$at $word")
        else
            set -l longer (string trim -- "$at $word")
            if test $number = 0; and test -n "$(__millrace_options $longer)"
                set at $longer
            else
                set number (math $number + 1)
            end
        end
    end
    set -l is_value $kind
    test -n "$kind"; or set kind (__millrace_argument "$at $number")
    if test -z "$is_value"; and string match -q -- '-*' "$current"
        __millrace_options $at
    else if test "$kind" = @files
        __fish_complete_path "$current"
    else if string match -q -- '@*' "$kind[1]"
        MILLRACE _names (string sub -s 2 -- $kind) $before[2..-1] 2> /dev/null < /dev/null
    else if test "$kind" != -
        __millrace_commands "$at"
        printf '%s\n' $kind
        if test -z "$kind"; and test -z "$(__millrace_commands "$at")"
            __millrace_options "$at"
        end
    else if test -z "$is_value"
        __millrace_commands "$at"
    end
end
complete -c millrace -f -a '(__millrace)'
"""
