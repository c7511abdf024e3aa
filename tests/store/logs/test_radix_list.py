"""The list against Python's own, through every mixture of appending, dropping and saving."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.errors import CorruptStore, OtherVersion
from headrace.store.files.envelope import seal, unseal
from headrace.store.files.filesystem import LocalStore
from headrace.store.logs import radix_list
from headrace.store.logs.radix_list import (
    FANOUT,
    ListFiles,
    RadixList,
    covered,
    flat_segment,
    leaf_entries,
)
from tests.examples import examples


class Segments:
    def __init__(self) -> None:
        self.files: dict[str, bytes] = {}

    def write(self, data: bytes) -> str:
        name = f"segment-{len(self.files)}"
        self.files[name] = data
        return name

    def read(self, name: str) -> bytes:
        return self.files[name]


steps = st.lists(
    st.tuples(st.just("append"), st.sampled_from([0, 1, 3, FANOUT - 1, FANOUT, 200, FANOUT * FANOUT]))
    | st.tuples(st.just("drop"), st.floats(0, 1)),
    max_size=12,
)


@examples(60)
@given(steps=steps, start=st.floats(0, 1))
def test_the_list_is_python_s_own_list(steps: list[tuple[str, float]], start: float) -> None:
    segments, value, model, first = Segments(), RadixList(), [], 0
    for what, amount in steps:
        if what == "append":
            new = [{"n": len(model) + position} for position in range(int(amount))]
            model += new
            value = value.append(new, segments.write)
        else:
            first = max(first, int(amount * len(model)))
            value = value.drop_before(first)
        value = RadixList.from_json(json.loads(value.json()))
        assert len(value) == len(model) - first
        assert len(value.tail) < FANOUT
        assert all(len(level) < FANOUT for level in value.levels)
    expected = list(enumerate(model))[first:]
    assert list(value.iterate(segments.read)) == expected
    assert list(value.iterate(segments.read, reverse=True)) == expected[::-1]
    low = max(first, int(start * len(model)))
    assert list(value.iterate(segments.read, low)) == expected[low - first :]
    assert list(value.iterate(segments.read, low, reverse=True)) == expected[low - first :][::-1]
    # What is not among its segments is not needed.
    live = {name: segments.files[name] for name in value.segments(segments.read)}
    assert list(value.iterate(live.__getitem__)) == expected
    leaves = [
        (index, entry)
        for at, name in value.leaves(live.__getitem__)
        for index, entry in enumerate(leaf_entries(live.__getitem__, name), at)
    ]
    tail = list(enumerate(value.tail, value.length - len(value.tail)))
    assert [pair for pair in leaves + tail if pair[0] >= first] == expected


@examples(60)
@given(
    length=st.integers(0, 90),
    ranges=st.lists(st.tuples(st.integers(0, 2), st.integers(0, 20)), max_size=6),
    drops=st.lists(st.integers(0, 90), min_size=6, max_size=6),
    start=st.integers(0, 90),
)
def test_other_entries_in_place_of_a_sealed_file_are_at_the_same_indexes(
    length: int, ranges: list[tuple[int, int]], drops: list[int], start: int
) -> None:
    """Lists of four entries a file; what is replaced is exactly what a value names and a later one does not."""
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(radix_list, "FANOUT", 4)
        segments, model = Segments(), [f"old {n}" for n in range(length)]
        value = RadixList().append(model, segments.write)
        for (height, number), drop in zip(ranges, drops, strict=False):
            first, before = number * covered(height), value
            value = value.drop_before(min(drop, 2 * number))
            sealed = value.sealed(height, first, segments.read)
            name = value.segment_at(height, first, segments.read)
            assert (sealed.name if sealed else None) == name
            if sealed is None:
                continue
            new = [f"new {first + n} at {height}" for n in range(covered(height))]
            known = [(n, entry) for n, entry in enumerate(sealed.entries, first) if n >= value.start]
            assert known == [(n, model[n]) for n in range(max(first, value.start), first + covered(height))]
            segment = segments.write(flat_segment(height, new))
            value = value.with_segment(height, first, segment, segments.write, segments.read)
            model[first : first + covered(height)] = new
            value = value.append(["later"], segments.write)
            model.append("later")
            names, later = (set(one.segments(segments.read)) for one in (before, value))
            replaced = before.replacements(value, segments.read)
            gone = set(before.segments_before(segments.read, value.start))
            assert names - later == (set(replaced.names) | gone) & names
            assert {n for n, _ in replaced.before} >= {n for n, _ in known}
            assert all(entry == model[n] for n, entry in replaced.after if n >= value.start)
        expected = list(enumerate(model))[value.start :]
        value = RadixList.from_json(json.loads(value.json()))
        assert list(value.iterate(segments.read)) == expected
        assert list(value.iterate(segments.read, reverse=True)) == expected[::-1]
        assert list(value.iterate(segments.read, start)) == [pair for pair in expected if pair[0] >= start]
        live = {name: segments.files[name] for name in value.segments(segments.read)}
        leaves = [
            pair
            for at, name in value.leaves(live.__getitem__)
            for pair in enumerate(leaf_entries(live.__getitem__, name), at)
        ]
        tail = list(enumerate(value.tail, value.length - len(value.tail)))
        assert [pair for pair in leaves + tail if pair[0] >= value.start] == expected


def test_a_program_that_does_not_know_flat_segments_reports_that(tmp_path) -> None:
    with pytest.raises(OtherVersion, match="version 2, this program reads 1"):
        unseal("list segment", 1, flat_segment(0, range(FANOUT)), "lists/x.json")


def test_an_older_value_goes_on_describing_the_older_list() -> None:
    segments = Segments()
    old = RadixList().append(range(100), segments.write)
    new = old.append(range(100, 10_000), segments.write).drop_before(5000)
    assert [entry for _, entry in old.iterate(segments.read)] == list(range(100))
    assert [entry for _, entry in new.iterate(segments.read)] == list(range(5000, 10_000))


def test_what_a_manifest_carries_does_not_grow_with_the_list() -> None:
    segments, value, largest = Segments(), RadixList(), []
    for round_ in range(3):
        sizes = []
        for _ in range(FANOUT * 4):
            value = value.append(range(4 + 60 * round_), segments.write)
            sizes.append(len(value.json()))
        largest.append(max(sizes))
    assert value.length > 40_000
    assert largest[-1] < FANOUT * 3 * 24


def test_reading_the_end_opens_few_segments() -> None:
    segments = Segments()
    value = RadixList().append(range(50_000), segments.write)
    opened = []
    newest = next(
        value.iterate(lambda name: opened.append(name) or segments.read(name), 49_900, reverse=True)
    )
    assert newest == (49_999, 49_999)
    assert len(opened) <= 3


def test_a_segment_of_another_shape_is_reported_by_name() -> None:
    segments = Segments()
    value = RadixList().append(range(FANOUT), segments.write)
    segments.files["segment-0"] = seal("list segment", 1, {"height": 0, "of": [1]})
    with pytest.raises(
        CorruptStore, match="'segment-0' is damaged: expected 64 entries at height 0, found 1"
    ):
        list(value.iterate(segments.read))
    unnamed = RadixList(0, FANOUT, (), ((None,),))
    with pytest.raises(CorruptStore, match="entries 0 to 63 is not named"):
        list(unnamed.iterate(segments.read))


def test_segments_lie_in_the_home_and_wait_for_one_sync(tmp_path) -> None:
    store = LocalStore(tmp_path)
    files = ListFiles(store)
    value = RadixList().append(range(130), files.write)
    assert len(files.unsynced) == 2
    store.sync(files.unsynced)
    assert [entry for _, entry in value.iterate(files.read)] == list(range(130))
