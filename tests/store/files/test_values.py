"""Values at rest: the same values come back, equal ones once, and nothing but registered classes is ever made."""

from __future__ import annotations

import copy
import datetime as dt
import hashlib
import json
import subprocess
import sys
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from decimal import Decimal
from enum import Enum
from fractions import Fraction
from types import MappingProxyType
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.errors import CorruptStore, OtherVersion, StoreError
from headrace.store.files.values import Codec


class Colour(Enum):
    RED = 1
    BLUE = 2


@dataclass(frozen=True, slots=True)
class Point:
    x: Any
    y: Any = None

    def __post_init__(self) -> None:
        if self.x == "refused":
            raise ValueError("a point has no such place")


@dataclass(frozen=True, slots=True)
class Line:
    points: tuple[Point, ...]
    names: Mapping[str, Any] = field(default_factory=dict)
    length: int = field(init=False, default=0)


@dataclass(frozen=True, slots=True)
class Nothing:
    pass


@dataclass(frozen=True, slots=True)
class Turned:
    """A `Point` of a version that has its fields the other way round."""

    y: Any
    x: Any


@dataclass(frozen=True, slots=True)
class Wider:
    """A `Point` of a version whose fields have other types."""

    x: Any
    y: int | None = None


Blue = Enum("Blue", ["BLUE"])
"""A `Colour` of a version that has fewer."""


class Kept(bytes):
    __slots__ = ()

    @property
    def digest(self) -> str:
        return hashlib.sha256(self).hexdigest()


CLASSES: dict[str, type] = {"Point": Point, "Line": Line, "Nothing": Nothing, "Colour": Colour}


def codec_of(classes: Mapping[str, type], apart: type[bytes] | None = None) -> Codec:
    """A codec of these classes, by stored name."""
    return Codec({name: f"{kind.__module__}:{kind.__qualname__}" for name, kind in classes.items()}, apart)


CODEC = codec_of(CLASSES, apart=Kept)


def through(value: object, codec: Codec = CODEC) -> Any:
    """The value as it comes back from a file."""
    encoded = codec.encode(value)
    return codec.decode(json.loads(json.dumps(encoded.body, allow_nan=False)), encoded.apart.__getitem__)


def scalars() -> st.SearchStrategy[Any]:
    return st.one_of(
        *(st.none(), st.booleans(), st.integers(), st.floats(allow_nan=False), st.binary(max_size=9)),
        *(
            st.decimals(allow_nan=False),
            st.fractions(),
            st.dates(),
            st.timedeltas(),
            st.sampled_from(Colour),
        ),
        st.datetimes().map(lambda each: each.replace(fold=0)),
        st.text(st.characters(exclude_categories=["Cs"]), max_size=5),
    )


