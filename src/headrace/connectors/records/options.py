"""Options of sources in OPTIONS (…): their names, defaults and parsed values, and the check at CREATE.

Names and defaults are Spark's for the same format. One default differs: a quote inside a quoted CSV cell is doubled
(RFC 4180), not escaped with a backslash; `escape` brings the backslash back.
"""

from __future__ import annotations

import codecs
import re
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Final, TypeVar
from typing import Literal as Choice

from headrace.catalog.definitions import RelationDefinition, StreamDefinition
from headrace.dataclass import dataclass
from headrace.errors import UserError, did_you_mean
from headrace.language.parser.literals import interval_text
from headrace.time import DAY, Duration

Definition = TypeVar("Definition", StreamDefinition, RelationDefinition)

FILES: Final = ("csv", "json", "parquet", "arrow")
OURS: Final = (*FILES, "rate", "push")
REMEMBERED: Final = 7 * DAY
"""How long producers of pushed batches are retained by default."""

_COMMON: Final = (
    "path",
    "order",
    "archive",
    "maxAhead",
    "maxFilesPerTrigger",
    "maxBytesPerTrigger",
    "pathGlobFilter",
    "recursiveFileLookup",
)
_TEXT: Final = (
    "appended",
    "mode",
    "multiLine",
    "encoding",
    "charset",
    "timestampFormat",
    "timestampNTZFormat",
    "dateFormat",
    "lineSep",
    "timeZone",
)
_CSV: Final = (
    *("header", "sep", "delimiter", "quote", "escape", "nullValue", "nanValue", "positiveInf", "negativeInf"),
    *("ignoreLeadingWhiteSpace", "ignoreTrailingWhiteSpace", "inferSchema", "enforceSchema", "comment"),
)
KNOWN: Final[Mapping[str, tuple[str, ...]]] = {
    "csv": (*_COMMON, *_TEXT, *_CSV),
    "json": (*_COMMON, *_TEXT),
    "parquet": (*_COMMON, "mergeSchema"),
    "arrow": _COMMON,
    "rate": ("rowsPerSecond", "order", "archive", "maxAhead"),
    "push": ("archive", "durability", "maxAhead", "mostWaiting", "rememberProducers"),
}
_OF_STREAMS: Final = ("retain", "keep", "blocks", "blocksBy", "latency", "reduce")
"""Options of any stream, which are no longer among those of its source here."""
_PATTERN: Final = {"yyyy": "%Y", "MM": "%m", "dd": "%d", "HH": "%H", "mm": "%M", "ss": "%S"}
_CELLS: Final = (
    *("BOOLEAN", "TINYINT", "SMALLINT", "INT", "BIGINT", "FLOAT", "DOUBLE", "DECIMAL"),
    *("STRING", "BINARY", "DATE", "TIMESTAMP", "TIMESTAMP_NTZ"),
)


Epoch = Choice["seconds", "millis", "micros", "nanos"]
"""The unit of an instant that is written as a number, since 1970-01-01T00:00:00Z."""
_EPOCH: Final[Mapping[str, Epoch]] = {
    "epoch seconds": "seconds",
    "epoch millis": "millis",
    "epoch micros": "micros",
    "epoch nanos": "nanos",
}


@dataclass(frozen=True, slots=True)
class TextOptions:
    """Syntax of csv and json files. Patterns are strptime's; None means ISO 8601 as Spark reads it.

    `timestamp_epoch` and `ntz_epoch`: the unit of instants that are numbers.
    """

    header: bool
    separator: str
    quote: str
    escape: str
    null: str
    nan: str
    infinity: str
    minus_infinity: str
    comment: str
    strip_left: bool
    strip_right: bool
    multi_line: bool
    encoding: str
    permissive: bool
    timestamp_pattern: str | None
    ntz_pattern: str | None
    date_pattern: str | None
    zone: str = "UTC"
    timestamp_epoch: Epoch | None = None
    ntz_epoch: Epoch | None = None


