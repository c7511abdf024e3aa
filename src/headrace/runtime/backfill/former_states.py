"""State that an earlier version of Headrace stored under other names, under those of this version.

The name of a family is a hash of what its queries have in common, and versions differ in what that is.
The first driver of this version that opens a home writes such runs again, before its first epoch.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING

import pyarrow as pa

from headrace.operators.families.family import state_name
from headrace.operators.families.harvest import gathered
from headrace.runtime.home import file_names
from headrace.runtime.home.run_cache import open_run
from headrace.runtime.messages.epoch_plan import EpochPlan
from headrace.store.files.container import parts
from headrace.store.logs.manifest import Manifest

if TYPE_CHECKING:
    from headrace.store.files.filesystem import Store


def under_current_names(store: Store, manifest: Manifest, plan: EpochPlan) -> Manifest:
    """The manifest with its state runs as this version names them; the new files are durable."""
    current = {
        former: state_name(operator)
        for operator in plan.operators.values()
        if (former := operator.former_state) is not None
    }
    state = []
    for run in manifest.state:
        sections = open_run(store, run.name)
        if any(name.partition("/")[0] in current for name in sections):
            name = file_names.state_run(manifest.epoch, 0)
            size = store.write_once(name, parts(_renamed(sections, current)))
            state.append(replace(run, name=name, bytes=size))
        else:
            state.append(run)
    return replace(manifest, state=tuple(state))


def _renamed(sections: Mapping[str, pa.Table], current: Mapping[str, str]) -> dict[str, pa.Table]:
    """Sections by `state/section`; those of several former states may become one."""
    tables: dict[str, list[pa.Table]] = {}
    for name, table in sections.items():
        state, _, section = name.partition("/")
        tables.setdefault(f"{current.get(state, state)}/{section}", []).append(table)
    return {name: gathered(of_states) for name, of_states in tables.items()}
