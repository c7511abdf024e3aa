"""The old module name of the base class of user windows, which homes of earlier versions contain."""

from headrace.algebra.windows.user_windows import LinearWindow, UserWindow

__all__ = ["LinearWindow", "UserWindow"]
