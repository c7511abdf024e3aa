"""The command line: arguments to calls, and errors to one sentence and an exit code.

0: done. 2: a mistake of the user's. 1: a fault of Headrace. 128 + n: a run that must finish was ended by signal n.
"""

from __future__ import annotations

import argparse
import atexit
import os
import sys
import threading
import traceback
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn, TypeAlias

from headrace import __version__
from headrace.errors import HeadraceError

_FORMATS = ("table", "csv", "json", "parquet")
_ENGINES = ("spark", "local")
_HOME = "headrace-home"

_Action: TypeAlias = Callable[[argparse.Namespace], int]


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a command; its exit code."""
    _open_missing_streams()
    given = sys.argv[1:] if arguments is None else arguments
    options = parser(given[0] if given else "").parse_args(given)
    try:
        code: int = options.action(options)
        sys.stdout.flush()
    except BrokenPipeError:  # the reader of the output has closed it
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except KeyboardInterrupt:
        return _failed("stopped", 130, debug=options.debug)
    except HeadraceError as error:
        return _failed(str(error), error.exit_code, debug=options.debug)
    except Exception as error:  # noqa: BLE001 - a person gets a sentence; --debug gives the rest
        message = f"something went wrong that is not your mistake: {type(error).__name__}: {_text_of(error)}"
        hint = "" if options.debug else "\n  Run it again with --debug for the details."
        return _failed(message + hint, 1, debug=options.debug)
    return code


def _open_missing_streams() -> None:
    """Open the null device for a standard stream that the process was started without (`>&-`): the next file that is
    opened would get its number, and what is written to the stream.
    """
    for number, (name, mode) in enumerate((("stdin", "r"), ("stdout", "w"), ("stderr", "w"))):
        if getattr(sys, name) is None:
            opened = os.open(os.devnull, os.O_RDWR)
            os.set_inheritable(opened, opened == number)
            setattr(sys, name, os.fdopen(opened, mode))


def _text_of(error: Exception) -> str:
    """The text of an error; Spark's have none once its JVM has ended."""
    try:
        return str(error)
    except Exception as failure:  # noqa: BLE001 - of any kind: the error is reported without its text
        return f"its text cannot be read: {type(failure).__name__}"


def program() -> NoReturn:
    """The command as a process, which ends as an interpreter does, without freeing its memory object by object: a small run took 15 ms for it."""
    code = main()
    threading._shutdown()  # type: ignore[attr-defined]  # noqa: SLF001 - waits for threads that are not daemons
    atexit._run_exitfuncs()  # noqa: SLF001
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)


def _failed(message: str, code: int, *, debug: bool) -> int:
    if debug:
        traceback.print_exc()
    print(f"headrace: {message}", file=sys.stderr)
    return code


class _Parser(argparse.ArgumentParser):
    """An argument parser whose errors have the form of all other messages."""

    def error(self, message: str) -> NoReturn:
        """End with exit code 2."""
        print(f"headrace: {message}\n  {self.format_usage().strip()}", file=sys.stderr)
        raise SystemExit(2)


if TYPE_CHECKING:
    _Commands: TypeAlias = argparse._SubParsersAction[_Parser]  # noqa: SLF001 - its only name


def parser(only: str = "") -> argparse.ArgumentParser:
    """All commands with their options; where `only` names a command, that one alone."""
    top = _Parser(
        prog="headrace",
        description="Standing queries over live streams and their archives, on Spark.",
        epilog="Start with: headrace demo",
    )
    top.add_argument("--version", action="version", version=f"headrace {__version__}")
    commands = top.add_subparsers(metavar="COMMAND", required=True, parser_class=_Parser)
    adding = {
        "demo": _add_demo,
        "run": _add_run,
        "shell": _add_shell,
        "fetch": _add_fetch,
        "explain": _add_explain,
        "check": _add_check,
        "serve": _add_serve,
        "token": _add_token,
    }
    for add in (adding[only],) if only in adding else adding.values():
        add(commands)
    return top


