"""`dataclass` as in the standard library, except that what a class may need is made when it is first used.

The standard library compiles up to six functions for each class while its module is imported, and describes all fields. A short command
imports hundreds of classes and uses few of them, so that most of its start was spent there (decision 87). `fields`, `replace`, `asdict`,
`match` and pickles do not differ. There is no `InitVar` and no `KW_ONLY`.

`headrace.constructors` has the constructors.
"""

from __future__ import annotations

from abc import update_abstractmethods
from collections.abc import Callable, Mapping
from copy import copy
from dataclasses import MISSING, Field, FrozenInstanceError, field, fields
from dataclasses import dataclass as standard_dataclass
from functools import partial
from inspect import get_annotations
from reprlib import recursive_repr
from types import FunctionType, MemberDescriptorType
from typing import TYPE_CHECKING, Any, ClassVar, Final, get_origin

from headrace.constructors import (
    FirstObjects,
    default_of,
    frozen_init,
    function_of,
    has_default,
    is_given,
    is_keyword,
    names_of_module,
    plain_init,
)

__all__ = ["dataclass", "is_compiled_later"]


_WRAPPED: Final = ("__func__", "fget", "func")
"""Where class methods, properties and cached properties have their function."""


_FIRST_OBJECTS: Final = 16
"""So many objects of a class take as long to make field by field as its constructor takes to be compiled."""


class _Later:
    """A method of a class, compiled when it is first looked up; the compiled one then takes its place."""

    __slots__ = ("_cls", "_made_by", "_name")

    def __init__(self, cls: type, name: str, made_by: Callable[[type], Callable[..., Any]]) -> None:
        self._cls, self._name, self._made_by = cls, name, made_by

    def __get__(self, instance: object, owner: type | None = None) -> Any:
        method = self._made_by(self._cls)
        method.__name__, method.__module__ = self._name, self._cls.__module__
        method.__qualname__ = f"{self._cls.__qualname__}.{self._name}"
        setattr(self._cls, self._name, method)
        return method if instance is None else method.__get__(instance, owner)


class _ConstructorLater(_Later):
    """A constructor that is compiled when a class has had some objects, or when it is looked up without one."""

    __slots__ = ("_first", "_left")

    def __init__(self, cls: type, name: str, made_by: Callable[[type], Callable[..., Any]]) -> None:
        super().__init__(cls, name, made_by)
        self._first: FirstObjects | None = None
        self._left = _FIRST_OBJECTS

    def __get__(self, instance: object, owner: type | None = None) -> Any:
        if instance is None or self._left <= 0:
            return super().__get__(instance, owner)
        self._left -= 1
        if self._first is None:
            self._first = FirstObjects(self._cls)
        return partial(self._first.fill, instance)


def is_compiled_later(attribute: object) -> bool:
    """Whether an attribute found in the namespace of a class is a method that no one has looked up yet."""
    return isinstance(attribute, _Later)


if TYPE_CHECKING:
    from dataclasses import dataclass
else:

    def dataclass(cls: type | None = None, /, **options: bool) -> Any:
        """`dataclasses.dataclass`, for classes without `InitVar`."""
        return _made(cls, **options) if cls is not None else lambda kind: _made(kind, **options)


def _made(
    cls: Any,
    *,
    init: bool = True,
    repr: bool = True,  # noqa: A002 - the standard library's name
    eq: bool = True,
    order: bool = False,
    frozen: bool = False,
    slots: bool = False,
) -> type:
    if not cls.__doc__:
        cls.__doc__ = cls.__name__  # else the standard library looks for the signature
    has_own_hash = _has_own_hash(cls)
    _refuse_mixed_bases(cls, frozen=frozen)
    cls = _with_fields(cls, slots=slots)
    cls.__dataclass_params__ = copy(_PARAMETERS)
    _set_parameters(cls, init=init, repr=repr, eq=eq, order=order, frozen=frozen)
    if frozen:
        _freeze(cls, slots=slots)
    if init and "__init__" not in cls.__dict__:
        cls.__init__ = _ConstructorLater(cls, "__init__", frozen_init if frozen else plain_init)
    if repr:
        _put(cls, "__repr__", _repr)
    if eq:
        _put(cls, "__eq__", _eq)
        if not has_own_hash:
            cls.__hash__ = _Later(cls, "__hash__", _hash) if frozen else None
    if order:
        for name, operator in _ORDER.items():
            setattr(cls, name, _Later(cls, name, _comparison(operator)))
    return update_abstractmethods(cls)


# --------------------------------------------------------------------------------------------------------------- fields


@standard_dataclass(init=False, repr=False, eq=False)
class _Example:
    example: object


_PARAMETERS: Final[Any] = _Example.__dataclass_params__  # type: ignore[attr-defined]
_PLAIN: Final[Any] = fields(_Example)[0]
"""Of these the parameters of all classes, and the fields, are made: the standard library has no constructor for either."""