def option(options: Mapping[str, str], name: str, default: str) -> str:
    """An option's value; option names are compared without case, as Spark does."""
    folded = name.lower()
    return next((value for key, value in options.items() if key.lower() == folded), default)


def flag(options: Mapping[str, str], name: str, *, default: bool = False) -> bool:
    """An option that is 'true' or 'false'."""
    text = option(options, name, "true" if default else "false").strip().lower()
    if text not in ("true", "false"):
        raise UserError(f"option {name} is '{text}'", remedy="Write 'true' or 'false'.")
    return text == "true"


def number(options: Mapping[str, str], name: str) -> int | None:
    """An option that is a positive whole number, None when absent."""
    text = option(options, name, "").strip()
    if not text:
        return None
    if not re.fullmatch(r"[1-9][0-9]{0,17}", text):
        raise UserError(
            f"option {name} is '{text}'", remedy="Write a whole number of at least 1, such as '1'."
        )
    return int(text)


def zone_of(options: Mapping[str, str]) -> str:
    """The zone of a stream's texts of times that do not name one."""
    return option(options, "timeZone", "UTC")


def files_per_epoch(definition: StreamDefinition) -> int | None:
    """How many files an epoch may take at most (Spark's `maxFilesPerTrigger`)."""
    return number(definition.options, "maxFilesPerTrigger")


def bytes_per_epoch(definition: StreamDefinition) -> int | None:
    """How many bytes of files an epoch may take at most, but for one file (Spark's `maxBytesPerTrigger`)."""
    return number(definition.options, "maxBytesPerTrigger")


def reads_appended(definition: StreamDefinition | RelationDefinition) -> bool:
    """Whether lines that are appended to a file after it was read are rows of the stream."""
    return option(definition.options, "appended", "ignore").lower() == "read"


def producers_remembered(options: Mapping[str, str]) -> Duration:
    """How long after its last batch a producer of pushed batches is retained at least."""
    return _length(options, "rememberProducers", REMEMBERED, "7 DAYS")


def durable_within(options: Mapping[str, str]) -> Duration:
    """How long pushed rows may be in the hub before they are durable; 0: they are when the push returns."""
    return _length(options, "durability", 0, "1 SECOND")


def most_waiting(options: Mapping[str, str]) -> int | None:
    """The rows of a stream from which on pushes to it wait for an epoch; None for any number."""
    return number(options, "mostWaiting")


def _length(options: Mapping[str, str], name: str, otherwise: Duration, example: str) -> Duration:
    text = option(options, name, "")
    if not text:
        return otherwise
    try:
        length = interval_text(text)
    except UserError as error:
        raise UserError(f"option {name}: {error.message}", remedy=error.remedy) from None
    if length < 0:
        raise UserError(f"option {name} must not be negative", remedy=f"Such as '{example}'.")
    return length


def text_options(options: Mapping[str, str]) -> TextOptions:
    """The options of a csv or json source, parsed; raises `UserError` for a value that has no meaning."""
    mode = option(options, "mode", "").strip().upper()
    if mode not in ("", "PERMISSIVE", "DROPMALFORMED"):
        raise UserError(
            f"option mode is '{mode}'",
            remedy="Write 'PERMISSIVE' for nulls in place of bad cells, or leave it out: bad records become rejects.",
        )
    return TextOptions(
        header=flag(options, "header"),
        separator=_character(options, "sep", option(options, "delimiter", ",")),
        quote=_character(options, "quote", '"'),
        escape=_character(options, "escape", ""),
        null=option(options, "nullValue", ""),
        nan=option(options, "nanValue", "NaN"),
        infinity=option(options, "positiveInf", "Inf"),
        minus_infinity=option(options, "negativeInf", "-Inf"),
        comment=_comment(options),
        strip_left=flag(options, "ignoreLeadingWhiteSpace"),
        strip_right=flag(options, "ignoreTrailingWhiteSpace"),
        multi_line=flag(options, "multiLine"),
        encoding=_encoding(option(options, "encoding", option(options, "charset", "UTF-8"))),
        permissive=mode == "PERMISSIVE",
        timestamp_pattern=_pattern(options, "timestampFormat"),
        ntz_pattern=_pattern(options, "timestampNTZFormat"),
        date_pattern=_pattern(options, "dateFormat"),
        zone=zone_of(options),
        timestamp_epoch=_epoch(options, "timestampFormat"),
        ntz_epoch=_epoch(options, "timestampNTZFormat") or _epoch(options, "timestampFormat"),
    )