def _command(commands: _Commands, name: str, purpose: str, action: _Action) -> argparse.ArgumentParser:
    added = commands.add_parser(name, help=purpose, description=purpose[0].upper() + purpose[1:] + ".")
    added.set_defaults(action=action)
    added.add_argument("--debug", action="store_true", help="show the stack trace of an error")
    return added


def _home(command: argparse.ArgumentParser, purpose: str) -> None:
    command.add_argument("--home", type=Path, metavar="DIR", help=purpose)


def _engine(command: argparse.ArgumentParser) -> None:
    command.add_argument("--cores", type=_positive, metavar="N", help="use N processors (default: all)")
    command.add_argument(
        "--engine",
        choices=_ENGINES,
        help="what runs the epochs: spark (default), or local: this process, without Java, for small inputs",
    )


def _is_local(options: argparse.Namespace) -> bool:
    engine: str = options.engine or os.environ.get("HEADRACE_EXECUTOR", _ENGINES[0])
    return engine == "local"


def _memory(command: argparse.ArgumentParser) -> None:
    command.add_argument(
        "--memory",
        metavar="SIZE",
        help="memory that all queries may use together, as '2 GB' (default: no limit)",
    )


def _positive(text: str) -> int:
    if not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"'{text}' is not a number of at least 1")
    return int(text)


# ------------------------------------------------------------------------------------------------------ commands
# Each imports what it needs when it runs: `--version`, `--help` and mistakes in the command answer at once.


def _add_run(commands: _Commands) -> None:
    run = _command(commands, "run", "run a script of statements and follow its sources", _run)
    run.add_argument("script", type=Path, metavar="SCRIPT", help="statements, each ended by ';'")
    run.add_argument("--once", action="store_true", help="read all present input, show the answers, and end")
    run.add_argument(
        "--end-of-stream",
        "--seal",
        dest="seal",
        action="store_true",
        help="with --once: end the streams permanently",
    )
    _home(run, f"the database folder (default: {_HOME}; with --once a temporary one)")
    run.add_argument(
        "--format", choices=_FORMATS, help="format of answers (default: table on a terminal, else csv)"
    )
    run.add_argument("--output", type=Path, metavar="DIR", help="write one file per query there")
    run.add_argument("--quiet", action="store_true", help="no progress, only answers and warnings")
    _memory(run)
    _engine(run)


def _run(options: argparse.Namespace) -> int:
    from headrace.cli.signals import Interrupts  # noqa: PLC0415
    from headrace.runtime.home.quick_start import importing  # noqa: PLC0415

    with Interrupts() as stop:  # before the next import, which takes a while
        with importing():
            from headrace.cli.run_command import RunOptions, run_script  # noqa: PLC0415

        run_options = RunOptions(
            script=options.script,
            once=options.once,
            seal=options.seal,
            home=options.home,
            style=options.format,
            output=options.output,
            cores=options.cores,
            quiet=options.quiet,
            engine=options.engine,
            local=_is_local(options),
            memory=options.memory,
        )
        return run_script(run_options, stop)


def _add_shell(commands: _Commands) -> None:
    shell = _command(commands, "shell", "run statements typed at a prompt, or given with -e", _shell)
    _home(shell, f"the database folder (default: {_HOME})")
    shell.add_argument(
        "-e",
        dest="text",
        action="append",
        metavar="TEXT",
        help="carry out these statements and end; may be repeated",
    )
    shell.add_argument(
        "--format", choices=_FORMATS[:3], help="format of answers (default: table on a terminal, else csv)"
    )
    _engine(shell)


def _shell(options: argparse.Namespace) -> int:
    from headrace.cli.screen import Screen  # noqa: PLC0415
    from headrace.cli.shell import Session, run_prompt, run_texts  # noqa: PLC0415

    session = Session(
        options.home or Path(_HOME), Screen.standard(options.format), options.cores, _is_local(options)
    )
    return run_texts(session, options.text) if options.text else run_prompt(session)


