"""`dataclass` as in the standard library, except that methods are compiled when they are first used.

The standard library compiles up to six functions for each class while its module is imported. A short command imports hundreds
of classes and uses few of them, so that most of its start was spent there (decision 87). Fields, slots and patterns are the
standard library's own: `fields`, `replace`, `asdict`, `match` and pickles do not differ. There is no `InitVar`.
"""

from __future__ import annotations

import dataclasses
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import MISSING, Field, FrozenInstanceError, fields
from inspect import get_annotations
from reprlib import recursive_repr
from threading import RLock
from types import FunctionType
from typing import TYPE_CHECKING, Any, Final

__all__ = ["dataclass", "is_compiled_later"]


_MAKING: Final = RLock()
"""Held while the bases of a class do not show that they are frozen."""
_WRAPPED: Final = ("__func__", "fget", "func")
"""Where class methods, properties and cached properties have their function."""


class _Factory:
    """The default of a parameter whose field has a default factory."""

    def __repr__(self) -> str:
        return "<factory>"


_GIVEN: Final = _Factory()


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
    cls: type,
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
    _set_parameters(cls, init=init, repr=repr, eq=eq, order=order, frozen=frozen)
    if frozen:
        _freeze(cls, slots=slots)
    if init:
        _put(cls, "__init__", _frozen_init if frozen else _init)
    if repr:
        _put(cls, "__repr__", _repr)
    if eq:
        _put(cls, "__eq__", _eq)
        if not has_own_hash:
            cls.__hash__ = _Later(cls, "__hash__", _hash) if frozen else None  # type: ignore[assignment]
    if order:
        for name, operator in _ORDER.items():
            setattr(cls, name, _Later(cls, name, _comparison(operator)))
    return cls


def _with_fields(cls: type, *, slots: bool) -> Any:
    """The class with its fields, as the standard library makes them.

    Of an annotation that is a text it would ask three times which type it names; only class variables make a difference.
    """
    annotations = get_annotations(cls)
    plain = {
        name: each for name, each in annotations.items() if isinstance(each, str) and "ClassVar" not in each
    }
    cls.__annotations__ = {**annotations, **dict.fromkeys(plain, object)}
    with _bases_as_if_not_frozen(cls):
        made: Any = dataclasses.dataclass(init=False, repr=False, eq=False, slots=slots)(cls)
    for name, annotation in plain.items():
        made.__dataclass_fields__[name].type = annotation
    made.__annotations__ = annotations
    if made is not cls:
        _rename_class_of_methods(cls, made)
    return made


@contextmanager
def _bases_as_if_not_frozen(cls: type) -> Iterator[None]:
    """The standard library makes a class whose own methods are added here only from bases that are not frozen."""
    with _MAKING:
        frozen = [parameters for parameters in _parameters_of_bases(cls) if parameters.frozen]
        for parameters in frozen:
            parameters.frozen = False
        try:
            yield
        finally:
            for parameters in frozen:
                parameters.frozen = True


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
        for part in (attribute, *(getattr(attribute, name, None) for name in _WRAPPED)):
            if isinstance(part, FunctionType) and "__class__" in part.__code__.co_freevars:
                assert part.__closure__ is not None
                cell = part.__closure__[part.__code__.co_freevars.index("__class__")]
                if cell.cell_contents is former:
                    cell.cell_contents = made
                return  # all methods of a class share the cell


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
    return [field.name for field in fields(cls)]


def _state(self: Any) -> list[Any]:
    return [getattr(self, field.name) for field in fields(self)]


def _set_state(self: Any, state: list[Any]) -> None:
    for field, value in zip(fields(self), state, strict=True):
        object.__setattr__(self, field.name, value)


# ------------------------------------------------------------------------------------------------------ compiled methods


def _compiled(cls: type, parameters: str, body: list[str], names: dict[str, Any]) -> Callable[..., Any]:
    """A function of the class's module. `names` are those of the body that are neither parameters nor built in."""
    lines = "\n  ".join(body or ["pass"])
    text = f"def outer({', '.join(names)}):\n def method({parameters}):\n  {lines}\n return method"
    made: dict[str, Any] = {}
    module = sys.modules.get(cls.__module__)
    exec(text, {} if module is None else vars(module), made)  # noqa: S102 - made of the names of fields
    method: Callable[..., Any] = made["outer"](**names)
    return method


def _init(cls: type) -> Callable[..., Any]:
    return _constructor(cls, "self.{0}={1}")


def _frozen_init(cls: type) -> Callable[..., Any]:
    return _constructor(cls, "__set__(self,{0!r},{1})")


def _constructor(cls: Any, assignment: str) -> Callable[..., Any]:
    names: dict[str, Any] = {"__set__": object.__setattr__, "__given__": _GIVEN}
    all_fields, body = fields(cls), list[str]()
    for field in all_fields:
        if (value := _initial(field, names, cls)) is not None:
            body.append(assignment.format(field.name, value))
    if hasattr(cls, "__post_init__"):
        body.append("self.__post_init__()")
    given = [field for field in all_fields if field.init]
    parameters = ["self", *(_parameter(field) for field in given if not field.kw_only)]
    keywords = [_parameter(field) for field in given if field.kw_only]
    method = _compiled(cls, ", ".join([*parameters, *(["*", *keywords] if keywords else [])]), body, names)
    method.__annotations__ = {field.name: field.type for field in given} | {"return": None}
    return method


def _initial(field: Field[Any], names: dict[str, Any], cls: type) -> str | None:
    """The value that a field has at first, as text; None for a field that the constructor does not set."""
    default = f"__default_{field.name}__"
    if field.default_factory is not MISSING:
        names[default] = field.default_factory
        made = f"{default}()"
        return f"{made} if {field.name} is __given__ else {field.name}" if field.init else made
    if field.default is not MISSING:
        names[default] = field.default
    if field.init:
        return field.name
    return default if field.default is not MISSING and "__slots__" in cls.__dict__ else None


def _parameter(field: Field[Any]) -> str:
    if field.default_factory is not MISSING:
        return f"{field.name}=__given__"
    return field.name if field.default is MISSING else f"{field.name}=__default_{field.name}__"


def _repr(cls: Any) -> Callable[..., Any]:
    parts = ", ".join(f"{field.name}={{self.{field.name}!r}}" for field in fields(cls) if field.repr)
    text = f"return f'{{self.__class__.__qualname__}}({parts})'"
    return recursive_repr()(_compiled(cls, "self", [text], {}))


def _values(cls: Any, of: str) -> str:
    """The compared fields of an object as the text of a tuple."""
    return "(" + "".join(f"{of}.{field.name}," for field in fields(cls) if field.compare) + ")"


def _comparison(operator: str) -> Callable[[type], Callable[..., Any]]:
    def made_by(cls: type) -> Callable[..., Any]:
        body = [
            "if other.__class__ is self.__class__:",
            f" return {_values(cls, 'self')} {operator} {_values(cls, 'other')}",
            "return NotImplemented",
        ]
        return _compiled(cls, "self, other", body, {})

    return made_by


_eq: Final = _comparison("==")
_ORDER: Final = {"__lt__": "<", "__le__": "<=", "__gt__": ">", "__ge__": ">="}


def _hash(cls: Any) -> Callable[..., Any]:
    hashed = (field for field in fields(cls) if (field.compare if field.hash is None else field.hash))
    values = "".join(f"self.{field.name}," for field in hashed)
    return _compiled(cls, "self", [f"return hash(({values}))"], {})