def settle(definition: Definition, folder: Path) -> Definition:
    """The definition with its options checked and its path absolute, as CREATE stores it.

    `folder` is where a relative path starts. The source of a Spark format is left as it is. Raises `UserError` for an
    option, a value or a column type that the format does not have.
    """
    using = definition.using.lower()
    if using not in OURS:
        return definition
    _check_names(definition)
    _check_values(using, definition.options)
    if using in ("csv", "json"):
        text_options(definition.options)
    if using in ("csv", "json"):
        _check_cells(definition, using)
    if using not in FILES:
        return definition
    return replace(definition, options=_absolute(definition, folder))


def _check_names(definition: StreamDefinition | RelationDefinition) -> None:
    using = definition.using.lower()
    accepted = {name.lower() for name in KNOWN[using]}
    of_streams = _OF_STREAMS if isinstance(definition, StreamDefinition) else ()
    for name in definition.options:
        if name.lower() not in accepted:
            raise UserError(
                f"'{definition.name}': a {using} source has no option '{name}'",
                remedy=did_you_mean(name, (*KNOWN[using], *of_streams)),
            )


def _check_values(using: str, options: Mapping[str, str]) -> None:
    order = option(options, "order", "time").lower()
    if order not in ("time", "name"):
        raise UserError(
            f"option order is '{order}'", remedy="Write 'time' (modification time, then name) or 'name'."
        )
    if option(options, "lineSep", "\n") not in ("\n", "\r\n", "\r", "\\n", "\\r\\n"):
        raise UserError(
            "option lineSep is neither a line feed nor CR LF", remedy="Leave it out: both are understood."
        )
    appended = option(options, "appended", "ignore").lower()
    if appended not in ("read", "ignore"):
        raise UserError(
            f"option appended is '{appended}'",
            remedy="Write 'read' (lines appended to a file are rows), or leave it out.",
        )
    if appended == "read" and flag(options, "multiLine"):
        raise UserError(
            "the options appended 'read' and multiLine cannot both be given",
            remedy="Leave one of them out: what is appended is read by lines.",
        )
    number(options, "maxFilesPerTrigger")
    number(options, "maxBytesPerTrigger")
    flag(options, "recursiveFileLookup")
    if using == "rate":
        number(options, "rowsPerSecond")
    if using == "push":
        producers_remembered(options)
        durable_within(options)
        most_waiting(options)


def _check_cells(definition: StreamDefinition | RelationDefinition, using: str) -> None:
    held = _CELLS if using == "csv" else (*(kind for kind in _CELLS if kind != "BINARY"), "STRUCT", "ARRAY")
    for field in definition.schema:
        if field.type.name not in held:
            raise UserError(
                f"'{definition.name}': column '{field.name}' is {field.type}, and a {using} file cannot hold that",
                remedy="Declare it STRING, or use parquet.",
            )


