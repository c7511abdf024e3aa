"""Constructors of `headrace.dataclass`: the first objects of a class are made field by field, then its constructor is compiled.

A constructor depends on names and defaults of fields only in its constants: those with equally many fields of the same kinds share what
is compiled (decision 97). Most classes of a short command have a few objects (decision 102).
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from dataclasses import MISSING, Field
from functools import cache
from inspect import get_annotations
from types import CellType, CodeType, FunctionType
from typing import Any, Final


class _Factory:
    """The default of a parameter whose field has a default factory."""

    def __repr__(self) -> str:
        return "<factory>"


_GIVEN: Final = _Factory()


def is_given(value: Any) -> bool:
    """Whether a field with this value is a parameter of the constructor."""
    return value.init if isinstance(value, Field) else True


def is_keyword(value: Any) -> bool:
    """Whether a field with this value is given by name only."""
    return isinstance(value, Field) and value.kw_only is True


def default_of(value: Any) -> Any:
    """Its default; MISSING without one."""
    return value.default if isinstance(value, Field) else value


def has_default(value: Any) -> bool:
    """Whether it has a default or a factory."""
    return value is not MISSING and (default_of(value) is not MISSING or value.default_factory is not MISSING)


def plain_init(cls: type) -> Callable[..., Any]:
    """The compiled constructor of a class that is not frozen."""
    return _constructor(cls, frozen=False)


def frozen_init(cls: type) -> Callable[..., Any]:
    """The same of a frozen one."""
    return _constructor(cls, frozen=True)


def _constructor(cls: Any, *, frozen: bool) -> Callable[..., Any]:
    """The constructor of a class: the code that all classes with such fields share, with this one's names, defaults and factories."""
    values: dict[str, Any] = cls.__dict__["_values_of_fields"]
    has_slots = "__slots__" in cls.__dict__
    kinds = tuple(_kind(value, has_slots=has_slots) for value in values.values())
    shared = constructor_code(kinds, frozen=frozen, continues=hasattr(cls, "__post_init__"))
    closure = {"__set__": object.__setattr__, "__given__": _GIVEN}
    for number, (value, kind) in enumerate(zip(values.values(), kinds, strict=True)):
        if kind[1] in _MADE:
            closure[f"v{number}"] = value.default_factory
        elif kind[1] == _FIXED:
            closure[f"v{number}"] = value.default
    cells = tuple(CellType(closure[name]) for name in shared.co_freevars)
    code = _renamed(shared, {f"p{number}": name for number, name in enumerate(values)})
    method = FunctionType(code, names_of_module(cls), "__init__", None, cells)
    given = [(name, value) for name, value in values.items() if is_given(value)]
    with_default = [(name, value) for name, value in given if has_default(value)]
    method.__defaults__ = tuple(_parameter(value) for _, value in with_default if not is_keyword(value))
    method.__kwdefaults__ = {name: _parameter(value) for name, value in with_default if is_keyword(value)}
    types = {name: kind for base in reversed(cls.__mro__) for name, kind in get_annotations(base).items()}
    method.__annotations__ = {name: types[name] for name, _ in given} | {"return": None}
    return method


class FirstObjects:
    """The constructor of a class without code of its own. What it would refuse it leaves to the compiled one, and so its errors."""

    __slots__ = ("_cls", "_continues", "_fields", "_is_plain", "_known", "_positional", "_set")

    def __init__(self, cls: Any) -> None:
        values: dict[str, Any] = cls.__dict__["_values_of_fields"]
        has_slots = "__slots__" in cls.__dict__
        self._cls = cls
        self._fields = [(name, value, *_kind(value, has_slots=has_slots)) for name, value in values.items()]
        self._positional = [name for name, _, parameter, _ in self._fields if parameter == "positional"]
        self._known = {name for name, _, parameter, _ in self._fields if parameter != "none"}
        self._is_plain = all(
            parameter == "positional" and done == _SET for *_, parameter, done in self._fields
        )
        self._set = object.__setattr__ if cls.__dataclass_params__.frozen else setattr
        self._continues = hasattr(cls, "__post_init__")

    def fill(self, made: Any, /, *arguments: Any, **named: Any) -> None:
        """Set the fields of an object that was just made."""
        if self._is_plain and not named and len(arguments) == len(self._positional):
            for name, value in zip(self._positional, arguments, strict=True):
                self._set(made, name, value)
        elif (given := self._given(arguments, named)) is None:
            self._cls.__init__(made, *arguments, **named)
            return
        else:
            for name, value, _, done in self._fields:
                if done in _MADE and given.get(name, _GIVEN) is _GIVEN:
                    self._set(made, name, value.default_factory())
                elif done != _UNSET:
                    self._set(made, name, given[name] if name in given else default_of(value))
        if self._continues:
            made.__post_init__()

    def _given(self, arguments: tuple[Any, ...], named: Mapping[str, Any]) -> dict[str, Any] | None:
        """The parameters by name; None where one is missing or too much."""
        given = dict(zip(self._positional, arguments, strict=False))
        takes = len(arguments) <= len(self._positional) and named.keys() <= self._known - given.keys()
        given |= named
        missing = any(
            parameter != "none" and name not in given and not has_default(value)
            for name, value, parameter, _ in self._fields
        )
        return given if takes and not missing else None


