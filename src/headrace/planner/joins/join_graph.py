"""Analysis of a join's conditions: which sources one operator joins by a common key, in which order, and the keys of
each; and of the columns that are read above the join.

Sources that all equal one another (`a.k = b.k AND b.k = c.k`) are joined by one operator, whatever their number. Where
conditions do not share a key, the largest set that does is joined first, and its combinations with the largest set that
shares a key with one of them: a tree of joins, of which each has any number of sides. Of sets of equal size the first is that
whose sources have fewest rows, where that was measured: the combinations of a join are stored by the next one.
Sources: MJoin (Viglas, Naughton, Burger 2003); trees of MJoins (Babu 2005, chapter 5).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from headrace.algebra.expressions.expression import Call, Expression, columns_of, conjuncts
from headrace.algebra.query import Filter, Join, Node, Windowed, walk
from headrace.algebra.rewriting import expressions_of
from headrace.dataclass import dataclass


@dataclass(frozen=True, slots=True)
class Group:
    """Sources that one operator joins, by number, ascending, with the keys of each; `after`: joined with the group before."""

    sources: tuple[int, ...]
    keys: tuple[tuple[Expression, ...], ...]
    """The keys of each source."""
    inner_keys: tuple[Expression, ...] | None
    """The keys of the combinations of all groups before; None for the first group."""


def windows_of(node: Node) -> list[Windowed]:
    """The windows of a chain of joins, left to right."""
    if isinstance(node, Join):
        return [*windows_of(node.left), *windows_of(node.right)]
    assert isinstance(node, Windowed)
    return [node]


def factors_of(node: Node) -> list[Expression]:
    """The conditions of a chain of joins."""
    if not isinstance(node, Join):
        return []
    factors = [] if node.condition is None else list(conjuncts(node.condition))
    return [*factors_of(node.left), *factors]


def columns_above(root: Node, top: Node, tested: Sequence[Expression]) -> frozenset[str]:
    """The columns that the nodes above the joins of `top` read; the joins have `tested` some conditions of filters."""
    inside = {id(node) for node in walk(top)}
    above = [node for node in walk(root) if id(node) not in inside]
    read = [item for node in above if not isinstance(node, Filter) for item in expressions_of(node)]
    filters = [factor for node in above if isinstance(node, Filter) for factor in conjuncts(node.predicate)]
    read += [factor for factor in filters if factor not in tested]
    return frozenset[str]().union(*map(columns_of, read))


def groups_of(
    columns: Sequence[frozenset[str]],
    factors: Sequence[Expression],
    *,
    binary: bool,
    sizes: Sequence[int] = (),
    tree: Sequence[Sequence[int]] = (),
) -> list[Group]:
    """The groups in which sources with these columns are joined, in order; `binary`: two sides at a time.

    `sizes` are the magnitudes of the sources' rows; empty: not known. `tree`: the sources of each group, if they were chosen.
    """
    waiting, joined = list(range(len(columns))), list[int]()
    groups: list[Group] = []
    while waiting:
        units = ([frozenset().union(*(columns[number] for number in joined))] if joined else []) + [
            columns[number] for number in waiting
        ]
        if tree:
            wanted = [waiting.index(source) + bool(joined) for source in sorted(tree[len(groups)])]
            chosen = [0] * bool(joined) + wanted
        else:
            of_units = [0] * bool(joined) + [sizes[number] if sizes else 0 for number in waiting]
            shared = _by_shared_key(units, factors, of_units, must=bool(joined))
            chosen = shared[: 2 if binary else len(units)]
        keys = [
            [members[unit] for unit in chosen]
            for members in _classes(units, factors)
            if members.keys() >= set(chosen)
        ]
        of_unit = [tuple(key[index] for key in keys) for index in range(len(chosen))]
        sources = [waiting[unit - 1 if joined else unit] for unit in chosen if not (joined and unit == 0)]
        source_keys = of_unit[1:] if joined else of_unit
        groups.append(Group(tuple(sources), tuple(source_keys), of_unit[0] if joined else None))
        joined += sources
        waiting = [number for number in waiting if number not in sources]
    return groups


def shared_keys(columns: Sequence[frozenset[str]], factors: Sequence[Expression]) -> list[frozenset[int]]:
    """The sets of sources with these columns that share a key."""
    return list(dict.fromkeys(frozenset(members) for members in _classes(columns, factors)))


def keys_by_equality(
    columns: Sequence[frozenset[str]], factors: Sequence[Expression]
) -> tuple[tuple[Expression, ...], ...]:
    """The keys of two sources with these columns, one for each equality of them."""
    keys = [dict(ends) for factor in factors if (ends := _ends(columns, factor)) is not None]
    return tuple(tuple(key[source] for key in keys) for source in range(len(columns)))


def _by_shared_key(
    units: Sequence[frozenset[str]], factors: Sequence[Expression], sizes: Sequence[int], *, must: bool
) -> list[int]:
    """The most units that share one key, of equally many the smallest, and of these the first; the first two where none do.

    `must`: with the first.
    """
    candidates = [sorted(members) for members in _classes(units, factors) if not must or 0 in members] or [
        [0, 1]
    ]
    return min(candidates, key=lambda units: (-len(units), sum(sizes[unit] for unit in units), units))


def _classes(units: Sequence[frozenset[str]], factors: Sequence[Expression]) -> list[dict[int, Expression]]:
    """Sets of expressions that equalities make equal, at most one of each unit, by unit; in the order of the conditions."""
    classes: list[dict[tuple[int, Expression], None]] = []
    for factor in factors:
        ends = _ends(units, factor)
        if ends is None:
            continue
        touched = [known for known in classes if ends[0] in known or ends[1] in known]
        merged = {node: None for known in (*touched, dict.fromkeys(ends)) for node in known}
        classes = [known for known in classes if known not in touched]
        classes.append(merged)
    return [_first_of_each(known) for known in classes]


def _first_of_each(nodes: dict[tuple[int, Expression], None]) -> dict[int, Expression]:
    members: dict[int, Expression] = {}
    for unit, expression in nodes:
        members.setdefault(unit, expression)
    return members


def _ends(
    units: Sequence[frozenset[str]], factor: Expression
) -> tuple[tuple[int, Expression], tuple[int, Expression]] | None:
    """Both sides of an equality of two units, each with its unit."""
    if not (isinstance(factor, Call) and factor.function == "="):
        return None
    one, other = ((_unit_of(units, side), side) for side in factor.arguments)
    if one[0] is None or other[0] is None or one[0] == other[0]:
        return None
    return (one[0], one[1]), (other[0], other[1])


def _unit_of(units: Sequence[frozenset[str]], expression: Expression) -> int | None:
    read = columns_of(expression)
    return next((unit for unit, columns in enumerate(units) if read and read <= columns), None)


def equalities(keys: Sequence[Sequence[Expression]], factors: Sequence[Expression]) -> Iterator[Expression]:
    """The conditions that equal keys of the sides imply."""
    sets = [set(key) for key in zip(*keys, strict=True)]
    for factor in factors:
        if (
            isinstance(factor, Call)
            and factor.function == "="
            and any(set(factor.arguments) <= key for key in sets)
        ):
            yield factor
