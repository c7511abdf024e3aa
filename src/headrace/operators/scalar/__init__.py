"""Scalar expressions over Arrow: Spark SQL's values, errors per row, a column at a time.

`Evaluation` is the entry point. The kernels of the functions are in `kernels`, by canonical name.
"""

from headrace.operators.scalar.evaluation.evaluate import Evaluated, Evaluation, evaluate, predicate
from headrace.operators.scalar.values.row_errors import Errors

__all__ = ["Errors", "Evaluated", "Evaluation", "evaluate", "predicate"]
