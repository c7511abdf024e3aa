"""`headrace run`, up to the first statement: checks options and script, opens the home (a temporary one for `--once`
without `--home`), and adds the script's name to errors in it. `script_run` executes the script.

Where another process runs the home, the script is sent to it. A mistake in the script is found before anything starts; then Java starts while the rest of the program is imported.
"""

from __future__ import annotations

import tempfile
from contextlib import ExitStack
from pathlib import Path
from typing import Final

from headrace.cli.screen import Screen
from headrace.cli.signals import Interrupts
from headrace.dataclass import dataclass
from headrace.errors import UserError
from headrace.language.statements.parse_script import parse_script
from headrace.runtime.home.quick_start import importing, leave_masked_arrays_out, leave_pandas_out
from headrace.runtime.hub import opening
from headrace.server import open_or_connect

DEFAULT_HOME: Final = Path("headrace-home")


@dataclass(frozen=True, slots=True)
class RunOptions:
    """Options of the command. `style` None: by the kind of terminal; `home` None: the default; `engine` None: none was named."""

    script: Path
    once: bool = False
    seal: bool = False
    home: Path | None = None
    style: str | None = None
    output: Path | None = None
    cores: int | None = None
    quiet: bool = False
    engine: str | None = None
    local: bool = False
    memory: str | None = None


def run_script(options: RunOptions, stop: Interrupts) -> int:
    """Run a script until it is done or `stop` is asked for; the exit code.

    Raises `UserError` for mistakes in the command or the script, placed by line and column.
    """
    _check(options)
    text = read_script(options.script)
    screen = Screen.standard(options.style, quiet=options.quiet)
    try:
        with stop.giving_up(screen.line.warning), ExitStack() as stack:
            statements = parse_script(text)
            home, persistent = _home(options, stack)
            if persistent and _is_served(home):
                from headrace.cli.script_run import run_beside  # noqa: PLC0415 - with a client of HTTP

                return run_beside(options, home, screen, stop, text, statements)
            screen.line.message(
                f"Starting {'' if options.local else 'Spark '}on {home}" if persistent else "Starting"
            )
            if options.local and not persistent:  # a new home has no functions of users
                leave_pandas_out()
                leave_masked_arrays_out()
            with importing():
                open_hub = (
                    open_or_connect.open_hub if persistent else opening.open_hub
                )  # no one knows a temporary home
                hub = open_hub(
                    home,
                    cores=options.cores,
                    local=options.local,
                    brief=options.once,
                    temporary=not persistent,
                    memory=options.memory,
                )
                stop.when_requested(hub.give_up_start)
                stack.enter_context(hub)
                from headrace.cli.script_run import ScriptRun  # noqa: PLC0415 - while Java starts

            hub.on_epoch(screen.line.update)
            hub.on_failure(screen.line.failed)
            return ScriptRun(options, hub, screen, stop, text, persistent=persistent).run(statements)
    except UserError as error:
        raise in_script(error, options.script, text) from None
    return stop.exit_code if options.once else 0


def _home(options: RunOptions, stack: ExitStack) -> tuple[Path, bool]:
    """The home's folder, and whether it outlives the run."""
    if options.home is not None or not options.once:
        return (options.home or DEFAULT_HOME), True
    return Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="headrace-"))), False


def _is_served(home: Path) -> bool:
    """Whether another process runs the home."""
    from headrace.remote.sockets import is_listening  # noqa: PLC0415 - a temporary home has no other process

    return is_listening(home)


def _check(options: RunOptions) -> None:
    """Raise `UserError` for a style that a terminal or a pipe cannot show, and for options that contradict each other."""
    if options.style == "parquet" and options.output is None:
        raise UserError("parquet is not for the screen", remedy="Name a folder with --output DIR.")
    if options.seal and not options.once:
        raise UserError(
            "--end-of-stream ends the streams, a run that follows them does not", remedy="Use it with --once."
        )


def read_script(script: Path) -> str:
    """The text of a script; raises `UserError` where it is no file of text."""
    try:
        return script.read_text(encoding="utf-8-sig")
    except UnicodeDecodeError as error:
        raise UserError(
            f"{script} is not UTF-8: byte {error.start} cannot be read", remedy="Save it as UTF-8."
        ) from None
    except OSError as error:
        raise UserError(f"cannot read the script {script}: {error.strerror}") from None


def in_script(error: UserError, script: Path, text: str) -> UserError:
    """The same error with the script's name before its line."""
    error.within(text)
    if (at := error.line_and_column) is not None:
        error.message = f"{error.message} (in {script}, line {at[0]})"
    return error
