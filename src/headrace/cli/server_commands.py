"""`headrace serve`: a hub that others use over HTTP, and over PostgreSQL's protocol where that is asked for, until a
signal ends it. Also `headrace token`: create, list and revoke access tokens.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import field
from pathlib import Path
from socket import socket
from typing import Final

import pyarrow as pa

from headrace.cli.run_command import in_script, read_script
from headrace.cli.screen import Screen
from headrace.cli.signals import Interrupts, let_arrow_finish
from headrace.connectors.formats.rendering import to_text
from headrace.dataclass import dataclass
from headrace.errors import HeadraceError, UserError
from headrace.language.parser.literals import interval_text
from headrace.language.statements.parse_script import parse_script
from headrace.runtime.delivery.actions.receivers import Receivers
from headrace.runtime.home.gc_control import exclude_survivors
from headrace.runtime.home.home import Home
from headrace.runtime.hub.hub import Hub
from headrace.server.access import is_loopback
from headrace.server.connections.peers import allow_open_files
from headrace.server.listener import Certificate, listener_of, network_socket, tools_listener_of
from headrace.server.monitoring.json_log import log_as_json, log_failure
from headrace.server.monitoring.tracing import export_traces
from headrace.server.open_or_connect import open_hub
from headrace.server.security.permissions import Limits
from headrace.server.security.principal import Principal, Role
from headrace.server.security.quotas import Quotas
from headrace.server.security.roots import Roots
from headrace.server.security.tokens import Tokens
from headrace.time import render_instant

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
    certificate: tuple[Path | None, Path | None] = (None, None)
    """The files of a certificate and its key; None twice: no encryption."""
    roots: tuple[Path, ...] = ()
    allowed_calls: tuple[str, ...] = ()
    traces: str | None = None
    """The address of a collector of OpenTelemetry."""
    log: str = "text"
    """The form of standard error: text or json."""
    memory: tuple[str | None, str | None] = (None, None)
    """What all queries may use together, and those of each owner; None: without limit."""
    quotas: Quotas = field(default_factory=Quotas)
    """Of an owner."""

    @property
    def tls(self) -> Certificate | None:
        """The certificate.

        Raises `UserError` when it cannot be used.
        """
        certificate, key = self.certificate
        if certificate is None and key is None:
            return None
        if certificate is None or key is None:
            raise UserError("--tls-cert and --tls-key belong together", remedy="Name both files.")
        pair = Certificate(certificate, key)
        pair.context()
        return pair

    @property
    def receivers(self) -> Receivers | None:
        """The hosts that actions may reach; None: all.

        Raises `UserError` for one that is none.
        """
        return None if self.no_auth and not self.allowed_calls else Receivers.of(self.allowed_calls)

    def limits_of(self, home: Path) -> Limits:
        """The limits of clients over the network."""
        return Limits(Roots(self.roots or (Path.cwd(),), home), self.quotas)


def serve(options: ServeOptions, stop: Interrupts, screen: Screen) -> int:
    """Serve a home until `stop` is asked for; the exit code.

    Raises `UserError` for an address that cannot be used, or a mistake in the script.
    """
    if options.no_auth and not is_loopback(options.host):
        raise UserError(
            f"--no-auth is for this machine only, and {options.host} is not",
            remedy="Leave --no-auth out: clients then send the token that is shown at the first start.",
        )
    tls, receivers = options.tls, options.receivers
    script = None if options.script is None else _checked(options.script)
    allow_open_files()
    with stop.giving_up(screen.line.warning), ExitStack() as opened:
        ports = [options.port] if options.postgres_port is None else [options.port, options.postgres_port]
        listening, *for_tools = [opened.enter_context(network_socket(options.host, port)) for port in ports]
        let_arrow_finish()
        memory, of_owner = options.memory
        with open_hub(
            options.home,
            cores=options.cores,
            local=options.local,
            memory=memory,
            owner_memory=of_owner,
            receivers=receivers,
        ) as hub:
            stop.when_requested(hub.give_up_start)
            if options.log == "json":
                log_as_json(sys.stderr, hub.loop.engine.clock)
            hub.on_failure(log_failure if options.log == "json" else screen.line.failed)
            if options.traces is not None:
                export_traces(hub, options.traces)
            if script is not None and options.script is not None:
                try:
                    hub.execute(script)
                except UserError as error:
                    raise in_script(error, options.script, script) from None
            hub.start()
            tokens = None if options.no_auth else Tokens(hub.home.store, hub.loop.engine.clock)
            limits = options.limits_of(hub.path)
            listener = listener_of(hub, [listening], tokens=tokens, limits=limits, tls=tls, eager=True)
            listener.start()
            hub.on_close(listener.stop)
            for tools in for_tools:
                tools_listener = tools_listener_of(hub, tools, tokens, limits, tls)
                tools_listener.start()
                hub.on_close(tools_listener.stop)
            exclude_survivors()
            _announce(screen, listening, for_tools, tokens, is_encrypted=tls is not None)
            return _wait(hub, stop)
    return 0


def _checked(script: Path) -> str:
    """The text of a script, before anything is opened. Raises `UserError` for a file that cannot be read, and for mistakes of syntax."""
    text = read_script(script)
    try:
        parse_script(text)
    except UserError as error:
        raise in_script(error, script, text) from None
    return text


def _announce(
    screen: Screen,
    http: socket,
    for_tools: Sequence[socket],
    tokens: Tokens | None,
    *,
    is_encrypted: bool,
) -> None:
    lines = [f"listening on {'https' if is_encrypted else 'http'}://{_address(http)}"]
    if not is_encrypted and not is_loopback(http.getsockname()[0]):
        screen.line.warning(
            "tokens and rows are sent without encryption; --tls-cert and --tls-key encrypt them"
        )
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


def token_line(
    home: Path, verb: str, name: str | None, owner: str | None, role: Role, lasts: str | None = None
) -> str:
    """Create, list or revoke tokens of a home, also while its hub runs: each is a file, read when it is used.

    Raises `UserError` for a token that is not there, for a limited one without an owner, and for a time that is none.
    """
    if not home.is_dir():
        raise UserError(f"there is no home {home}", remedy="headrace serve --home makes one.")
    tokens = Tokens(Home.at(home).store)
    if verb == "create":
        length = None if lasts is None else interval_text(lasts)
        if length is not None and length <= 0:
            raise UserError(f"a token cannot be valid for '{lasts}'", remedy="Write for example '30 DAYS'.")
        return f"token {tokens.make((owner or '').strip() or None, role, length)}   (shown only now)"
    if verb == "revoke":
        revoked = tokens.revoke(name or "")
        return f"token {revoked.token} of {revoked.owner or 'no owner'} revoked"
    rows = [
        {
            "token": token.token,
            "owner": token.owner,
            "role": token.role,
            "expires": _expiry(tokens, token),
        }
        for token in tokens.all()
    ]
    columns = pa.schema([(column, pa.string()) for column in ("token", "owner", "role", "expires")])
    return to_text(pa.Table.from_pylist(rows, columns)).rstrip()


def _expiry(tokens: Tokens, principal: Principal) -> str | None:
    if principal.expires is None:
        return None
    return render_instant(principal.expires) + (" (expired)" if tokens.has_expired(principal) else "")
