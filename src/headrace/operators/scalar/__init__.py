"""Scalar expressions over Arrow: Spark SQL's values, row by row errors, a column at a time.

`Evaluation` is the door. The kernels of the functions stand in `kernels`, by canonical name.
"""

from headrace.operators.scalar.errors import Errors
from headrace.operators.scalar.evaluation import Evaluated, Evaluation, evaluate, predicate

__all__ = ["Errors", "Evaluated", "Evaluation", "evaluate", "predicate"]
