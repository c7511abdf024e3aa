"""The parser of a query's actions, the THEN clauses (CALL a URL, NOTIFY by mail, WRITE TO a stream or folder), with
checks of their targets and options.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final, Literal, TypeAlias
from urllib.parse import SplitResult, urlsplit

from headrace.catalog.definitions import ActionDefinition
from headrace.errors import Span, did_you_mean
from headrace.language.statements.options import interval_option, option_list
from headrace.language.syntax.cursor import Cursor

_LARGEST: Final = {"batch": 10_000, "attempts": 1_000}
_LENGTHS: Final = {"timeout": "timeout", "wait": "wait", "longestwait": "longestWait"}
_SENT: Final = ("batch", "attempts", "timeout", "wait", "longestWait", "secretEnv", "secretFile")
_Kind: TypeAlias = Literal["call", "notify", "stream", "folder"]
_OPTIONS: Final[Mapping[_Kind, tuple[str, ...]]] = {
    "call": _SENT,
    "notify": ("server", "sender", "user", *_SENT),
    "stream": (),
    "folder": ("format",),
}
_FORMATS: Final = ("csv", "json", "parquet")
ENVIRONMENT: Final = "HEADRACE_SECRET_"
"""How the name of an environment variable begins that an action may read: a statement cannot send others anywhere."""


def then_clauses(cursor: Cursor) -> tuple[tuple[ActionDefinition, ...], tuple[Span, ...]]:
    """`{THEN CALL 'url' | WRITE TO stream | WRITE TO 'folder' | NOTIFY 'mailto:…' [WITH (options)]}`, with the places of
    the targets.

    Raises `UserError` for a target or an option that cannot be used.
    """
    actions: list[ActionDefinition] = []
    places: list[Span] = []
    while cursor.accept("THEN"):
        span = cursor.token.span
        if cursor.accept("CALL"):
            span = cursor.token.span
            action = _action(cursor, "call", _address(cursor, "a URL in quotes after CALL", _check_url))
        elif cursor.accept("NOTIFY"):
            span = cursor.token.span
            action = _action(cursor, "notify", _address(cursor, "'mailto:…' after NOTIFY", _check_mail))
        elif cursor.accept("WRITE", "TO"):
            span = cursor.token.span
            action = _writing(cursor)
        else:
            raise cursor.expected("CALL, WRITE TO or NOTIFY after THEN")
        if action in actions:
            raise cursor.error("this action is there twice", span, "Leave one of them out.")
        actions.append(action)
        places.append(span)
    return tuple(actions), tuple(places)


def _writing(cursor: Cursor) -> ActionDefinition:
    if cursor.token.kind == "string":
        return _action(cursor, "folder", cursor.string("a folder"))
    return _action(cursor, "stream", cursor.name("the name of a stream, or a folder in quotes"))


def _address(cursor: Cursor, what: str, check: Callable[[Cursor, SplitResult, Span], None]) -> str:
    """A URL that `check` accepts."""
    at = cursor.token.span
    text = cursor.string(what).strip()
    try:
        parts = urlsplit(text)
        _ = parts.port
    except ValueError as error:
        raise cursor.error(f"'{text}' is no URL: {error}", at) from None
    check(cursor, parts, at)
    return text


def _check_url(cursor: Cursor, url: SplitResult, at: Span) -> None:
    if url.scheme not in ("https", "http") or not url.hostname:
        raise cursor.error("CALL needs a URL that begins with https:// or http://", at)
    if url.username is not None or url.password is not None:
        raise cursor.error(
            "the URL holds a password, which would be stored and shown with the statement",
            at,
            "Leave it out, and sign the calls: WITH (secretEnv 'HEADRACE_SECRET_…').",
        )
    if not url.netloc.isascii() or any(mark.isspace() or not mark.isprintable() for mark in url.geturl()):
        raise cursor.error("the URL has a character that is none of a URL", at, "Percent-encode it.")


def _check_mail(cursor: Cursor, url: SplitResult, at: Span) -> None:
    receivers = url.path.split(",")
    if url.scheme != "mailto" or not all(_is_address(receiver) for receiver in receivers):
        raise cursor.error(
            "NOTIFY needs addresses such as 'mailto:ana@example.org,ben@example.org?subject=Alert'", at
        )


def _is_address(text: str) -> bool:
    name, _, host = text.partition("@")
    return (
        bool(name and host)
        and text.isascii()
        and text.isprintable()
        and not set(text) & set(" <>@,;") - {"@"}
    )


def _action(cursor: Cursor, kind: _Kind, target: str) -> ActionDefinition:
    """The action with its options.

    Raises `UserError` for an option that such an action does not have, and for a value that it cannot have.
    """
    start, places = cursor.token.span, dict[str, Span]()
    options = option_list(cursor, places) if cursor.accept("WITH") else {}
    names = {name.lower(): name for name in _OPTIONS[kind]}
    for name, value in options.items():
        at = places[name.lower()]
        if name.lower() in ("secret", "password", "token"):
            raise cursor.error(
                "a statement is stored and shown, so it may not hold a secret",
                at,
                f"Name where it is: secretEnv '{ENVIRONMENT}…', or secretFile with a file in the home's folder secrets.",
            )
        if name.lower() not in names:
            has = f"It has {', '.join(names.values())}." if names else "It has no options."
            raise cursor.error(
                f"this action has no option '{name}'",
                at,
                (did_you_mean(name, names.values()) if names else None) or has,
            )
        _check_value(cursor, name.lower(), value, at)
    settings = {name.lower(): value for name, value in options.items()}
    if kind == "notify" and not {"server", "sender"} <= settings.keys():
        raise cursor.error(
            "NOTIFY needs a mail server and a sender",
            cursor.since(start) if options else cursor.before.span,
            "WITH (server 'smtp://mail.example.org:587', sender 'headrace@example.org').",
        )
    return ActionDefinition(kind, target, tuple(sorted(settings.items())))


def _check_value(cursor: Cursor, name: str, value: str, at: Span) -> None:
    if name in _LARGEST:
        digits = value.isascii() and value.isdigit() and len(value) < 9
        if not digits or not 1 <= int(value) <= _LARGEST[name]:
            raise cursor.error(f"{name} is a number from 1 to {_LARGEST[name]:,}, not '{value}'", at)
    elif name in _LENGTHS:
        if interval_option(cursor, _LENGTHS[name], value, at) <= 0:
            raise cursor.error(f"{_LENGTHS[name]} must be longer than nothing", at)
    elif name == "format" and value.lower() not in _FORMATS:
        raise cursor.error(f"there is no format '{value}'", at, f"There is {', '.join(_FORMATS)}.")
    elif name == "secretenv" and not value.startswith(ENVIRONMENT):
        raise cursor.error(f"actions read environment variables whose names begin with {ENVIRONMENT}", at)
    elif name == "secretfile" and (not value or "/" in value or "\\" in value or value.startswith(".")):
        raise cursor.error(
            f"'{value}' is not the name of a file",
            at,
            "The file is in the home's folder secrets: 'hook.key'.",
        )
    elif name == "server":
        _check_server(cursor, value, at)
    elif name == "sender" and not _is_address(value):
        raise cursor.error(f"'{value}' is no mail address", at)


def _check_server(cursor: Cursor, value: str, at: Span) -> None:
    try:
        url = urlsplit(value)
        _ = url.port
    except ValueError as error:
        raise cursor.error(f"'{value}' is no URL: {error}", at) from None
    if url.scheme not in ("smtp", "smtps") or not url.hostname or url.username is not None:
        raise cursor.error(
            "the mail server is a URL such as 'smtp://mail.example.org:587' or 'smtps://mail.example.org'", at
        )