def values() -> st.SearchStrategy[Any]:
    def larger(inner: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
        return st.one_of(
            st.lists(inner, max_size=4).map(tuple),
            st.builds(Point, inner, inner),
            st.builds(Line, st.lists(st.builds(Point, inner), max_size=3).map(tuple)),
            st.dictionaries(st.text("ab", max_size=2), inner, max_size=3),
            st.frozensets(st.text("ab", max_size=2), max_size=3),
        )

    return st.recursive(scalars(), larger, max_leaves=12)


@given(values())
def test_what_is_written_comes_back(value: object) -> None:
    decoded = through(value)
    assert decoded == value
    assert type(decoded) is type(value)
    assert CODEC.encode(decoded) == CODEC.encode(value)


def test_values_that_are_equal_in_python_and_are_not_the_same_stay_apart() -> None:
    """`repr` shows what equality does not."""
    value = (1, True, 1.0, Decimal(1), Decimal("1.00"), Fraction(1), 0.0, -0.0, float("inf"), "1", b"1", None)
    assert repr(through(value)) == repr(value)
    assert repr(through(float("nan"))) == "nan"
    assert through(MappingProxyType({"a": dt.date(2024, 2, 29)})) == {"a": dt.date(2024, 2, 29)}


def test_equal_parts_are_written_once_and_come_back_as_one_object() -> None:
    many = tuple(Line((Point(1, "a"), Point(2, "b")), {"n": n}) for n in range(1000))
    decoded = through(many)
    assert decoded == many
    assert len({id(part.points) for part in decoded}) == 1
    rows = CODEC.encode(many).body["rows"]
    assert len(rows) < 3 * len(many) + 10


def test_the_bytes_are_the_same_in_every_process() -> None:
    """Files are named by their content: a set must not come in the order of Python's hashes."""
    program = (
        "import json; from headrace.store.files.values import Codec; "
        "print(json.dumps(Codec({}).encode(frozenset('headrace')).body))"
    )
    said = {
        subprocess.run(
            [sys.executable, "-c", program],
            env={"PYTHONHASHSEED": seed, "PYTHONPATH": ":".join(sys.path)},
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        for seed in "123"
    }
    assert len(said) == 1


def test_a_class_may_be_renamed_and_its_fields_may_be_moved() -> None:
    body = CODEC.encode(Point(1, 2)).body
    assert codec_of({"Point": Turned}).decode(body) == Turned(x=1, y=2)


@pytest.mark.parametrize(
    ("value", "known", "said"),
    [
        (Point(1), {}, "knows a 'Point', this one does not"),
        (Point(1), {"Point": Nothing}, "its 'Point' differs in x, y"),
        (Nothing(), {"Nothing": Point}, "its 'Nothing' differs in x, y"),
        (Colour.RED, {}, "knows a 'Colour', this one does not"),
        (Colour.RED, {"Colour": Blue}, "it knows Colour.RED"),
    ],
)
def test_what_this_version_does_not_know_is_of_another_one(
    value: object, known: dict[str, type], said: str
) -> None:
    with pytest.raises(OtherVersion, match=said):
        codec_of(known).decode(CODEC.encode(value).body)


def test_a_value_that_its_class_refuses_is_damage() -> None:
    body = CODEC.encode(Point("allowed")).body
    body["rows"][body["rows"].index("allowed")] = "refused"
    with pytest.raises(CorruptStore, match="a point has no such place"):
        CODEC.decode(body)


@given(values(), st.data())
def test_damaged_rows_give_a_value_or_say_so_and_call_nothing_else(
    value: object, data: st.DataObject
) -> None:
    body = json.loads(json.dumps(CODEC.encode(value).body))
    text = json.dumps(body)
    at = data.draw(st.integers(0, len(text) - 1))
    spoilt = text[:at] + data.draw(st.sampled_from('0123456789"[]{},:abnull-')) + text[at + 1 :]
    try:
        body = json.loads(spoilt)
    except ValueError:
        return  # what seals the file finds that
    with suppress(StoreError):
        CODEC.decode(body)


def test_a_class_that_is_not_registered_is_refused_with_what_to_do() -> None:
    with pytest.raises(TypeError, match=r"Codec has no stored form: register its class"):
        CODEC.encode((1, CODEC))
    with pytest.raises(TypeError, match="function has no stored form"):
        CODEC.encode(Point(lambda: 1))


def test_bytes_that_lie_apart_are_named_by_their_content() -> None:
    value = Point(Kept(b"some code"), b"data")
    encoded = CODEC.encode(value)
    assert encoded.apart == {Kept(b"some code").digest: b"some code"}
    assert "some code" not in json.dumps(encoded.body)
    decoded = CODEC.decode(encoded.body, encoded.apart.__getitem__)
    assert decoded == value
    assert type(decoded.x) is Kept
    with pytest.raises(CorruptStore, match="are damaged"):
        CODEC.decode(encoded.body, lambda _: b"other code")
    with pytest.raises(CorruptStore):
        CODEC.decode(encoded.body)


def test_the_schema_is_another_one_when_a_class_or_a_field_is() -> None:
    turned = dict(reversed(CLASSES.items()))
    assert codec_of(turned).schema(CLASSES) == CODEC.schema(CLASSES)
    others = [{**CLASSES, "Point": Wider}, {**CLASSES, "Point": Turned}, {**CLASSES, "Colour": Blue}]
    digests = {CODEC.schema(CLASSES), *(codec_of(other).schema(CLASSES) for other in others)}
    assert len(digests) == 4
    assert CODEC.schema(["Point"]) not in digests
    assert codec_of({"Point": Point}).schema(["Point"]) == CODEC.schema(["Point"])
    with pytest.raises(OtherVersion, match="knows a 'Circle', this one does not"):
        CODEC.schema(["Circle"])


def test_the_classes_of_a_value_are_noted_by_name() -> None:
    value = (Point(1, Colour.RED), frozenset(), Decimal(1))
    assert CODEC.encode(value).names == {"Point", "Colour"}
    assert CODEC.encode(value).names == {"Point", "Colour"}  # and again, once the classes are known
    assert CODEC.encode((1, "Line")).names == frozenset()


def test_a_class_is_imported_when_its_value_is_read_and_not_before() -> None:
    body = CODEC.encode(()).body
    program = (
        "import sys; from headrace.store.files.values import Codec; "
        "codec = Codec({'Panes': 'headrace.operators.panes.panes:Panes', 'Point': 'headrace.missing:Point'}); "
        f"codec.decode({body!r}); assert 'headrace.operators.panes.panes' not in sys.modules; "
        "print(codec.class_of('Panes').__name__)"
    )
    done = subprocess.run(
        [sys.executable, "-c", program],
        env={"PYTHONPATH": ":".join(sys.path)},
        capture_output=True,
        text=True,
    )
    assert done.stdout == "Panes\n", done.stderr


def test_expressions_as_deep_as_can_be_written_go_through() -> None:
    value: Any = 1
    for _ in range(300):
        value = Point((value, 2))
    decoded = through(copy.copy(value))
    for _ in range(300):
        (decoded, two), _ = decoded.x, decoded.y
        assert two == 2
    assert decoded == 1