def _absolute(definition: StreamDefinition | RelationDefinition, folder: Path) -> dict[str, str]:
    path = option(definition.options, "path", "")
    if unusable := _why_no_path(path):
        raise UserError(
            f"'{definition.name}': path '{path[:80]!r}' {unusable}",
            remedy="Correct the path; {a,b}, * and ? match several.",
        )
    if not path:
        remedy = f"Write USING {definition.using} OPTIONS (path '...')."
        raise UserError(
            f"'{definition.name}': a {definition.using} source needs the option path", remedy=remedy
        )
    if path.startswith("file:"):
        path = re.sub(r"^file:/*", "/", path)
    elif re.match(r"^[A-Za-z][A-Za-z0-9+.-]+://", path):
        raise UserError(
            f"'{definition.name}': path '{path}' is not on a local file system",
            remedy="Mount it, or pass it as a Spark streaming DataFrame.",
        )
    others = {name: value for name, value in definition.options.items() if name.lower() != "path"}
    return {"path": str((folder / Path(path).expanduser()).absolute()), **others}


def _why_no_path(path: str) -> str | None:
    """Why no file system has such a path; None where one may."""
    if "\0" in path:
        return "has a NUL character"
    if len(path.encode(errors="replace")) >= _LONGEST_PATH:
        return f"is longer than {_LONGEST_PATH - 1} bytes"
    longest = max((len(part.encode(errors="replace")) for part in re.split(r"[/{},]", path)), default=0)
    return (
        f"has a part of {longest} bytes, and file systems take {_LONGEST_PART}"
        if longest > _LONGEST_PART
        else None
    )


_LONGEST_PATH: Final = 4096
_LONGEST_PART: Final = 255


def _character(options: Mapping[str, str], name: str, default: str) -> str:
    text = option(options, name, default)
    text = {"\\t": "\t", "\\\\": "\\", "\\0": "\0"}.get(text, text)
    if len(text.encode()) > 1 or (name == "sep" and not text):
        raise UserError(f"option {name} is '{text}'", remedy="It has to be one ASCII character.")
    if text in ("\n", "\r"):
        raise UserError(f"option {name} ends a line", remedy="Take a character that does not, such as ';'.")
    return text


def _comment(options: Mapping[str, str]) -> str:
    mark = _character(options, "comment", "")
    if mark and flag(options, "multiLine"):
        raise UserError(
            "the options comment and multiLine cannot both be given", remedy="Leave one of them out."
        )
    return mark


def _encoding(name: str) -> str:
    unknown = UserError(
        f"option encoding is '{name}', which is not known", remedy="Such as 'UTF-8', 'ISO-8859-1'."
    )
    try:
        if "x".encode(name) == b"x" and name.lower().replace("_", "-") in _UTF8:
            return "utf-8"
        codecs.getincrementaldecoder(name)(errors="replace").decode("x,\n".encode(name), final=True)
    except (LookupError, UnicodeError, ValueError):
        raise unknown from None
    return name.lower()


_UTF8: Final = ("utf-8", "utf8", "us-ascii", "ascii")


def _epoch(options: Mapping[str, str], name: str) -> Epoch | None:
    return _EPOCH.get(" ".join(option(options, name, "").lower().split()))


def _pattern(options: Mapping[str, str], name: str) -> str | None:
    """A Java date pattern as strptime's. ISO 8601, in any of its spellings, is None, and so is the unit of a number."""
    java = option(options, name, "").strip()
    if name != "dateFormat" and _epoch(options, name) is not None:
        return None
    if not java or re.fullmatch(
        r"yyyy-MM-dd(('T'|T| )HH:mm:ss(\.S+|\[\.S+\])?(XXX|\[XXX\]|X|'Z'|Z)?)?", java
    ):
        return None
    pieces = re.findall(r"yyyy|MM|dd|HH|mm|ss|'[^']*'|[^A-Za-z%']", java)
    if "".join(pieces) != java:
        raise UserError(
            f"option {name} is '{java}', and this version cannot read it",
            remedy="Use yyyy, MM, dd, HH, mm, ss with separators, or leave it out for ISO 8601. For numbers write 'epoch "
            "seconds', 'epoch millis', 'epoch micros' or 'epoch nanos'.",
        )
    return "".join(_PATTERN.get(piece, piece.strip("'")) for piece in pieces)
