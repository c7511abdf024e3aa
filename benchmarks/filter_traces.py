"""Generators of traces of filters: which filters drop each row, for correlated filters with given pass rates, for changes of these
rates, and for the two worst cases of the thesis.

Filters are in groups; those of a group agree on four rows of five, and filters of different groups are independent.
Source: Babu (2005), section 4.7 (the model of correlation), examples 4.5.1 and 4.6.1.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

Bools = npt.NDArray[np.bool_]
AGREEMENT = 0.8


def correlated(
    rows: int,
    pass_rates: Sequence[float],
    factor: int,
    rng: np.random.Generator,
    agreement: float = AGREEMENT,
) -> Bools:
    """Drops of `len(pass_rates)` filters, `factor` of them to a group of equal pass rates.

    Each filter copies its group's coin with a probability that makes two of them agree on the given share of rows, else it tosses
    its own. Raises `ValueError` where the rates differ within a group, or agree more than that by chance.
    """
    dropped = np.zeros((rows, len(pass_rates)), bool)
    for first in range(0, len(pass_rates), factor):
        group = pass_rates[first : first + factor]
        if len(set(group)) > 1:
            raise ValueError(f"pass rates of one group differ: {group}")
        by_chance = group[0] ** 2 + (1 - group[0]) ** 2
        if len(group) > 1 and by_chance > agreement:
            raise ValueError(
                f"filters that pass {group[0]:.3f} agree on {by_chance:.3f} of the rows by chance"
            )
        copied = np.sqrt((agreement - by_chance) / (1 - by_chance)) if len(group) > 1 else 0.0
        coin = rng.random(rows) < group[0]
        for index in range(first, first + len(group)):
            independent = rng.random(rows) < group[0]
            dropped[:, index] = ~np.where(rng.random(rows) < copied, coin, independent)
    return dropped


def permuted(dropped: Bools, period: int, rng: np.random.Generator) -> tuple[Bools, list[slice]]:
    """The trace with its filters permuted at random after every `period` rows; and the phases."""
    phases = [slice(start, min(start + period, len(dropped))) for start in range(0, len(dropped), period)]
    parts = [dropped[phases[0]]]
    parts += [dropped[phase][:, rng.permutation(dropped.shape[1])] for phase in phases[1:]]
    return np.concatenate(parts), phases


def slices_of_one_filter(rows: int, filters: int, rng: np.random.Generator) -> Bools:
    """Example 4.5.1: values 1 to 100; all filters but the last pass 1 to 49, the last passes 50 to 100."""
    values = rng.integers(1, 101, rows)
    dropped = np.repeat((values > 49)[:, None], filters, axis=1)
    dropped[:, -1] = values <= 49
    return dropped


def equal_slices(rows: int, filters: int) -> tuple[Bools, Bools]:
    """Example 4.6.1: filter i drops slice i of equal slices; then the last one drops all but slice n - 1."""
    values = np.arange(rows) % filters
    before = values[:, None] == np.arange(filters)
    after = before.copy()
    after[:, -1] = values != filters - 2
    return before, after
