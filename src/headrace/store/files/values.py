"""Codec between immutable Python values (registered dataclasses and enumerations, tuples, sets, mappings, scalars) and
JSON: a table of rows, one for each different value, read without running stored code.

A row is a JSON text, number, truth or null, or a list. A list of numbers is a record, a tuple, a set or a mapping, whose parts
are the rows of these numbers, all of them earlier. Its first number is the kind, in a table of the records' stored names and
fields that is written with them. Other scalars are a word and a text, as `["decimal", "1.50"]`. Equal values are one row and
are read as one object: a schema under ten thousand queries is stored, and made, once.

Reading calls the constructors of registered classes, and nothing else. An unknown name or field is of another version
(`OtherVersion`); all else that does not fit is damage (`CorruptStore`).
"""

from __future__ import annotations

import base64
import hashlib
import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import Field, fields
from datetime import date, datetime, timedelta
from decimal import Decimal
from enum import Enum
from fractions import Fraction
from importlib import import_module
from operator import attrgetter
from types import MappingProxyType
from typing import Any, Final, TypeAlias

from headrace.dataclass import dataclass
from headrace.errors import CorruptStore, OtherVersion, StoreError

FORMAT: Final = 1

Fetch: TypeAlias = Callable[[str], bytes]
"""From the digest of a value in a file of its own to its bytes."""

_TUPLE, _SET, _MAPPING, _RECORDS = 0, 1, 2, 3
"""The first number of a row; records are counted from `_RECORDS` on, in the order of their table."""
_APART: Final = "apart"
_MEMBER: Final = "member"


