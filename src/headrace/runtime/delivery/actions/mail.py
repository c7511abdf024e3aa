"""Mail: a message for each batch of rows, through the mail server that the action names (SMTP, RFC 5321)."""

from __future__ import annotations

import asyncio
import smtplib
import socket
import ssl
from collections.abc import Callable
from contextlib import suppress
from email.message import EmailMessage
from functools import partial
from typing import Final
from urllib.parse import parse_qs, unquote, urlsplit

from headrace.connectors.formats.rendering import to_text
from headrace.dataclass import dataclass
from headrace.errors import UserError
from headrace.runtime.delivery.actions.channel import Message, Undelivered, in_own_thread
from headrace.runtime.delivery.actions.receivers import Receivers

_PORTS: Final = {"smtp": 25, "smtps": 465}
_LASTING: Final = 500
"""From this reply on, a mail server refuses a message permanently."""


@dataclass(frozen=True, slots=True)
class Mail:
    """Addresses that get a mail for each message; `server` is a URL `smtp://host:port` or `smtps://…`.

    `smtp` is encrypted where the server offers it (STARTTLS). A password is sent only encrypted.
    """

    to: str
    server: str
    sender: str
    user: str
    batch: int
    attempts: int
    seconds: float
    secret: Callable[[], bytes | None]
    receivers: Receivers | None
    slots: asyncio.Semaphore

    async def send(self, message: Message) -> None:
        """Pass a message to the mail server, in a thread that a server which never answers may keep.

        Raises `Undelivered` where it does not take it for every address, or not in time.
        """
        async with self.slots:
            try:
                async with asyncio.timeout(self.seconds):
                    await in_own_thread(partial(self._send, message))
            except TimeoutError:
                raise Undelivered(f"no answer within {self.seconds:g} seconds") from None

    def _send(self, message: Message) -> None:
        mail = mail_of(message, self.to, self.sender)
        try:
            password = self.secret() if self.user else None
            with self._connected(password is not None) as connection:
                if password is not None:
                    connection.login(self.user, password.decode())
                refused = connection.send_message(mail)
        except UserError as error:
            raise Undelivered(error.message) from None
        except smtplib.SMTPRecipientsRefused as error:
            codes = [code for code, _ in error.recipients.values()]
            raise Undelivered(
                f"the mail server refused {_listed(error.recipients)}", lasting=min(codes) >= _LASTING
            ) from None
        except smtplib.SMTPResponseException as error:
            reason = f"the mail server answered {error.smtp_code} {_text(error.smtp_error)}"
            raise Undelivered(reason, lasting=error.smtp_code >= _LASTING) from None
        except (OSError, smtplib.SMTPException, UnicodeDecodeError) as error:
            raise Undelivered(f"{type(error).__name__}: {error}") from None
        if refused:
            raise Undelivered(f"the mail server took it, but not for {_listed(refused)}", lasting=True)

    def _connected(self, needs_encryption: bool) -> smtplib.SMTP:
        url = urlsplit(self.server)
        host, port = url.hostname or "", url.port or _PORTS[url.scheme]
        address = host if self.receivers is None else self.receivers.address(host, port)
        context = ssl.create_default_context()
        connection = _Connection(
            host, port, address, context if url.scheme == "smtps" else None, self.seconds
        )
        connection.ehlo_or_helo_if_needed()
        if url.scheme == "smtp" and connection.has_extn("starttls"):
            connection.starttls(context=context)
        elif url.scheme == "smtp" and needs_encryption:
            connection.close()
            raise Undelivered(f"{host} offers no encryption, so the password is not sent")
        return connection


class _Connection(smtplib.SMTP):
    """A connection to a checked address of a host, encrypted from its start with a `context`."""

    def __init__(
        self, host: str, port: int, address: str, context: ssl.SSLContext | None, seconds: float
    ) -> None:
        self.address, self.context = address, context
        super().__init__(host, port, timeout=seconds)

    def _get_socket(self, host: str, port: int, timeout: float) -> socket.socket:  # type: ignore[override]
        plain = socket.create_connection((self.address, port), timeout)
        return plain if self.context is None else self.context.wrap_socket(plain, server_hostname=host)

    def close(self) -> None:
        """Close it, also where the server has closed it already."""
        with suppress(OSError):
            super().close()


def mail_of(message: Message, to: str, sender: str) -> EmailMessage:
    """The mail of a message; its Message-ID is the key, so a repeated one is recognised by mail programs."""
    url = urlsplit(to)
    rows = message.rows.num_rows
    chosen = parse_qs(url.query).get("subject", [""])[0]
    subject = chosen or f"{message.query}: {rows:,} row{'' if rows == 1 else 's'}"
    mail = EmailMessage()
    mail["Subject"] = " ".join(subject.split())
    mail["From"] = sender
    mail["To"] = ", ".join(unquote(url.path).split(","))
    mail["Message-ID"] = f"<{message.key}@headrace>"
    mail.set_content(f"Query {message.query}, epoch {message.epoch}\n\n{to_text(message.rows)}")
    return mail


def _listed(refused: dict[str, tuple[int, bytes]]) -> str:
    return ", ".join(f"{address} ({code} {_text(reason)})" for address, (code, reason) in refused.items())


def _text(reply: bytes | str) -> str:
    return " ".join((reply.decode(errors="replace") if isinstance(reply, bytes) else reply).split())
