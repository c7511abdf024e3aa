"""A immutable_mapping is a dict whose changed copies are cheap: the same names, values and order, and the old ones stay as they are."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.catalog import immutable_mapping
from headrace.catalog.immutable_mapping import ImmutableMapping

CHANGES = st.lists(
    st.lists(st.tuples(st.sampled_from("abcdefgh"), st.none() | st.integers(0, 9)), max_size=6), max_size=12
)


@given(CHANGES, st.sets(st.integers(0, 11)))
def test_whatever_comes_and_goes_it_is_a_dict(
    rounds: list[list[tuple[str, int | None]]], looked: set[int]
) -> None:
    model: dict[str, int] = {}
    mapping: ImmutableMapping[int] = ImmutableMapping()
    earlier: list[tuple[ImmutableMapping[int], list[tuple[str, int]]]] = []
    for number, changes in enumerate(rounds):
        edit = mapping.edit()
        for name, value in changes:
            if value is not None:
                edit.put(name, value)
                model[name] = value
            elif name in model:
                assert edit.remove(name) == model.pop(name)
            else:
                with pytest.raises(KeyError):
                    edit.remove(name)
            assert edit.get(name) == model.get(name)
        assert list(edit) == list(model)
        assert len(edit) == len(model)
        mapping = edit.done()
        assert len(mapping) == len(model)
        assert all(mapping.get(name) == model.get(name) for name in "abcdefgh")
        assert all((name in mapping) == (name in model) for name in "abcdefgh")
        if number in looked:  # looking makes it one: what follows starts from there
            assert list(mapping.items()) == list(model.items())
        earlier.append((mapping, list(model.items())))
    assert all(list(version.items()) == items for version, items in earlier)
    assert mapping == model


def test_changes_one_at_a_time_cost_the_root_of_what_is_there(monkeypatch: pytest.MonkeyPatch) -> None:
    copied: list[int] = []
    together = immutable_mapping._together

    def counting(whole: dict, *others: object) -> dict:
        copied.append(len(whole))
        return together(whole, *others)  # type: ignore[arg-type]

    monkeypatch.setattr(immutable_mapping, "_together", counting)
    mapping: ImmutableMapping[int] = ImmutableMapping({f"n{index}": index for index in range(10_000)})
    for index in range(1000):
        edit = mapping.edit()
        edit.put(f"n{index}", -1)
        edit.remove(f"n{9999 - index}")
        edit.put(f"m{index}", index)
        mapping = edit.done()
        assert mapping[f"n{index}"] == -1
        assert f"n{9999 - index}" not in mapping
        assert len(mapping) == 10_000
    assert len(copied) < 1000 * 3 / 90
