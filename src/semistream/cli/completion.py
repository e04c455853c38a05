"""Completion scripts for bash, zsh and fish, made from the parser of the command itself.

So a command or an option that is added is completed as well. Where a value is a path, the shell
completes files.
"""

import argparse
import re
from collections.abc import Iterator
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class _Option:
    name: str  # with its dashes
    help: str
    takes_value: bool
    values: tuple[str, ...] = ()  # the values it can have; empty if any


@dataclass(frozen=True, slots=True)
class _Command:
    """A command, or the program itself, which has no words."""

    words: tuple[str, ...]  # such as ("lab", "run")
    help: str
    options: list[_Option] = field(default_factory=list)
    values: tuple[str, ...] = ()  # of its argument, if it has only some
    inner: list["_Command"] = field(default_factory=list)

    def walk(self) -> Iterator["_Command"]:
        """Yield the command and all inside it."""
        yield self
        for command in self.inner:
            yield from command.walk()


def script(shell: str, parser: argparse.ArgumentParser) -> str:
    """Return the completion script for a shell."""
    whole = _command(parser, (), "")
    return {"bash": _bash, "zsh": _zsh, "fish": _fish}[shell](whole)


def _command(parser: argparse.ArgumentParser, words: tuple[str, ...], help_: str) -> _Command:
    command = _Command(words, help_)
    values: tuple[str, ...] = ()
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            helps = {choice.dest: choice.help or "" for choice in action._choices_actions}
            for name, inner in action.choices.items():
                command.inner.append(_command(inner, (*words, name), _plain(helps.get(name, ""))))
        elif action.option_strings:
            command.options.append(_option(action))
        else:
            values = values or tuple(action.choices or ())
    return _Command(words, help_, command.options, values, command.inner)


def _option(action: argparse.Action) -> _Option:
    listed = re.fullmatch(r"\{(.+)\}", action.metavar if isinstance(action.metavar, str) else "")
    values = tuple(action.choices or (listed[1].split(",") if listed else ()))
    return _Option(action.option_strings[-1], _plain(action.help or ""), action.nargs != 0, values)


def _plain(text: str) -> str:
    """Return the first part of a help text, without what a shell could take for its own.

    >>> _plain("budget: a size, or a share such as 5%%; default 64MB")
    'budget - a size, or a share such as 5%'
    """
    first = text.replace("%%", "%").partition(";")[0].partition(" (default")[0]
    spaced = first.replace(": ", " - ").replace(":", " ").replace("'", "’")
    return re.sub(r"""[\[\]"`$\\]""", "", spaced)


def _bash(whole: _Command) -> str:
    lines = ["_semistream() {", '    local word="${COMP_WORDS[COMP_CWORD]}"']
    lines += ['    local previous="${COMP_WORDS[COMP_CWORD-1]}" command="" choices="" i']
    lines += ["    for ((i = 1; i < COMP_CWORD; i++)); do"]
    lines += ['        case "$command ${COMP_WORDS[i]}" in']
    known = [" ".join(c.words) for c in whole.walk() if c.words]
    for name in known:
        outer, _, last = name.rpartition(" ")
        lines.append(f'            "{outer} {last}") command="{name}" ;;')
    lines += ["        esac", "    done", '    case "$command $previous" in']
    any_value = []
    for command in whole.walk():
        for option in command.options:
            name = f'"{" ".join(command.words)} {option.name}"'
            if option.values:
                values = f'$(compgen -W "{" ".join(option.values)}" -- "$word")'
                lines.append(f"        {name}) COMPREPLY=({values}); return ;;")
            elif option.takes_value:
                any_value.append(name)
    lines.append(f"        {'|'.join(any_value)}) return ;;")
    lines += ["    esac", '    case "$command" in']
    for command in whole.walk():
        inner = [c.words[-1] for c in command.inner]
        names = [*inner, *command.values, *(option.name for option in command.options)]
        lines.append(f'        "{" ".join(command.words)}") choices="{" ".join(names)}" ;;')
    lines += ["    esac", "    # Without a choice that fits, bash completes files."]
    lines += ['    COMPREPLY=($(compgen -W "$choices" -- "$word"))']
    lines += ["    [[ -z $word && -n $command && ${COMPREPLY[0]} == -* ]] && COMPREPLY=()"]
    lines += ["    return 0", "}"]
    lines += ["complete -o bashdefault -o default -F _semistream semistream", ""]
    return "\n".join(lines)


def _zsh(whole: _Command) -> str:
    lines = ["#compdef semistream", ""]
    for command in whole.walk():
        lines += _zsh_function(command)
    # In a folder of `fpath` the file is run as the function; `eval` and `source` only define it.
    lines += ["if [[ $funcstack[1] == _semistream ]]; then", '    _semistream "$@"', "else"]
    return "\n".join([*lines, "    compdef _semistream semistream", "fi", ""])


def _zsh_function(command: _Command) -> list[str]:
    name = "_".join(["_semistream", *command.words])
    lines = [f"{name}() {{"]
    specs = [_zsh_option(option) for option in command.options]
    if not command.inner:
        rest = f"'1:value:({' '.join(command.values)})'" if command.values else "'*:file:_files'"
        return [*lines, *_zsh_arguments([*specs, rest]), "}", ""]
    lines += ["    local -a commands", "    local state line", "    commands=("]
    lines += [f"        '{inner.words[-1]}:{inner.help}'" for inner in command.inner]
    lines += ["    )"]
    lines += _zsh_arguments(["-C", *specs, "'1: :->command'", "'*:: :->rest'"])
    lines += ["    case $state in", "        command) _describe command commands ;;"]
    lines += ["        rest)", "            case $line[1] in"]
    for inner in command.inner:
        function = "_".join(["_semistream", *inner.words])
        lines.append(f"                {inner.words[-1]}) {function} ;;")
    return [*lines, "            esac ;;", "    esac", "}", ""]


def _zsh_arguments(specs: list[str]) -> list[str]:
    return ["    _arguments \\", " \\\n".join(f"        {spec}" for spec in specs)]


def _zsh_option(option: _Option) -> str:
    if not option.takes_value:
        return f"'{option.name}[{option.help}]'"
    values = f"({' '.join(option.values)})" if option.values else "_files"
    return f"'{option.name}[{option.help}]:value:{values}'"


def _fish(whole: _Command) -> str:
    lines = ["# Completions of semistream.", "complete -c semistream -e"]
    for command in whole.walk():
        when = _fish_condition(command)
        start = f"complete -c semistream -n '{when}'"
        lines += [f"{start} -f -a '{c.words[-1]}' -d '{c.help}'" for c in command.inner]
        if command.values:
            lines.append(f"{start} -f -a '{' '.join(command.values)}'")
        for option in command.options:
            value = " -r" if option.takes_value else ""
            choices = f" -f -a '{' '.join(option.values)}'" if option.values else ""
            name = option.name.removeprefix("--")
            lines.append(f"{start} -l {name}{value}{choices} -d '{option.help}'")
    return "\n".join([*lines, ""])


def _fish_condition(command: _Command) -> str:
    if not command.words:
        return "__fish_use_subcommand"
    conditions = [f"__fish_seen_subcommand_from {word}" for word in command.words]
    if command.inner:
        names = " ".join(inner.words[-1] for inner in command.inner)
        conditions.append(f"not __fish_seen_subcommand_from {names}")
    return "; and ".join(conditions)
