"""`dataclass` as in the standard library, except that what a class may need is made when it is first used.

The standard library compiles up to six functions for each class while its module is imported, and describes all fields. A short command
imports hundreds of classes and uses few of them, so that most of its start was spent there (decision 87). `fields`, `replace`, `asdict`,
`match` and pickles do not differ. There is no `InitVar` and no `KW_ONLY`.

A constructor depends on names and defaults of fields only in its constants: constructors with equally many fields of the same kinds share what
is compiled (decision 97). The first objects of a class are made field by field: most classes of a short command have no more (decision 102).
"""

from __future__ import annotations

import sys
from abc import update_abstractmethods
from collections.abc import Callable, Mapping
from copy import copy
from dataclasses import MISSING, Field, FrozenInstanceError, field, fields
from dataclasses import dataclass as standard_dataclass
from functools import cache, partial
from inspect import get_annotations
from reprlib import recursive_repr
from types import CellType, CodeType, FunctionType, MemberDescriptorType
from typing import TYPE_CHECKING, Any, ClassVar, Final, get_origin

__all__ = ["dataclass", "is_compiled_later"]


_WRAPPED: Final = ("__func__", "fget", "func")
"""Where class methods, properties and cached properties have their function."""


class _Factory:
    """The default of a parameter whose field has a default factory."""

    def __repr__(self) -> str:
        return "<factory>"


_GIVEN: Final = _Factory()
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
        self._first: _FirstObjects | None = None
        self._left = _FIRST_OBJECTS

    def __get__(self, instance: object, owner: type | None = None) -> Any:
        if instance is None or self._left <= 0:
            return super().__get__(instance, owner)
        self._left -= 1
        if self._first is None:
            self._first = _FirstObjects(self._cls)
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
        cls.__init__ = _ConstructorLater(cls, "__init__", _frozen_init if frozen else _init)
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
    given = [(name, value) for name, value in every.items() if _is_given(value)]
    positional = [(name, value) for name, value in given if not _is_keyword(value)]
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


def _is_given(value: Any) -> bool:
    """Whether a field with this value is a parameter of the constructor."""
    return value.init if isinstance(value, Field) else True


def _is_keyword(value: Any) -> bool:
    return isinstance(value, Field) and value.kw_only is True


def _default(value: Any) -> Any:
    return value.default if isinstance(value, Field) else value


def _has_default(value: Any) -> bool:
    return value is not MISSING and (_default(value) is not MISSING or value.default_factory is not MISSING)


def _refuse_fields(cls: type, own: Mapping[str, Any]) -> None:
    """As the standard library: defaults cannot change, and a field has an annotation."""
    for name, value in own.items():
        if (default := type(_default(value))).__hash__ is None:
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
        if seen and not _has_default(value):
            raise TypeError(f"non-default argument {name!r} follows default argument")
        seen = seen or _has_default(value)


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


# ---------------------------------------------------------------------------------------------------------- constructors


def _init(cls: type) -> Callable[..., Any]:
    return _constructor(cls, frozen=False)


def _frozen_init(cls: type) -> Callable[..., Any]:
    return _constructor(cls, frozen=True)


def _constructor(cls: Any, *, frozen: bool) -> Callable[..., Any]:
    """The constructor of a class: the code that all classes with such fields share, with this one's names, defaults and factories."""
    values: dict[str, Any] = cls.__dict__["_values_of_fields"]
    has_slots = "__slots__" in cls.__dict__
    kinds = tuple(_kind(value, has_slots=has_slots) for value in values.values())
    shared = _constructor_code(kinds, frozen=frozen, continues=hasattr(cls, "__post_init__"))
    closure = {"__set__": object.__setattr__, "__given__": _GIVEN}
    for number, (value, kind) in enumerate(zip(values.values(), kinds, strict=True)):
        if kind[1] in _MADE:
            closure[f"v{number}"] = value.default_factory
        elif kind[1] == _FIXED:
            closure[f"v{number}"] = value.default
    cells = tuple(CellType(closure[name]) for name in shared.co_freevars)
    code = _renamed(shared, {f"p{number}": name for number, name in enumerate(values)})
    method = FunctionType(code, _names_of_module(cls), "__init__", None, cells)
    given = [(name, value) for name, value in values.items() if _is_given(value)]
    with_default = [(name, value) for name, value in given if _has_default(value)]
    method.__defaults__ = tuple(_parameter(value) for _, value in with_default if not _is_keyword(value))
    method.__kwdefaults__ = {name: _parameter(value) for name, value in with_default if _is_keyword(value)}
    types = {name: kind for base in reversed(cls.__mro__) for name, kind in get_annotations(base).items()}
    method.__annotations__ = {name: types[name] for name, _ in given} | {"return": None}
    return method


class _FirstObjects:
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
                    self._set(made, name, given[name] if name in given else _default(value))
        if self._continues:
            made.__post_init__()

    def _given(self, arguments: tuple[Any, ...], named: Mapping[str, Any]) -> dict[str, Any] | None:
        """The parameters by name; None where one is missing or too much."""
        given = dict(zip(self._positional, arguments, strict=False))
        takes = len(arguments) <= len(self._positional) and named.keys() <= self._known - given.keys()
        given |= named
        missing = any(
            parameter != "none" and name not in given and not _has_default(value)
            for name, value, parameter, _ in self._fields
        )
        return given if takes and not missing else None


_UNSET, _SET, _EITHER, _ALWAYS, _FIXED = "unset", "set", "made unless given", "made", "fixed"
_MADE: Final = (_EITHER, _ALWAYS)
"""What a constructor does with a field: nothing, or it sets the parameter, what a factory makes, or a default that is no parameter."""


def _kind(value: Any, *, has_slots: bool) -> tuple[str, str]:
    """The kind of the parameter, and what is done with the field."""
    parameter = "none" if not _is_given(value) else "keyword" if _is_keyword(value) else "positional"
    if isinstance(value, Field) and value.default_factory is not MISSING:
        return parameter, _EITHER if value.init else _ALWAYS
    if parameter != "none":
        return parameter, _SET
    return parameter, _FIXED if has_slots and value.default is not MISSING else _UNSET


@cache
def _constructor_code(kinds: tuple[tuple[str, str], ...], *, frozen: bool, continues: bool) -> CodeType:
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
    code: CodeType = _function(named, body, dict.fromkeys(free), {}).__code__
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
    default = _default(value)
    return _GIVEN if default is MISSING else default


# ------------------------------------------------------------------------------------------------------ compiled methods


def _names_of_module(cls: type) -> dict[str, Any]:
    module = sys.modules.get(cls.__module__)
    return {} if module is None else vars(module)


def _function(
    parameters: str, body: list[str], names: dict[str, Any], module: dict[str, Any]
) -> Callable[..., Any]:
    """A function of a module. `names` are those of the body that are neither parameters nor built in."""
    lines = "\n  ".join(body or ["pass"])
    text = f"def outer({', '.join(names)}):\n def method({parameters}):\n  {lines}\n return method"
    made: dict[str, Any] = {}
    exec(text, module, made)  # noqa: S102 - made of the names of fields
    method: Callable[..., Any] = made["outer"](**names)
    return method


def _compiled(cls: type, parameters: str, body: list[str]) -> Callable[..., Any]:
    return _function(parameters, body, {}, _names_of_module(cls))


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
