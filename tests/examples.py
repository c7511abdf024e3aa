"""How many examples a property tries where its default number is too many or too few: in proportion to the profile's."""

from __future__ import annotations

from typing import Any

from hypothesis import HealthCheck, settings

QUICK = 50
"""Examples of a property in `make test`, where it asks for no number."""


def examples(quick: int, *, counted: bool = False, shares_fixtures: bool = False, **others: Any) -> settings:
    """Settings of a property that tries `quick` examples in `make test`; `others` are settings of hypothesis.

    A profile with more examples tries more in proportion, so that `make soak` tries each property longer. One with fewer
    bounds them, so that `make narrow` is short, except where the test then counts what the examples had (`counted`).
    All examples of a property that `shares_fixtures` have the same fixtures, such as `tmp_path`.
    """
    if shares_fixtures:
        others["suppress_health_check"] = [HealthCheck.too_slow, HealthCheck.function_scoped_fixture]
    most = settings().max_examples
    if most >= QUICK:
        return settings(max_examples=quick * most // QUICK, **others)
    return settings(max_examples=quick if counted else min(quick, most), **others)
