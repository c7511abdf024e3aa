"""Root mean square errors of a method by position, as the text on correlated aggregates draws them."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

Doubles = npt.NDArray[np.float64]


def so_far(errors: Doubles) -> Doubles:
    """RMSE of positions 1 to n, for every n."""
    errors_so_far: Doubles = np.sqrt(np.cumsum(errors**2) / np.arange(1, len(errors) + 1))
    return errors_so_far


def of_last(errors: Doubles, window: int) -> Doubles:
    """RMSE of the last `window` positions, from the first place that has so many on.

    The text sums from n - w to n, which are w + 1 positions, and divides by w: w of them are meant.
    """
    total = np.r_[0.0, np.cumsum(errors**2)]
    errors_of_last: Doubles = np.sqrt((total[window:] - total[:-window]) / window)
    return errors_of_last
