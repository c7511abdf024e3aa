"""Statistics from central moments: covariance, correlation, regression, skewness, kurtosis, with Spark's NULLs."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from headrace.operators.partials.partial import Cells


def of_pairs(function: str, cells: Cells) -> pa.Array:
    """Statistics of pairs (y, x), one per group; see `headrace.operators.partials.central_moments.CoMoments`."""
    n, y, y_rest, x, x_rest, yy, xx, xy = cells
    with np.errstate(all="ignore"):
        match function:
            case "covar_pop":
                return pa.array(xy / n, mask=n < 1)
            case "covar_samp":
                return pa.array(xy / (n - 1), mask=n < 2)
            case "corr":
                return pa.array(xy / np.sqrt(yy) / np.sqrt(xx), mask=(n < 2) | (yy == 0) | (xx == 0))
            case "regr_r2":
                share = np.where(yy == 0, 1.0, (xy / np.sqrt(yy) / np.sqrt(xx)) ** 2)
                return pa.array(share, mask=(n < 2) | (xx == 0))
            case "regr_slope":
                return pa.array(xy / xx, mask=(n < 2) | (xx == 0))
            case "regr_intercept":
                return pa.array(y + (y_rest - xy / xx * x_rest) - xy / xx * x, mask=(n < 2) | (xx == 0))
    plain = {"regr_sxx": xx, "regr_syy": yy, "regr_sxy": xy}
    return pa.array(plain[function], mask=n < 1)


def of_shape(function: str, cells: Cells) -> pa.Array:
    """Skewness, or kurtosis less that of a normal distribution; NULL if all values are equal."""
    n, _, second, third, fourth = cells
    with np.errstate(all="ignore"):
        if function == "skewness":
            values = np.sqrt(n) * third / np.sqrt(second) ** 3
        else:
            values = n * fourth / (second * second) - 3.0
    return pa.array(values, mask=(n < 1) | (second == 0))