_WORDS: Final[Mapping[type, tuple[str, Callable[[Any], str]]]] = {
    bytes: ("bytes", lambda value: base64.b64encode(value).decode()),
    Decimal: ("decimal", str),
    Fraction: ("fraction", str),
    date: ("date", date.isoformat),
    datetime: ("datetime", datetime.isoformat),
    timedelta: ("microseconds", lambda value: str(value // timedelta(microseconds=1))),
}
"""Scalars that JSON has no form for: a word, and how they are written."""
_READ: Final[Mapping[str, Callable[[str], Any]]] = {
    "bytes": lambda text: base64.b64decode(text, validate=True),
    "decimal": Decimal,
    "fraction": Fraction,
    "date": date.fromisoformat,
    "datetime": datetime.fromisoformat,
    "microseconds": lambda text: timedelta(microseconds=int(text)),
    "float": float,
}


@dataclass(frozen=True, slots=True)
class Encoded:
    """A value as JSON; by digest the bytes that it refers to and that are in files of their own; the classes it is made of."""

    body: Any
    apart: Mapping[str, bytes]
    names: frozenset[str] = frozenset()


class Codec:
    """Writes and reads values made of registered classes: dataclasses and enumerations, by stored names.

    A class is imported when a value of it is read, so that to register hundreds of them costs nothing.
    """

    def __init__(self, modules: Mapping[str, str], apart: type[bytes] | None = None) -> None:
        """`modules`: the place of each class by its stored name, as `package.module:Class`.

        `apart` is a kind of bytes that is stored in files of its own, by its property `digest`.
        """
        self._apart = apart
        self._places = dict(modules)
        self._stored = {place: name for name, place in modules.items()}
        if len(self._stored) < len(self._places):
            raise ValueError("a class has two stored names")
        self._names: dict[type, str] = {}
        self._classes: dict[str, type] = {}
        self._fields: dict[type, tuple[str, ...]] = {}
        self._parts: dict[type, Callable[[Any], Iterable[Any]]] = {}
        self._schemas: dict[frozenset[str], str] = {}

    @property
    def names(self) -> Iterable[str]:
        """The stored names of all registered classes."""
        return self._places.keys()

    def class_of(self, name: str) -> type:
        """The class of a stored name, imported if it is not yet. Raises `OtherVersion` for an unknown name."""
        kind = self._classes.get(name)
        if kind is None:
            place = self._places.get(name)
            if place is None:
                raise OtherVersion(
                    f"made by another version of headrace: it knows a '{name}', this one does not"
                )
            module, _, qualified = place.partition(":")
            kind = attrgetter(qualified)(import_module(module))
            self._note(kind, name)
        return kind

    def _register(self, kind: type) -> bool:
        """Whether the class of a value is a registered one, which is then known by its type."""
        name = self._stored.get(f"{kind.__module__}:{kind.__qualname__}")
        if name is not None:
            self._note(kind, name)
        return name is not None

    def _note(self, kind: type, name: str) -> None:
        if not issubclass(kind, Enum):
            names = self._fields[kind] = tuple(field.name for field in _init_fields(kind))
            self._parts[kind] = _parts_of(names)
        self._names[kind] = name
        self._classes[name] = kind

    def schema(self, names: Iterable[str]) -> str:
        """A digest of what this codec can read of some classes: their names, their fields and the fields' types.

        Raises `OtherVersion` for an unknown name.
        """
        key = frozenset(names)
        if key not in self._schemas:
            found: dict[str, Any] = {"": FORMAT}
            for name in key:
                kind = self.class_of(name)
                found[name] = (
                    [item.name for item in kind]
                    if issubclass(kind, Enum)
                    else [(field.name, str(field.type)) for field in _init_fields(kind)]
                )
            digest = hashlib.sha256(json.dumps(found, sort_keys=True).encode())
            self._schemas[key] = digest.hexdigest()[:24]
        return self._schemas[key]

    def encode(self, value: object) -> Encoded:
        """A value as JSON; equal values give equal bytes, in every process.

        Raises `TypeError` for a value of a class that is not registered.
        """
        writer = _Writer(self._names, self._parts, self._register, self._apart)
        number = writer.number(value)
        records = [[self._names[kind], self._fields[kind]] for kind in writer.kinds]
        body = {"format": FORMAT, "records": records, "rows": writer.rows, "value": number}
        used = frozenset(map(self._names.__getitem__, (*writer.kinds, *writer.enumerations)))
        return Encoded(body, writer.apart, used)

    def decode(self, body: Any, fetch: Fetch | None = None) -> Any:
        """The value again. Raises `OtherVersion` or `CorruptStore`, and what `fetch` raises."""
        try:
            return self._rows(body, fetch)[body["value"]]
        except StoreError:
            raise
        except Exception as error:
            raise CorruptStore(f"the stored bytes are no value: {type(error).__name__}: {error}") from error

    def _rows(self, body: Mapping[str, Any], fetch: Fetch | None) -> list[Any]:
        if body["format"] != FORMAT:
            raise OtherVersion(f"its values have format {body['format']}, this program reads {FORMAT}")
        build = [_tuple, _set, _mapping, *(self._constructor(*record) for record in body["records"])]
        values: list[Any] = []
        earlier, append = values.__getitem__, values.append
        for row in body["rows"]:
            if row.__class__ is not list and row.__class__ is not tuple:
                append(row)
            elif row[0].__class__ is int:
                append(build[row[0]](*map(earlier, row[1:])))
            else:
                append(self._scalar(row, fetch))
        return values

    def _constructor(self, name: str, stored: Sequence[str]) -> Callable[..., Any]:
        kind = self.class_of(name)
        names = self._fields.get(kind)
        if names is None:
            raise OtherVersion(f"made by another version of headrace: its '{name}' has fields")
        if tuple(stored) == names:
            return kind
        if set(stored) != set(names):
            other = ", ".join(sorted(set(stored) ^ set(names)))
            raise OtherVersion(f"made by another version of headrace: its '{name}' differs in {other}")
        return lambda *parts: kind(**dict(zip(stored, parts, strict=True)))

    def _scalar(self, row: Sequence[str], fetch: Fetch | None) -> Any:
        word, *arguments = row
        if word == _MEMBER:
            kind = self.class_of(arguments[0])
            if arguments[1] not in getattr(kind, "__members__", ()):
                raise OtherVersion(
                    f"made by another version of headrace: it knows {arguments[0]}.{arguments[1]}"
                )
            return kind[arguments[1]]  # type: ignore[index]
        if word == _APART:
            return self._fetched(arguments[0], fetch)
        if word not in _READ:
            raise OtherVersion(f"made by another version of headrace: it writes a '{word}'")
        return _READ[word](arguments[0])

    def _fetched(self, digest: str, fetch: Fetch | None) -> bytes:
        if self._apart is None or fetch is None:
            raise CorruptStore("a reference to bytes in another file, where there are none")
        content = self._apart(fetch(digest))
        if content.digest != digest:  # type: ignore[attr-defined]
            raise CorruptStore(f"the bytes named {digest} are damaged")
        return content


class _Writer:
    """The rows of one value. The value is alive while it is written, so the identities of its objects are unique."""

    def __init__(
        self,
        names: Mapping[type, str],
        parts: Mapping[type, Callable[[Any], Iterable[Any]]],
        register: Callable[[type], bool],
        apart: type[bytes] | None,
    ) -> None:
        self._names, self._parts, self._register, self._apart = names, parts, register, apart
        self.rows: list[Any] = []
        self.kinds: dict[type, int] = {}
        self.enumerations: set[type] = set()
        self.apart: dict[str, bytes] = {}
        self._objects: dict[int, int] = {}
        self._equal: dict[Any, int] = {}

    def number(self, value: Any) -> int:
        """The row of a value, written if there is no equal one. One frame for each level: expressions may be deep."""
        kind = type(value)
        if kind is str:
            return self._scalar(value, value)
        parts = self._parts.get(kind)
        if parts is None and kind is not tuple:
            return self._other(value, kind)
        index = self._objects.get(id(value))
        if index is not None:
            return index
        number = self.number
        if parts is None:
            row, inside = [_TUPLE], value
        else:
            row, inside = [self.kinds.get(kind) or self._kind(kind)], parts(value)
        for part in inside:
            row.append(number(part))
        index = self._objects[id(value)] = self._row(tuple(row))
        return index

    def _kind(self, kind: type) -> int:
        return self.kinds.setdefault(kind, _RECORDS + len(self.kinds))

    def _scalar(self, key: Any, row: Any) -> int:
        index = self._equal.get(key)
        if index is None:
            index = self._equal[key] = len(self.rows)
            self.rows.append(row)
        return index

    def _row(self, row: tuple[Any, ...]) -> int:
        return self._scalar(row, row)

    def _other(self, value: Any, kind: type) -> int:
        """A value that is neither a text nor a record nor a tuple."""
        if value is None or kind is bool or kind is int:
            return self._scalar((kind, value), value)
        if kind is float:
            is_finite = value - value == 0
            return self._scalar((kind, repr(value)), value if is_finite else ("float", repr(value)))
        if kind is dict or kind is MappingProxyType:
            return self._row((_MAPPING, *(self.number(part) for pair in value.items() for part in pair)))
        if kind is frozenset:
            return self._row((_SET, *(self.number(part) for part in sorted(value, key=repr))))
        if kind is self._apart:
            self.apart[value.digest] = bytes(value)
            return self._row((_APART, value.digest))
        if kind in _WORDS:
            word, text_of = _WORDS[kind]
            return self._row((word, text_of(value)))
        if kind not in self._names and not self._register(kind):
            raise TypeError(
                f"a {kind.__module__}.{kind.__qualname__} has no stored form: register its class (a frozen dataclass or an "
                "enumeration) among those that plans are made of, or keep it out of the plan"
            )
        if isinstance(value, Enum):
            self.enumerations.add(kind)
            return self._row((_MEMBER, self._names[kind], value.name))
        return self.number(value)


def _init_fields(kind: Any) -> list[Field[Any]]:
    """The fields of a class that its constructor takes."""
    return [field for field in fields(kind) if field.init]


def _parts_of(names: tuple[str, ...]) -> Callable[[Any], Iterable[Any]]:
    """A function that returns the fields of an object, in the order of their names."""
    if not names:
        return lambda _: ()
    get = attrgetter(*names)
    return get if len(names) > 1 else lambda value: (get(value),)


def _tuple(*parts: Any) -> tuple[Any, ...]:
    return parts


def _set(*parts: Any) -> frozenset[Any]:
    return frozenset(parts)


def _mapping(*parts: Any) -> dict[Any, Any]:
    return dict(zip(parts[::2], parts[1::2], strict=True))
