"""`headrace.dataclass` is the dataclass of the standard library: the same classes, made by both, behave the same."""

from __future__ import annotations

import copy
import dataclasses
import inspect
import itertools
import pickle
import subprocess
import sys
from abc import ABC, abstractmethod
from collections.abc import Callable
from functools import partial
from typing import Any, ClassVar, Generic, TypeVar, get_type_hints

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.dataclass import _FIRST_OBJECTS, dataclass, is_compiled_later

Item = TypeVar("Item")

FIELDS: dict[str, Callable[[], Any]] = {
    "plain": lambda: dataclasses.MISSING,
    "default": lambda: 7,
    "factory": lambda: dataclasses.field(default_factory=tuple),
    "keyword": lambda: dataclasses.field(kw_only=True),
    "keyword with default": lambda: dataclasses.field(default=3, kw_only=True),
    "not compared": lambda: dataclasses.field(default=2, compare=False),
    "not hashed": lambda: dataclasses.field(default=2, hash=False),
    "hashed only": lambda: dataclasses.field(default=2, hash=True, compare=False),
    "not shown": lambda: dataclasses.field(default=5, repr=False),
    "set later": lambda: dataclasses.field(init=False, default=4),
    "made": lambda: dataclasses.field(init=False, default_factory=list, hash=False),
}
"""Kinds of fields; those without a default first, as the language wants them."""
OWN: dict[str, Any] = {
    "__init__": lambda self, *_: None,
    "__repr__": lambda self: "own",
    "__eq__": lambda self, other: True,
    "__hash__": lambda self: 5,
    "__post_init__": lambda self: object.__setattr__(self, next(iter(self.__dataclass_fields__), "none"), 77),
    "__getstate__": lambda self: [1, 2, 3, 4, 5, 6, 7, 8, 9][: len(dataclasses.fields(self))],
}
"""Methods that a class may define itself."""

options = st.fixed_dictionaries(
    {},
    optional={
        "frozen": st.booleans(),
        "slots": st.booleans(),
        "eq": st.booleans(),
        "repr": st.booleans(),
        "init": st.just(True),
    },
)
kinds = st.lists(st.sampled_from(list(FIELDS)), max_size=6)
own_methods = st.sets(st.sampled_from(list(OWN)), max_size=2)


def a_class(
    make: Any, chosen: list[str], own: set[str], named: dict[str, Any], bases: tuple[type, ...]
) -> type:
    order = list(FIELDS)
    body: dict[str, Any] = {"__annotations__": {}, "__module__": __name__, "__doc__": "A class."}
    for number, kind in enumerate(sorted(chosen, key=order.index)):
        name = f"{'abcdef'[number]}{len(bases)}"
        body["__annotations__"][name] = "int" if kind == "default" else "Any"
        if (value := FIELDS[kind]()) is not dataclasses.MISSING:
            body[name] = value
    body |= {name: OWN[name] for name in own}
    return make(**named)(type("Made", bases, body))


def outcome(call: Callable[[], Any]) -> Any:
    """What a call returns or raises, as data."""
    try:
        found = call()
    except Exception as error:  # noqa: BLE001 - its type and text are compared
        return type(error), str(error)
    return found


