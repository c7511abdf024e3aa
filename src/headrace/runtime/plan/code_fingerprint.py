"""Fingerprints (hashes) of users' classes and functions: equal for the same code, also where its pickles differ."""

from __future__ import annotations

import hashlib
from types import CodeType, FunctionType, ModuleType
from typing import Any, Final

from headrace.dataclass import is_compiled_later

_NOT_CODE: Final = frozenset(
    {"__dict__", "__weakref__", "__doc__", "__module__", "_abc_impl", "__abstractmethods__"}
)


def fingerprint(kind: object) -> str:
    """Equal for the same code: of the class or function, of the functions and classes it reads, and of their constants."""
    code = _Fingerprint()
    code.note(kind)
    return code.digest.hexdigest()


class _Fingerprint:
    def __init__(self) -> None:
        self.digest = hashlib.sha256()
        self.seen: set[int] = set()

    def note(self, value: Any) -> None:
        """Add a value, and once the values it refers to."""
        match value:
            case staticmethod() | classmethod():
                self.note(value.__func__)
            case property():
                self.note(value.fget)
            case FunctionType() | type() if id(value) in self.seen:
                return
            case FunctionType():
                self.seen.add(id(value))
                self._function(value)
            case type():
                self.seen.add(id(value))
                self._class(value)
            case ModuleType():
                self._text(value.__name__)
            case tuple() | list():
                for part in value:
                    self.note(part)
            case _:
                plain = "__repr__" in {name for base in type(value).__mro__[:-1] for name in vars(base)}
                self._text(repr(value) if plain else type(value).__qualname__)

    def _function(self, value: FunctionType) -> None:
        self._code(value.__code__)
        self.note((value.__defaults__, sorted((value.__kwdefaults__ or {}).items())))
        for name in sorted(set(value.__code__.co_names) & set(value.__globals__)):
            self.note(value.__globals__[name])
        self.note(tuple(cell.cell_contents for cell in value.__closure__ or ()))

    def _class(self, value: type) -> None:
        self._text(value.__qualname__)
        if value.__module__.partition(".")[0] in ("abc", "builtins", "numpy", "pyarrow"):
            return
        for base in value.__bases__:
            self.note(base)
        for name, attribute in sorted(vars(value).items()):
            if name not in _NOT_CODE:
                self._text(name)
                self.note(getattr(value, name) if is_compiled_later(attribute) else attribute)

    def _code(self, code: CodeType) -> None:
        self.digest.update(code.co_code)
        self._text(repr((code.co_names, code.co_varnames)))
        for constant in code.co_consts:
            if isinstance(constant, CodeType):
                self._code(constant)
            else:
                self.note(constant)

    def _text(self, text: str) -> None:
        self.digest.update(text.encode() + b"\0")