_UNSET, _SET, _EITHER, _ALWAYS, _FIXED = "unset", "set", "made unless given", "made", "fixed"
_MADE: Final = (_EITHER, _ALWAYS)
"""What a constructor does with a field: nothing, or it sets the parameter, what a factory makes, or a default that is no parameter."""


def _kind(value: Any, *, has_slots: bool) -> tuple[str, str]:
    """The kind of the parameter, and what is done with the field."""
    parameter = "none" if not is_given(value) else "keyword" if is_keyword(value) else "positional"
    if isinstance(value, Field) and value.default_factory is not MISSING:
        return parameter, _EITHER if value.init else _ALWAYS
    if parameter != "none":
        return parameter, _SET
    return parameter, _FIXED if has_slots and value.default is not MISSING else _UNSET


@cache
def constructor_code(kinds: tuple[tuple[str, str], ...], *, frozen: bool, continues: bool) -> CodeType:
    """The code for fields of these kinds, named by their number: `p0` is a parameter and attribute, `v0` its default or factory."""
    assignment = "__set__(self,'p{0}',{1})" if frozen else "self.p{0}={1}"
    texts = {
        _SET: "p{0}",
        _EITHER: "v{0}() if p{0} is __given__ else p{0}",
        _ALWAYS: "v{0}()",
        _FIXED: "v{0}",
    }
    body = [
        assignment.format(number, texts[done].format(number))
        for number, (_, done) in enumerate(kinds)
        if done != _UNSET
    ]
    if continues:
        body.append("self.__post_init__()")
    parameters = {
        of: [f"p{number}" for number, (kind, _) in enumerate(kinds) if kind == of]
        for of in ("positional", "keyword")
    }
    star = ["*"] if parameters["keyword"] else []
    named = ", ".join(["self", *parameters["positional"], *star, *parameters["keyword"]])
    free = ["__set__", "__given__", *(f"v{number}" for number in range(len(kinds)))]
    code: CodeType = function_of(named, body, dict.fromkeys(free), {}).__code__
    return code


def _renamed(code: CodeType, names: Mapping[str, str]) -> CodeType:
    def named(values: tuple[Any, ...]) -> tuple[Any, ...]:
        return tuple(names.get(value, value) if isinstance(value, str) else value for value in values)

    return code.replace(
        co_name="__init__",
        co_varnames=named(code.co_varnames),
        co_consts=named(code.co_consts),
        co_names=named(code.co_names),
    )


def _parameter(value: Any) -> Any:
    """The default of a parameter."""
    default = default_of(value)
    return _GIVEN if default is MISSING else default


def names_of_module(cls: type) -> dict[str, Any]:
    """The names of a class's module."""
    module = sys.modules.get(cls.__module__)
    return {} if module is None else vars(module)


def function_of(
    parameters: str, body: list[str], names: dict[str, Any], module: dict[str, Any]
) -> Callable[..., Any]:
    """A function of a module. `names` are those of the body that are neither parameters nor built in."""
    lines = "\n  ".join(body or ["pass"])
    text = f"def outer({', '.join(names)}):\n def method({parameters}):\n  {lines}\n return method"
    made: dict[str, Any] = {}
    exec(text, module, made)  # noqa: S102 - made of the names of fields
    method: Callable[..., Any] = made["outer"](**names)
    return method