def _add_fetch(commands: _Commands) -> None:
    fetch = _command(commands, "fetch", "show what a query has emitted since this client's last call", _fetch)
    fetch.add_argument("query", metavar="QUERY", help="a standing query of the home")
    fetch.add_argument(
        "--client", metavar="NAME", default="headrace", help="name of the client (default: headrace)"
    )
    fetch.add_argument(
        "--keep", action="store_true", help="do not acknowledge: the next call shows the same rows again"
    )
    _home(fetch, f"the database folder (default: {_HOME})")
    fetch.add_argument(
        "--format", choices=_FORMATS[:3], help="format of answers (default: table on a terminal, else csv)"
    )


def _fetch(options: argparse.Namespace) -> int:
    from headrace.cli.fetch import fetch_to  # noqa: PLC0415
    from headrace.cli.screen import Screen  # noqa: PLC0415
    from headrace.runtime.delivery.client import connect  # noqa: PLC0415

    client = connect(options.home or Path(_HOME), options.query, options.client)
    fetch_to(Screen.standard(options.format), client, keep=options.keep)
    return 0


def _add_explain(commands: _Commands) -> None:
    explain = _command(
        commands, "explain", "show what runs, which queries share it and what it costs", _explain
    )
    explain.add_argument(
        "query", metavar="QUERY", nargs="?", help="one standing query (default: all of them)"
    )
    _home(explain, f"the database folder (default: {_HOME})")
    explain.add_argument(
        "--as", dest="form", choices=("text", "dot", "svg"), help="default: by the ending of FILE, else text"
    )
    explain.add_argument(
        "--output", type=Path, metavar="FILE", help="write the plan there instead of showing it"
    )


def _explain(options: argparse.Namespace) -> int:
    from headrace.cli.explain_command import explain_to  # noqa: PLC0415

    explain_to(options.home or Path(_HOME), options.query, options.form, options.output)
    return 0


def _add_check(commands: _Commands) -> None:
    check = _command(commands, "check", "verify a home: manifests, runs, logs, orphans", _check)
    _home(check, f"the database folder (default: {_HOME})")


def _check(options: argparse.Namespace) -> int:
    from headrace.runtime.hub.check import check  # noqa: PLC0415

    report = check(options.home or Path(_HOME))
    for line in report.lines:
        print(line)
    return 1 if report.faults else 0


def _add_demo(commands: _Commands) -> None:
    demo = _command(
        commands, "demo", "a short tour: real flights, several standing queries, live progress", _demo
    )
    _home(demo, f"the database folder (default: {_HOME})")
    demo.add_argument("--quiet", action="store_true", help="no progress, only answers")
    _engine(demo)


def _demo(options: argparse.Namespace) -> int:
    from headrace.cli.demo import run_demo  # noqa: PLC0415

    return run_demo(
        options.home or Path(_HOME), cores=options.cores, local=_is_local(options), quiet=options.quiet
    )


def _add_serve(commands: _Commands) -> None:
    serve = _command(commands, "serve", "run a home for clients over HTTP", _serve)
    serve.add_argument("script", type=Path, metavar="SCRIPT", nargs="?", help="statements to run first")
    _home(serve, f"the database folder (default: {_HOME})")
    serve.add_argument("--host", default="127.0.0.1", help="address to listen on (default: 127.0.0.1)")
    serve.add_argument("--port", type=int, default=8474, help="port to listen on (default: 8474; 0: any)")
    serve.add_argument(
        "--postgres-port",
        type=int,
        metavar="PORT",
        help="also listen there for psql, JDBC and other tools that use PostgreSQL's protocol (0: any)",
    )
    serve.add_argument(
        "--no-auth", action="store_true", help="let every user of this machine in without a token"
    )
    serve.add_argument(
        "--tls-cert", type=Path, metavar="FILE", help="certificate chain (PEM): listen with TLS"
    )
    serve.add_argument("--tls-key", type=Path, metavar="FILE", help="key of the certificate (PEM)")
    serve.add_argument(
        "--allow-root",
        type=Path,
        action="append",
        default=[],
        metavar="DIR",
        help="folder that statements over the network may use; may be repeated (default: the working directory)",
    )
    serve.add_argument(
        "--allow-call",
        action="append",
        default=[],
        metavar="HOST",
        help="host (*.example.org) or network (10.0.0.0/8) that actions may reach; may be repeated"
        " (default: public addresses, with --no-auth all)",
    )
    serve.add_argument(
        "--traces",
        metavar="URL",
        help="send OpenTelemetry traces of epochs to a collector (http://HOST:4318)",
    )
    serve.add_argument(
        "--log",
        choices=("text", "json"),
        default="text",
        help="form of warnings and faults on standard error",
    )
    _add_limits(serve)
    _engine(serve)