def behaviour(kind: type, values: list[int]) -> list[Any]:
    """What can be observed of a class, without the identity of its objects."""
    takes = [field for field in dataclasses.fields(kind) if field.init]
    positional = [field for field in takes if not field.kw_only]
    keywords = {field.name: 9 for field in takes if field.kw_only}
    seen: list[Any] = [
        [(f.name, f.type, f.init, f.compare, f.kw_only) for f in dataclasses.fields(kind)],
        kind.__dict__.get("__match_args__"),
        kind.__dict__.get("__slots__"),
        outcome(lambda: str(inspect.signature(kind))),
        outcome(lambda: get_type_hints(kind.__init__)),
        kind.__hash__ is None,
        outcome(lambda: isinstance(kind(), kind)),
    ]
    made = []
    for given_values in (values, values[:1], [*values, 1], values):
        arguments = given_values[: len(positional)]
        thing = outcome(lambda arguments=arguments: kind(*arguments, **keywords))
        if not isinstance(thing, kind):
            seen.append(thing)
            continue
        made.append(thing)
        default_repr = kind.__repr__ is object.__repr__
        seen += [
            None if default_repr else outcome(lambda thing=thing: repr(thing)),
            outcome(lambda thing=thing: dataclasses.asdict(thing)),
            outcome(lambda thing=thing: dataclasses.asdict(dataclasses.replace(thing, **keywords))),
            outcome(lambda thing=thing: dataclasses.asdict(copy.copy(thing))),
            # of a frozen class with slots the standard library raises TypeError, by mistake
            isinstance(outcome(lambda thing=thing: setattr(thing, "unknown", 1)), tuple),
            isinstance(outcome(lambda thing=thing: delattr(thing, "unknown")), tuple),
            *(outcome(lambda thing=thing, f=f: setattr(thing, f.name, 1)) for f in dataclasses.fields(kind)),
            *(outcome(lambda thing=thing, f=f: delattr(thing, f.name)) for f in dataclasses.fields(kind)),
        ]
    fresh = [kind(*values[: len(positional)], **keywords) for _ in range(2)] if made else []
    for one in fresh:
        seen += [one == 1, one != 1]
        seen += [outcome(lambda one=one, other=other: one == other) for other in fresh]
        if kind.__hash__ is not object.__hash__:
            seen.append(outcome(lambda one=one: hash(one)))
    return seen


@given(kinds, own_methods, options, st.lists(st.integers(0, 3), min_size=6, max_size=6))
def test_a_class_behaves_as_one_of_the_standard_library(chosen, own, named, values) -> None:
    theirs = a_class(dataclasses.dataclass, chosen, own, named, ())
    ours = a_class(dataclass, chosen, own, named, ())
    assert behaviour(ours, values) == behaviour(theirs, values)
    assert behaviour(ours, values) == behaviour(theirs, values)  # and again, once all is compiled


@given(kinds, kinds, options, st.lists(st.integers(0, 3), min_size=12, max_size=12))
def test_a_class_of_a_class_behaves_as_one_of_the_standard_library(above, below, named, values) -> None:
    def pair(make: Any) -> Any:
        base = a_class(make, above, set(), named, ())
        return outcome(lambda: a_class(make, below, set(), named, (base,))), base

    (theirs, their_base), (ours, our_base) = pair(dataclasses.dataclass), pair(dataclass)
    if isinstance(theirs, type):
        assert behaviour(ours, values) == behaviour(theirs, values)
    assert behaviour(our_base, values) == behaviour(their_base, values)


@given(st.lists(st.sampled_from(["default", "not compared"]), max_size=3), st.data())
def test_ordered_classes_order_as_those_of_the_standard_library(chosen, data) -> None:
    named = {"order": True, "frozen": True, "slots": True}
    theirs, ours = (a_class(make, chosen, set(), named, ()) for make in (dataclasses.dataclass, dataclass))
    row = st.lists(st.integers(0, 2), min_size=len(chosen), max_size=len(chosen))
    left, right = data.draw(row), data.draw(row)

    def ordered(kind: Any) -> list[bool]:
        one, other = kind(*left), kind(*right)
        return [one < other, one <= other, one > other, one >= other, one == other]

    assert ordered(ours) == ordered(theirs)
    with pytest.raises(TypeError, match="not supported between"):
        _ = ours(*left) < 1


@dataclass(frozen=True, slots=True)
class Point(Generic[Item]):
    """A class of a module, for pickles."""

    x: Item
    y: tuple[int, ...] = ()
    zero: ClassVar[int] = 0


class Shape(ABC):
    """What has an area."""

    @abstractmethod
    def area(self) -> int:
        """Return the area."""


@dataclass(frozen=True)
class Square(Shape):
    side: int

    def area(self) -> int:
        return self.side**2


@dataclass
class Chain:
    next: Any = None


def test_instances_are_pickled_matched_and_shown_as_any_dataclass() -> None:
    point = Point(1, (2,))
    assert pickle.loads(pickle.dumps(point)) == point
    match point:
        case Point(x, y):
            assert (x, y) == (1, (2,))
    assert [field.name for field in dataclasses.fields(Point)] == ["x", "y"]
    assert Square(3).area() == 9
    assert Square.__doc__
    with pytest.raises(TypeError, match="abstract"):
        Shape()
    chain = Chain()
    chain.next = chain
    assert repr(chain) == "Chain(next=...)"
    assert {Point(1): "a"}[Point(1)] == "a"


