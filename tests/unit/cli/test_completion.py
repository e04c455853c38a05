"""Completion scripts: bash runs its own here; all three have every command and option."""

import subprocess
from pathlib import Path

import pytest

from semistream.cli.arguments import SHELLS
from semistream.cli.completion import _command, script
from semistream.cli.main import main, parser


def completed(words: list[str], folder: Path) -> list[str]:
    """Return what bash would offer for the last of some words."""
    path = folder / "completion.bash"
    path.write_text(script("bash", parser()))
    program = (
        f'source {path}; COMP_WORDS=("$@"); COMP_CWORD=$(($# - 1)); _semistream; '
        'printf "%s\\n" "${COMPREPLY[@]}"'
    )
    done = subprocess.run(
        ["bash", "-c", program, "bash", "semistream", *words],
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stderr == ""
    return done.stdout.split()


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (["ver"], ["verify"]),
        (["build", "--pa"], ["--partitions", "--page-size"]),
        (["build", "--order", ""], ["key", "frequency"]),
        (["build", "--order", "fr"], ["frequency"]),
        (["build", "--key", ""], []),
        (["info", ""], []),  # then bash completes files
        (["lab", ""], ["list", "run", "report", "compare", "map", "computing", "--help"]),
        (["lab", "run", "--scale", ""], ["quick", "paper"]),
        (["completion", "z"], ["zsh"]),
    ],
)
def test_bash(words: list[str], expected: list[str], tmp_path: Path) -> None:
    assert completed(words, tmp_path) == expected


def test_bash_offers_every_command(tmp_path: Path) -> None:
    names = [command.words[0] for command in _command(parser(), (), "").inner]
    assert {"build", "info", "verify", "prune", "doctor", "completion"} <= set(names)
    assert completed([""], tmp_path) == [*names, "--help", "--version"]


@pytest.mark.parametrize("shell", SHELLS)
def test_every_command_and_option_is_in_each_script(
    shell: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["completion", shell]) == 0
    text = capsys.readouterr().out
    for command in _command(parser(), (), "").walk():
        for word in command.words:
            assert word in text
        for option in command.options:
            assert (f"-l {option.name[2:]} " if shell == "fish" else option.name) in text
    for line in text.splitlines():
        assert line.count("'") % 2 == 0, line
        assert line.count('"') % 2 == 0, line
