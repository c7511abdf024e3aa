"""The module that homes written before the files moved name as that of a user window's base class."""

from headrace.algebra.windows.user_windows import LinearWindow, UserWindow

__all__ = ["LinearWindow", "UserWindow"]