def test_methods_are_compiled_when_they_are_first_used_and_once() -> None:
    @dataclass(frozen=True, slots=True)
    class Pair:
        left: int
        right: int = 0

    methods = ("__init__", "__repr__", "__eq__", "__hash__")
    assert all(is_compiled_later(vars(Pair)[name]) for name in methods)
    pair = Pair(1)
    assert is_compiled_later(vars(Pair)["__init__"])
    assert (Pair.__init__.__name__, is_compiled_later(vars(Pair)["__init__"])) == ("__init__", False)
    assert is_compiled_later(vars(Pair)["__eq__"])
    assert hash(pair) == hash(Pair(1, 0))
    assert (repr(pair), pair == Pair(1, 0)) == (f"{Pair.__qualname__}(left=1, right=0)", True)
    compiled = [vars(Pair)[name] for name in methods]
    assert not any(is_compiled_later(method) for method in compiled)
    assert Pair(1) == pair
    assert [vars(Pair)[name] for name in methods] == compiled


@given(kinds, own_methods, options, st.data())
def test_first_objects_are_those_of_the_compiled_constructor(chosen, own, named, data) -> None:
    """Also with missing, unknown, repeated and surplus arguments."""
    chosen_for = [a_class(dataclass, chosen, own, named, ()) for _ in range(2)]
    first, compiled = chosen_for
    _ = compiled.__init__
    takes = [field.name for field in dataclasses.fields(first) if field.init]
    for _ in range(3):
        row = data.draw(st.lists(st.integers(0, 3), max_size=len(takes) + 1))
        keywords = data.draw(st.dictionaries(st.sampled_from([*takes, "other"]), st.integers(4, 6)))
        made = [outcome(partial(kind, *row, **keywords)) for kind in chosen_for]
        if isinstance(made[1], tuple):
            assert made[0] == made[1]
        else:
            first_one, compiled_one = (outcome(partial(dataclasses.asdict, one)) for one in made)
            assert first_one == compiled_one


def test_a_class_with_many_objects_has_a_compiled_constructor() -> None:
    @dataclass
    class Counted:
        number: int = 0

    made = []
    while is_compiled_later(vars(Counted)["__init__"]):
        made.append(Counted(len(made)))
    assert 1 < len(made) <= 32
    assert [one.number for one in made] == [*range(len(made))]


def test_fields_are_in_the_hash_as_they_ask_for() -> None:
    chosen, named = ["plain", "not hashed", "hashed only", "not compared"], {"frozen": True, "slots": True}
    theirs, ours = (a_class(make, chosen, set(), named, ()) for make in (dataclasses.dataclass, dataclass))
    for values in ((1,), (1, 3), (1, 2, 3), (1, 2, 2, 3)):
        assert hash(ours(*values)) == hash(theirs(*values))


def test_super_means_the_class_with_slots() -> None:
    class Base:
        __slots__ = ()

        def plain(self) -> str:
            return "base"

        @property
        def shown(self) -> str:
            return "shown"

    @dataclass(frozen=True, slots=True)
    class Above(Base):
        x: int = 0

        def plain(self) -> str:
            return "above " + super().plain()

    @dataclass(frozen=True, slots=True)
    class OnlyProperty(Base):
        x: int = 0

        @property
        def shown(self) -> str:
            return "above " + super().shown

    assert (Above().plain(), OnlyProperty().shown) == ("above base", "above shown")


ALL_USE_IT = """
import dataclasses, importlib, pkgutil, sys
made = []
original = dataclasses._process_class
def noted(cls, init, *rest):
    if init and cls.__module__.startswith("headrace"): made.append(f"{cls.__module__}.{cls.__qualname__}")
    return original(cls, init, *rest)
dataclasses._process_class = noted
import headrace
for module in pkgutil.walk_packages(headrace.__path__, "headrace."):
    if not module.name.endswith("__main__"): importlib.import_module(module.name)
print(*made, sep="\\n")
"""


def test_no_class_of_headrace_compiles_its_methods_while_it_is_imported() -> None:
    done = subprocess.run([sys.executable, "-c", ALL_USE_IT], capture_output=True, text=True)
    assert (done.returncode, done.stdout.split()) == (0, []), done.stderr


