"""SCRAM-SHA-256 (RFC 5802, RFC 7677): the verifier of a token, and the server's side of the messages by which a client
proves that it has the token without sending it.

All tokens have one salt: it is there so that guessed passwords cannot be looked up in a table, and a token has 256 random bits. So
the proof of a client is checked against each verifier, and its user name need not name the token.
"""

from __future__ import annotations

import hashlib
import hmac
import secrets
from base64 import b64decode, b64encode
from binascii import Error as NotBase64
from collections.abc import Iterable
from typing import Final, TypeVar

from headrace.dataclass import dataclass

MECHANISM: Final = "SCRAM-SHA-256"
ITERATIONS: Final = 4096
_SALT: Final = b"headrace access token"
_T = TypeVar("_T")


class NoScram(Exception):
    """A message that is none of the exchange."""


@dataclass(frozen=True, slots=True)
class Verifier:
    """What is stored of a token: enough to check a proof and to answer it, and not enough to make one."""

    stored_key: bytes
    server_key: bytes

    @staticmethod
    def of(token: str) -> Verifier:
        """The verifier of a token."""
        salted = hashlib.pbkdf2_hmac("sha256", token.encode(), _SALT, ITERATIONS)
        return Verifier(hashlib.sha256(_hmac(salted, b"Client Key")).digest(), _hmac(salted, b"Server Key"))

    @staticmethod
    def of_text(text: str) -> Verifier:
        """The inverse of `text`."""
        stored, _, server = text.partition(":")
        return Verifier(b64decode(stored), b64decode(server))

    @property
    def text(self) -> str:
        """Both keys in base 64."""
        return f"{_text(self.stored_key)}:{_text(self.server_key)}"

    def accepts(self, proof: bytes, messages: bytes) -> bool:
        """Whether a proof about these messages was made with the token."""
        signature = _hmac(self.stored_key, messages)
        key = bytes(one ^ other for one, other in zip(signature, proof, strict=True))
        return hmac.compare_digest(hashlib.sha256(key).digest(), self.stored_key)


@dataclass(frozen=True, slots=True)
class Exchange:
    """The exchange with one client, after its first message."""

    header: str
    """The client's part about channel binding."""
    client_first: str
    server_first: str

    @staticmethod
    def of(message: bytes) -> Exchange:
        """The exchange that the first message of a client begins. Raises `NoScram`."""
        text = _decoded(message)
        flag, _, rest = text.partition(",")
        name, _, bare = rest.partition(",")
        if flag not in ("n", "y"):
            raise NoScram("channel binding is not supported")
        attributes = _attributes(bare)
        if "m" in attributes or not attributes.get("r"):
            raise NoScram("the first message has no nonce")
        nonce = attributes["r"] + secrets.token_urlsafe(18)
        return Exchange(f"{flag},{name},", bare, f"r={nonce},s={_text(_SALT)},i={ITERATIONS}")

    def finished(self, message: bytes, verifiers: Iterable[tuple[_T, Verifier]]) -> tuple[_T, bytes] | None:
        """That whose verifier accepts the proof of the last message, and the server's own proof; None if there is none.

        Raises `NoScram`.
        """
        text = _decoded(message)
        without_proof, _, proof_text = text.rpartition(",p=")
        attributes = _attributes(without_proof)
        if attributes.get("c") != _text(self.header.encode()):
            raise NoScram("the last message is not about the first one")
        if not hmac.compare_digest(
            attributes.get("r", "").encode(), _attributes(self.server_first)["r"].encode()
        ):
            raise NoScram("the nonce is another one")
        try:
            proof = b64decode(proof_text, validate=True)
        except NotBase64:
            raise NoScram("the proof is not base 64") from None
        if len(proof) != hashlib.sha256().digest_size:
            raise NoScram("the proof is too short or too long")
        messages = f"{self.client_first},{self.server_first},{without_proof}".encode()
        for whose, verifier in verifiers:
            if verifier.accepts(proof, messages):
                return whose, f"v={_text(_hmac(verifier.server_key, messages))}".encode()
        return None


def _attributes(text: str) -> dict[str, str]:
    """`a=…,b=…` by letter."""
    return {part[:1]: part[2:] for part in text.split(",") if part[1:2] == "="}


def _decoded(message: bytes) -> str:
    try:
        return message.decode()
    except UnicodeDecodeError:
        raise NoScram("the message is not UTF-8") from None


def _hmac(key: bytes, message: bytes) -> bytes:
    return hmac.digest(key, message, "sha256")


def _text(value: bytes) -> str:
    return b64encode(value).decode()