class _FieldsLater:
    """The fields of a class by name, described as by the standard library when they are first looked up."""

    __slots__ = ("_cls", "_own")

    def __init__(self, cls: type, own: Mapping[str, Any]) -> None:
        self._cls, self._own = cls, own

    def __get__(self, instance: object, owner: type | None = None) -> dict[str, Field[Any]]:
        described: dict[str, Field[Any]] = {}
        for base in reversed(self._cls.__mro__[1:]):
            described |= getattr(base, "__dataclass_fields__", {})
        annotations = get_annotations(self._cls)
        described |= {name: _described(name, annotations[name], value) for name, value in self._own.items()}
        self._cls.__dataclass_fields__ = described  # type: ignore[attr-defined]
        return described


def _described(name: str, annotation: Any, value: Any) -> Field[Any]:
    made: Any = value if isinstance(value, Field) else field(default=value)
    made.name, made.type, made._field_type = name, annotation, _PLAIN._field_type  # noqa: SLF001 - as for its own
    if made.kw_only is MISSING:
        made.kw_only = False
    return made  # type: ignore[no-any-return]


def _with_fields(cls: Any, *, slots: bool) -> Any:
    """The class with defaults, slots and patterns, and its fields to be described later."""
    own = {
        name: getattr(cls, name, MISSING) for name, kind in get_annotations(cls).items() if _is_field(kind)
    }
    _refuse_fields(cls, own)
    for name, value in own.items():
        if isinstance(value, MemberDescriptorType):  # a slot of a base is not a default
            own[name] = MISSING
        elif isinstance(value, Field) and value.default is MISSING:
            delattr(cls, name)
        elif isinstance(value, Field):
            setattr(cls, name, value.default)
    every = _values_of_bases(cls) | own
    given = [(name, value) for name, value in every.items() if is_given(value)]
    positional = [(name, value) for name, value in given if not is_keyword(value)]
    _refuse_order(positional)
    if "__match_args__" not in cls.__dict__:
        cls.__match_args__ = tuple(name for name, _ in positional)  # type: ignore[misc]
    made = _with_slots(cls, tuple(every)) if slots else cls
    made._values_of_fields = every  # noqa: SLF001
    made.__dataclass_fields__ = _FieldsLater(made, own)
    return made


def _is_field(annotation: Any) -> bool:
    if isinstance(annotation, str):
        return not annotation.startswith(("ClassVar", "typing.ClassVar"))
    return annotation is not ClassVar and get_origin(annotation) is not ClassVar


def _values_of_bases(cls: type) -> dict[str, Any]:
    """What each field of the bases has in its class: a default, or what the standard library calls a field."""
    values: dict[str, Any] = {}
    for base in reversed(cls.__mro__[1:]):
        if "_values_of_fields" in base.__dict__:
            values |= base.__dict__["_values_of_fields"]
        elif "__dataclass_fields__" in base.__dict__:
            values |= {each.name: each for each in fields(base)}
    return values


def _refuse_fields(cls: type, own: Mapping[str, Any]) -> None:
    """As the standard library: defaults cannot change, and a field has an annotation."""
    for name, value in own.items():
        if (default := type(default_of(value))).__hash__ is None:
            raise ValueError(
                f"mutable default {default} for field {name} is not allowed: use default_factory"
            )
    for name, value in cls.__dict__.items():
        if isinstance(value, Field) and name not in own:
            raise TypeError(f"{name!r} is a field but has no type annotation")


def _refuse_order(positional: list[tuple[str, Any]]) -> None:
    """As the standard library: parameters with defaults are last."""
    seen = False
    for name, value in positional:
        if seen and not has_default(value):
            raise TypeError(f"non-default argument {name!r} follows default argument")
        seen = seen or has_default(value)


def _with_slots(former: Any, names: tuple[str, ...]) -> Any:
    """The class made again, with slots for its fields: a class has them from the start, or never."""
    if "__slots__" in former.__dict__:
        raise TypeError(f"{former.__name__} already specifies __slots__")
    left_out = {*names, "__dict__", "__weakref__"}
    body = {name: value for name, value in former.__dict__.items() if name not in left_out}
    inherited = {name for base in former.__mro__[1:-1] for name in _slots_of(base)}
    body["__slots__"] = tuple(name for name in names if name not in inherited)
    made = type(former)(former.__name__, former.__bases__, body)
    made.__qualname__ = former.__qualname__
    _rename_class_of_methods(former, made)
    return made


def _slots_of(base: type) -> tuple[str, ...]:
    slots = base.__dict__.get("__slots__", ())
    return (slots,) if isinstance(slots, str) else tuple(slots)