def test_classes_of_both_kinds_inherit_from_each_other_if_both_are_frozen_or_neither() -> None:
    @dataclass(frozen=True, slots=True)
    class Ours:
        a: int = 1

    @dataclasses.dataclass(frozen=True, slots=True)
    class Theirs(Ours):
        b: int = 2

    @dataclass(frozen=True, slots=True)
    class OursAgain(Theirs):
        c: int = 3

    assert OursAgain(3, 2, 1) == OursAgain(3, 2, 1) != OursAgain(3, 2, 2)
    kinds: tuple[Any, ...] = (Ours, Theirs, OursAgain)
    for kind in kinds:
        assert str(kind.__dataclass_params__) == str(kinds[1].__dataclass_params__)
        with pytest.raises(dataclasses.FrozenInstanceError):
            kind().a = 2
    for make, refusing in itertools.product((dataclass, dataclasses.dataclass), (False, True)):

        @make(frozen=refusing)
        class Base:
            a: int

        for other in (dataclass, dataclasses.dataclass):
            with pytest.raises(
                TypeError, match=r"^cannot inherit (non-)?frozen dataclass from a (non-)?frozen one$"
            ):
                other(frozen=not refusing)(type("Mixed", (Base,), {}))


def refused_by(make: Any, body: dict[str, Any], bases: tuple[type, ...] = (), **named: bool) -> Any:
    made = {"__module__": __name__, "__doc__": "A class.", **body}
    return outcome(lambda: make(**named)(type("Made", bases, made)))


def test_mistakes_in_a_class_are_refused_as_by_the_standard_library() -> None:
    class Base:
        x: int = 0

    mistakes: list[Any] = [
        ({"__annotations__": {"a": "list"}, "a": []}, (), {}),
        ({"__annotations__": {"a": "list"}, "a": dataclasses.field(default={})}, (), {}),
        ({"__annotations__": {"a": "int", "b": "int"}, "a": 1}, (), {}),
        ({"__annotations__": {"a": "int", "b": "int"}, "a": dataclasses.field(default_factory=int)}, (), {}),
        ({"a": dataclasses.field()}, (), {}),
        ({"__annotations__": {"a": "int"}, "__slots__": ()}, (), {"slots": True}),
        ({"__annotations__": {"b": "int"}}, (dataclasses.dataclass(Base),), {}),
        ({"__annotations__": {"b": "int"}}, (dataclass(type("Base", (), dict(vars(Base)))),), {}),
    ]
    for body, bases, named in mistakes:
        theirs, ours = (
            refused_by(make, dict(body), bases, **named) for make in (dataclasses.dataclass, dataclass)
        )
        assert isinstance(theirs, tuple), body
        assert ours == theirs


def test_constructors_of_equal_kinds_share_code_and_keep_their_names_and_defaults() -> None:
    @dataclass(frozen=True, slots=True)
    class One:
        left: int
        right: int = 1
        made: list[int] = dataclasses.field(default_factory=list)

    @dataclass(frozen=True, slots=True)
    class Other:
        right: str
        left: str = "l"
        also: dict[str, int] = dataclasses.field(default_factory=dict)

    assert (One(5), Other("r")) == (One(5, 1, []), Other("r", "l", {}))
    assert (One(right=2, left=3).left, Other(left="x", right="y").left) == (3, "x")
    assert str(inspect.signature(Other)).startswith("(right: 'str', left: 'str' = 'l', also: ")
    for _ in range(_FIRST_OBJECTS + 1):
        One(1), Other("r")
    assert vars(One)["__init__"].__code__.co_code == vars(Other)["__init__"].__code__.co_code
    for kind, missing in ((One, "left"), (Other, "right")):
        with pytest.raises(
            TypeError, match=rf"__init__\(\) missing 1 required positional argument: '{missing}'"
        ):
            kind()


def test_fields_are_described_when_they_are_asked_for_and_once() -> None:
    @dataclass(frozen=True, slots=True)
    class Pair:
        left: int
        right: int = 2
        shared: ClassVar[int] = 7

    pair = Pair(1)
    assert not isinstance(vars(Pair)["__dataclass_fields__"], dict)
    assert [(each.name, each.type, each.default) for each in dataclasses.fields(pair)] == [
        ("left", "int", dataclasses.MISSING),
        ("right", "int", 2),
    ]
    assert isinstance(vars(Pair)["__dataclass_fields__"], dict)
    assert dataclasses.replace(pair, left=3) == Pair(3, 2)
    assert dataclasses.is_dataclass(Pair)
