"""A plan as a list of operators, each over sources and operators before it; and what it emitted and held, step by step."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from benchmarks.baselines.plans.flows import Flow, Rows
from benchmarks.baselines.plans.out_of_order import Operator


@dataclass(frozen=True, slots=True)
class Node:
    """An operator, and the names of the edges that it reads."""

    name: str
    operator: Operator
    reads: tuple[str, ...]


@dataclass(slots=True)
class Delay:
    """An operator that needs `steps` steps for each row: what is in it is held in any plan."""

    steps: int
    inside: list[Flow] = field(default_factory=list)

    @property
    def held(self) -> int:
        return sum(len(flow.rows) for flow in self.inside)

    def take(self, *inputs: Flow) -> Flow:
        self.inside.append(inputs[0])
        return self.inside.pop(0) if len(self.inside) > self.steps else Flow()


@dataclass(frozen=True, slots=True)
class Ran:
    """By edge, and by operator: its flows, and what it held after each step."""

    edges: dict[str, list[Flow]]
    held: dict[str, list[int]]

    def rows(self, edge: str) -> Rows:
        """All rows of an edge."""
        return Rows.of([flow.rows for flow in self.edges[edge]])

    def held_at_most(self, *operators: str) -> int:
        """The most that these operators held together after a step; without names, all."""
        return max(map(sum, zip(*(self.held[name] for name in operators or self.held), strict=True)))


def run(nodes: Sequence[Node], sources: dict[str, Sequence[Flow]]) -> Ran:
    """Feed the sources step by step; all have the same number of steps."""
    ran = Ran({name: list(flows) for name, flows in sources.items()}, {})
    for node in nodes:
        ran.edges[node.name], ran.held[node.name] = [], []
    for step in range(len(next(iter(sources.values())))):
        for node in nodes:
            ran.edges[node.name].append(node.operator.take(*(ran.edges[name][step] for name in node.reads)))
            ran.held[node.name].append(node.operator.held)
    return ran