def _refuse_mixed_bases(cls: type, *, frozen: bool) -> None:
    """As the standard library: frozen classes have frozen bases only, and others none."""
    if any(parameters.frozen != frozen for parameters in _parameters_of_bases(cls)):
        kinds = ("frozen", "non-frozen") if frozen else ("non-frozen", "frozen")
        raise TypeError("cannot inherit {} dataclass from a {} one".format(*kinds))


def _parameters_of_bases(cls: type) -> list[Any]:
    return [
        base.__dict__["__dataclass_params__"]
        for base in cls.__mro__[1:]
        if "__dataclass_params__" in base.__dict__
    ]


def _set_parameters(cls: Any, **named: bool) -> None:
    """What `dataclasses` and its users read of how a class was made."""
    for name, value in named.items():
        setattr(cls.__dataclass_params__, name, value)


def _rename_class_of_methods(former: type, made: type) -> None:
    """With slots the class is made a second time: `super()` in its methods means the second one, as from Python 3.14 on."""
    for attribute in vars(made).values():
        for part in _functions_of(attribute):
            if isinstance(part, FunctionType) and "__class__" in part.__code__.co_freevars:
                assert part.__closure__ is not None
                cell = part.__closure__[part.__code__.co_freevars.index("__class__")]
                if cell.cell_contents is former:
                    cell.cell_contents = made
                return  # all methods of a class share the cell


def _functions_of(attribute: object) -> tuple[object, ...]:
    if isinstance(attribute, FunctionType):
        return (attribute,)
    if isinstance(attribute, str | tuple | dict | MemberDescriptorType):
        return ()
    return tuple(getattr(attribute, name, None) for name in _WRAPPED)


def _has_own_hash(cls: type) -> bool:
    """Whether a class defines its hash; Python itself sets None next to an own `__eq__`."""
    defined = cls.__dict__.get("__hash__", MISSING)
    return not (defined is MISSING or (defined is None and "__eq__" in cls.__dict__))


def _put(cls: type, name: str, made_by: Callable[[type], Callable[..., Any]]) -> None:
    if name not in cls.__dict__:
        setattr(cls, name, _Later(cls, name, made_by))


# ---------------------------------------------------------------------------------------------------- frozen instances


def _freeze(cls: Any, *, slots: bool) -> None:
    def __setattr__(self: Any, name: str, value: Any) -> None:  # noqa: N807
        if type(self) is cls or name in _names(cls):
            raise FrozenInstanceError(f"cannot assign to field {name!r}")
        super(cls, self).__setattr__(name, value)

    def __delattr__(self: Any, name: str) -> None:  # noqa: N807
        if type(self) is cls or name in _names(cls):
            raise FrozenInstanceError(f"cannot delete field {name!r}")
        super(cls, self).__delattr__(name)

    cls.__setattr__, cls.__delattr__ = __setattr__, __delattr__
    if slots:  # pickle would assign the slots
        cls.__getstate__ = cls.__dict__.get("__getstate__", _state)
        cls.__setstate__ = cls.__dict__.get("__setstate__", _set_state)


def _names(cls: Any) -> list[str]:
    return [each.name for each in fields(cls)]


def _state(self: Any) -> list[Any]:
    return [getattr(self, field.name) for field in fields(self)]


def _set_state(self: Any, state: list[Any]) -> None:
    for each, value in zip(fields(self), state, strict=True):
        object.__setattr__(self, each.name, value)


# ------------------------------------------------------------------------------------------------------ compiled methods


def _compiled(cls: type, parameters: str, body: list[str]) -> Callable[..., Any]:
    return function_of(parameters, body, {}, names_of_module(cls))


def _repr(cls: Any) -> Callable[..., Any]:
    parts = ", ".join(f"{each.name}={{self.{each.name}!r}}" for each in fields(cls) if each.repr)
    text = f"return f'{{self.__class__.__qualname__}}({parts})'"
    return recursive_repr()(_compiled(cls, "self", [text]))


def _values(cls: Any, of: str) -> str:
    """The compared fields of an object as the text of a tuple."""
    return "(" + "".join(f"{of}.{each.name}," for each in fields(cls) if each.compare) + ")"


def _comparison(operator: str) -> Callable[[type], Callable[..., Any]]:
    def made_by(cls: type) -> Callable[..., Any]:
        body = [
            "if other.__class__ is self.__class__:",
            f" return {_values(cls, 'self')} {operator} {_values(cls, 'other')}",
            "return NotImplemented",
        ]
        return _compiled(cls, "self, other", body)

    return made_by


_eq: Final = _comparison("==")
_ORDER: Final = {"__lt__": "<", "__le__": "<=", "__gt__": ">", "__ge__": ">="}


def _hash(cls: Any) -> Callable[..., Any]:
    hashed = (each for each in fields(cls) if (each.compare if each.hash is None else each.hash))
    values = "".join(f"self.{each.name}," for each in hashed)
    return _compiled(cls, "self", [f"return hash(({values}))"])