def _add_limits(serve: argparse.ArgumentParser) -> None:
    serve.add_argument("--max-queries", type=_positive, metavar="N", help="queries of an owner")
    serve.add_argument("--max-rows", type=_positive, metavar="N", help="rows an owner may push in a second")
    serve.add_argument("--max-body", type=_positive, metavar="BYTES", help="bytes of an owner's request")
    serve.add_argument(
        "--max-state", type=_positive, metavar="BYTES", help="bytes of state of an owner's queries"
    )
    serve.add_argument(
        "--max-results", type=_positive, metavar="N", help="result rows of an owner's queries in a minute"
    )
    serve.add_argument(
        "--max-time",
        type=_positive,
        default=300,
        metavar="SECONDS",
        help="for the statements of a request over the network (default: 300)",
    )
    serve.add_argument("--max-memory", metavar="SIZE", help="memory of an owner's queries, as '500 MB'")
    _memory(serve)


def _serve(options: argparse.Namespace) -> int:
    from headrace.cli.signals import Interrupts  # noqa: PLC0415

    with Interrupts() as stop:
        from headrace.cli.screen import Screen  # noqa: PLC0415
        from headrace.cli.server_commands import ServeOptions, serve  # noqa: PLC0415
        from headrace.server.bodies import LARGEST  # noqa: PLC0415
        from headrace.server.security.quotas import Quotas  # noqa: PLC0415

        serve_options = ServeOptions(
            home=options.home or Path(_HOME),
            script=options.script,
            host=options.host,
            port=options.port,
            postgres_port=options.postgres_port,
            no_auth=options.no_auth,
            cores=options.cores,
            local=_is_local(options),
            certificate=(options.tls_cert, options.tls_key),
            roots=tuple(options.allow_root),
            allowed_calls=tuple(options.allow_call),
            traces=options.traces,
            log=options.log,
            memory=(options.memory, options.max_memory),
            quotas=Quotas(
                options.max_queries,
                options.max_rows,
                options.max_body or LARGEST,
                options.max_state,
                options.max_results,
                options.max_time,
            ),
        )
        return serve(serve_options, stop, Screen.standard("table"))


def _add_token(commands: _Commands) -> None:
    token = _command(commands, "token", "make, list and revoke the tokens of clients over HTTP", _token)
    token.add_argument("verb", choices=("create", "list", "revoke"), help="create, list or revoke")
    token.add_argument("name", nargs="?", metavar="TOKEN", help="revoke: the token's name in the list")
    token.add_argument("--owner", metavar="NAME", help="create: the owner, whose queries it sees and changes")
    token.add_argument(
        "--role",
        choices=("read", "register", "administer"),
        default="register",
        help="create: what it may do (default: register); administer sees and changes all",
    )
    token.add_argument(
        "--expires",
        metavar="INTERVAL",
        help="create: valid for so long, as '30 DAYS' (default: until revoked)",
    )
    _home(token, f"the database folder (default: {_HOME})")


def _token(options: argparse.Namespace) -> int:
    from headrace.cli.server_commands import token_line  # noqa: PLC0415

    home = options.home or Path(_HOME)
    print(token_line(home, options.verb, options.name, options.owner, options.role, options.expires))
    return 0


if __name__ == "__main__":
    program()
