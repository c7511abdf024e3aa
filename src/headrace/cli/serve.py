"""`headrace serve`: a hub that others use over HTTP, until a signal ends it."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from socket import socket
from typing import Final

from headrace.cli.screen import Screen
from headrace.cli.signals import Interrupts, let_arrow_finish
from headrace.errors import HeadraceError, UserError
from headrace.runtime.hub.hub import Hub
from headrace.server.access import Tokens, is_loopback
from headrace.server.listener import listener_of, network_socket, tools_listener_of
from headrace.server.opening import open_hub

_LOOK_SECONDS: Final = 0.2


@dataclass(frozen=True, slots=True)
class ServeOptions:
    """Options of the command."""

    home: Path
    script: Path | None = None
    host: str = "127.0.0.1"
    port: int = 8474
    postgres_port: int | None = None
    no_auth: bool = False
    cores: int | None = None
    local: bool = False


def serve(options: ServeOptions, stop: Interrupts, screen: Screen) -> int:
    """Serve a home until `stop` is asked for; the exit code.

    Raises `UserError` for an address that cannot be used, or a mistake in the script.
    """
    if options.no_auth and not is_loopback(options.host):
        raise UserError(
            f"--no-auth is for this machine only, and {options.host} is not",
            remedy="Leave --no-auth out: clients then send the token that is shown at the first start.",
        )
    with stop.giving_up(screen.line.warning), ExitStack() as opened:
        ports = [options.port] if options.postgres_port is None else [options.port, options.postgres_port]
        listening, *for_tools = [opened.enter_context(network_socket(options.host, port)) for port in ports]
        let_arrow_finish()
        with open_hub(options.home, cores=options.cores, local=options.local) as hub:
            stop.when_requested(hub.give_up_start)
            hub.on_failure(screen.line.failed)
            if options.script is not None:
                hub.execute(options.script.read_text(encoding="utf-8-sig"))
            hub.start()
            tokens = None if options.no_auth else Tokens(hub.home.store)
            listener = listener_of(hub, [listening], tokens=tokens, eager=True)
            listener.start()
            hub.on_close(listener.stop)
            for tools in for_tools:
                door = tools_listener_of(hub, tools, tokens)
                door.start()
                hub.on_close(door.stop)
            _announce(screen, listening, for_tools, tokens)
            return _wait(hub, stop)
    return 0


def _announce(screen: Screen, http: socket, for_tools: Sequence[socket], tokens: Tokens | None) -> None:
    lines = [f"listening on http://{_address(http)}"]
    if tokens is not None and not tokens.any():
        lines.append(
            f"token {tokens.make()}   (shown only now: clients send it as 'Authorization: Bearer …')"
        )
    lines += [f"listening on postgresql://{_address(tools)}/headrace" for tools in for_tools]
    screen.out.write("".join(f"{line}\n" for line in lines))
    screen.out.flush()


def _address(listening: socket) -> str:
    host, port = listening.getsockname()[:2]
    return f"{f'[{host}]' if ':' in host else host}:{port}"


def _wait(hub: Hub, stop: Interrupts) -> int:
    while not stop.wait(_LOOK_SECONDS):
        if hub.loop.failure is not None and not stop.stop:
            raise HeadraceError(f"the epochs ended: {hub.loop.failure}") from hub.loop.failure
    return 0
