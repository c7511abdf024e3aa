"""Compilation of an expression to the steps that compute it, each distinct subexpression once; and the execution of
these steps on a batch.

Equal subexpressions, also of different queries, share one node, so that a batch computes them once. Constants are
computed here; a constant that fails is an error of each row that needs it.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from typing import Any, Final

import pyarrow as pa

from headrace.algebra.expressions.expression import (
    Call,
    Case,
    Cast,
    Column,
    Constants,
    Expression,
    Literal,
    children,
    constants_in,
    walk,
)
from headrace.algebra.expressions.series import STRUCTURES
from headrace.algebra.functions.resolve import FUNCTIONS, common_type
from headrace.dataclass import dataclass
from headrace.operators.base.query_failures import ROW_FAILURES, reason_of
from headrace.operators.scalar.evaluation.branching import among, case, coalesce, connective
from headrace.operators.scalar.evaluation.casts import cast
from headrace.operators.scalar.evaluation.constant_lists import among_constants
from headrace.operators.scalar.evaluation.halving import by_halves
from headrace.operators.scalar.evaluation.structures import structure
from headrace.operators.scalar.evaluation.user_functions import user_call
from headrace.operators.scalar.values.column_result import Compute, Frame, Result, errors_of, settled
from headrace.operators.scalar.values.datum import Kernel, column, is_null, scalar_of
from headrace.operators.scalar.values.row_errors import Errors
from headrace.schema import BOOLEAN, Type, to_arrow


@dataclass(frozen=True, slots=True, eq=False)
class Node:
    """One step. `constant` is its result, for one row, if it is the same for every row."""

    compute: Compute
    inputs: tuple[Node, ...]
    type: Type
    constant: Result | None = None


LAZY: Final = {"coalesce": coalesce, "ifnull": coalesce, "in": among}
"""Functions that decide which errors of arguments count, by name; also `EXPANDED` and AND, OR."""
EXPANDED: Final = ("if", "nvl2", "nullif")

_LIMIT: Final = 50_000
_programs: dict[int, tuple[Expression, tuple[Node, ...]]] = {}
_nodes: dict[Hashable, Node] = {}


def program(expression: Expression) -> tuple[Node, ...]:
    """The steps, arguments before functions; the last one is the expression itself."""
    cached = _programs.get(id(expression))
    if cached is not None and cached[0] is expression:
        return cached[1]
    if len(_programs) + len(_nodes) > _LIMIT:  # entries in use are soon added again
        _programs.clear()
        _nodes.clear()
    steps = _compiled(expression)
    _programs[id(expression)] = (expression, steps)
    return steps


def _compiled(expression: Expression) -> tuple[Node, ...]:
    compiled: dict[int, Node] = {}
    for part in reversed(list(walk(expression))):
        if id(part) not in compiled:
            compiled[id(part)] = _node(part, tuple(compiled[id(child)] for child in children(part)))
    order: dict[Node, None] = {}
    pending = [(compiled[id(expression)], False)]
    while pending:
        node, ready = pending.pop()
        if ready:
            order[node] = None
        elif node not in order:
            pending.append((node, True))
            pending.extend((step, False) for step in reversed(node.inputs))
    return tuple(order)


def _node(expression: Expression, inputs: tuple[Node, ...]) -> Node:
    match expression:
        case Column(name=name, type=kind):
            return _intern(("column", name, kind), lambda: Node(_column(name), (), kind))
        case Literal(value=value, type=kind):
            scalar = scalar_of(expression)
            return _intern(("literal", repr(value), kind), lambda: _constant(Result(scalar), kind))
        case Constants(type=kind):
            return _intern(("list", expression), lambda: Node(_listed(expression), (), kind))
        case Call(function="in", arguments=(_, listed)) if constants_in(listed) is not None:
            return _intern(
                ("in", inputs), lambda: _made(among_constants(candidates(listed)), inputs[:1], BOOLEAN)
            )
        case Cast(argument=argument, type=kind, safe=safe):
            return _intern(
                ("cast", safe, kind, inputs),
                lambda: _made(_cast(argument.type, kind, safe=safe), inputs, kind),
            )
        case Case(type=kind):
            return _choice(inputs, kind)
        case Call(function=name, type=kind):
            return _intern(("call", name, kind, inputs), lambda: _call(name, inputs, kind))


def candidates(expression: Expression) -> Result:
    """The candidates of a list of constants, in order, and those of them that fail."""
    listed = constants_in(expression)
    assert listed is not None
    rows = len(listed)
    result = computed(program(expression), Frame({}, rows, {}), {})
    return Result(column(result.value, rows), result.errors)


def computed(steps: Sequence[Node], frame: Frame, memo: dict[Node, Result]) -> Result:
    """The result of the last step on a batch; results of steps are taken from `memo`, and added to it."""
    for node in steps:
        if node not in memo:
            inputs = [memo[step] for step in node.inputs]
            try:
                memo[node] = node.compute(frame, inputs)
            except ROW_FAILURES:
                memo[node] = by_halves(node.compute, node.type, frame, inputs)
    return memo[steps[-1]]


def _intern(key: Hashable, make: Any) -> Node:
    node = _nodes.get(key)
    if node is None:
        node = _nodes[key] = make()
    return node


def _choice(inputs: tuple[Node, ...], kind: Type) -> Node:
    return _intern(("case", kind, inputs), lambda: _made(case(kind), inputs, kind))


def _made(compute: Compute, inputs: tuple[Node, ...], kind: Type) -> Node:
    """A step, computed at once if all its inputs are constant."""
    if not all(node.constant is not None for node in inputs):
        return Node(compute, inputs, kind)
    constants = [node.compute(Frame({}, 1, {}), ()) for node in inputs]
    arrays = [Result(pa.repeat(result.value, 1), result.errors) for result in constants]
    try:
        result = compute(Frame({}, 1, {}), arrays)
    except ROW_FAILURES as failure:  # an error of each row that needs it
        result = Result(pa.scalar(None, to_arrow(kind)), Errors.everywhere(1, reason_of(failure)))
    value = result.value[0] if isinstance(result.value, pa.Array) else result.value
    return _constant(Result(value, result.errors), kind)


def _constant(result: Result, kind: Type) -> Node:
    if result.errors is None:
        return Node(lambda *_: result, (), kind, result)
    reason = result.errors.reasons[0]
    return Node(
        lambda frame, _: Result(result.value, Errors.everywhere(frame.rows, reason)), (), kind, result
    )


def _column(name: str) -> Compute:
    def compute(frame: Frame, _: Sequence[Result]) -> Result:
        values = frame.columns[name]
        return Result(values.combine_chunks() if isinstance(values, pa.ChunkedArray) else values)

    return compute


def _listed(constants: Constants) -> Compute:
    """A list of constants, in place of a column of the batch."""
    result = Result(constants.values)
    return lambda *_: result


def _cast(source: Type, target: Type, *, safe: bool) -> Compute:
    compute = _strict(cast(source, target), target)
    if not safe:
        return compute

    def forgiving(frame: Frame, results: Sequence[Result]) -> Result:
        return Result(compute(frame, [Result(results[0].value)]).value, results[0].errors)

    return forgiving


def _call(name: str, inputs: tuple[Node, ...], kind: Type) -> Node:
    if name in ("and", "or"):
        return _made(connective(name), inputs, kind)
    if name in LAZY:
        return _made(LAZY[name](inputs[0].type), inputs, kind)
    if name in EXPANDED:
        return _expanded(name, inputs, kind)
    if name in STRUCTURES:
        return _made(structure(name, kind), inputs, kind)
    row = FUNCTIONS.get(name)
    if row is None:
        return Node(user_call(name), inputs, kind)
    from headrace.operators.scalar.evaluation.kernels import KERNELS, Site  # noqa: PLC0415 - with the first function

    site = Site(name, tuple(node.type for node in inputs), tuple(map(_value, inputs)), kind)
    kernel = KERNELS[name](site)
    return _made(_strict(kernel, kind) if row.strict else _lenient(kernel), inputs, kind)


def _value(node: Node) -> Any:
    constant = node.constant
    if constant is None or constant.errors is not None:
        return None
    try:
        return constant.value.as_py()
    except OverflowError:  # a date that Python does not have
        return None


def _expanded(name: str, inputs: tuple[Node, ...], kind: Type) -> Node:
    """`if`, `nvl2` and `nullif` are CASEs."""
    if name == "if":
        return _choice(inputs, kind)
    if name == "nvl2":
        test = _intern(
            ("call", "isnotnull", BOOLEAN, inputs[:1]), lambda: _call("isnotnull", inputs[:1], BOOLEAN)
        )
        return _choice((test, *inputs[1:]), kind)
    shared = common_type([node.type for node in inputs])
    sides = tuple(
        node if node.type == shared else _made(_cast(node.type, shared, safe=False), (node,), shared)
        for node in inputs
    )
    equal = _intern(("call", "=", BOOLEAN, sides), lambda: _call("=", sides, BOOLEAN))
    nothing = _constant(Result(pa.scalar(None, to_arrow(kind))), kind)
    return _choice((equal, nothing, inputs[0]), kind)


def _strict(kernel: Kernel, kind: Type) -> Compute:
    arrow = to_arrow(kind)

    def compute(frame: Frame, results: Sequence[Result]) -> Result:
        data, errors = [result.value for result in results], errors_of(results)
        if any(map(is_null, data)) or any(pa.types.is_null(datum.type) for datum in data):
            return Result(pa.scalar(None, arrow), errors)
        value, failure = kernel(data)
        # Rows with errors in arguments are NULL there, so they are NULL here.
        return Result(value, errors) if failure is None else settled(value, errors, failure, frame.rows)

    return compute


def _lenient(kernel: Kernel) -> Compute:
    def compute(frame: Frame, results: Sequence[Result]) -> Result:
        data = [result.value for result in results]
        if not any(isinstance(datum, pa.Array) for datum in data):  # NULL of a column of untyped NULLs
            data[0] = column(data[0], frame.rows)
        value, failure = kernel(data)
        return settled(value, errors_of(results), failure, frame.rows)

    return compute
