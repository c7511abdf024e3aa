"""The page docs/reference/cli.md equals the help texts of the commands. `python tests/cli/test_reference.py` writes it again."""

from __future__ import annotations

import argparse
from pathlib import Path

from headrace.cli.main import parser

PAGE = Path(__file__).parents[2] / "docs" / "reference" / "cli.md"
EXIT_CODES = """## Exit codes

| code | meaning |
|---|---|
| 0 | done; a run that follows its sources was asked to stop, and its home can be resumed |
| 1 | a fault of Headrace, or `check` found a fault |
| 2 | a mistake in the command or in a statement, or the home is in use, may not be written, or has an unknown format |
| 2, of a shell | as above with `-e`, which ends at the mistake; where statements come from a file or a pipe, the shell continues with the next one, and ends so at last; at a terminal it ends with 0 |
| 128 + n | `run --once` was stopped by signal n before it could answer |

A first Ctrl-C or SIGTERM finishes the epoch under way; a second one ends the process at once.
"""


def page() -> str:
    top = parser()
    commands = next(action for action in top._actions if isinstance(action, argparse._SubParsersAction))
    parts = [
        "# The command line",
        "",
        "Written from `headrace --help` by `python tests/cli/test_reference.py`.",
        "",
    ]
    parts += [top.description or "", ""]
    for name, command in commands.choices.items():
        parts += [f"## headrace {name}", "", command.description or "", "", "| | |", "|---|---|"]
        parts += [f"| {spelled(action)} | {action.help} |" for action in command._actions if shown(action)]
        parts.append("")
    return "\n".join([*parts, EXIT_CODES])


def shown(action: argparse.Action) -> bool:
    return action.help is not argparse.SUPPRESS and action.dest != "help"


def spelled(action: argparse.Action) -> str:
    value = action.metavar or ("\\|".join(action.choices) if action.choices else "")
    names = ", ".join(action.option_strings)
    return "`" + f"{names} {value}".strip() + "`"


def test_the_reference_page_is_what_the_commands_say() -> None:
    assert PAGE.read_text(encoding="utf-8") == page(), f"run python {Path(__file__).name} to write it again"


def test_every_option_says_what_it_does() -> None:
    assert "None" not in page()
    assert page().count("## headrace ") == 8


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
