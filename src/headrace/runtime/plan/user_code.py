"""Pickling of a user's function or class by value (cloudpickle), so that its code outlives the program that registers it,
and its module.
"""

from __future__ import annotations

import pickle

from headrace.algebra.windows.user_code import Code
from headrace.errors import UserError


def code_of(body: object, owner: str) -> Code:
    """Pickled code, which `Code.load` loads in another process; `owner` names the function or window in errors.

    Raises `UserError` for a value that cannot be pickled.
    """
    from pyspark import cloudpickle  # noqa: PLC0415 - only where something is registered

    try:
        return Code(cloudpickle.dumps(body))
    except (TypeError, pickle.PicklingError) as error:
        raise UserError(
            f"{owner} cannot be sent to tasks: {error}",
            remedy="It must not hold open files, connections or locks.",
        ) from None
