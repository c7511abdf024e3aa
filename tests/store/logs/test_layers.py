"""Layers: a mapping of which a manifest has only what differs from its base."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st

from headrace.store.files.filesystem import LocalStore
from headrace.store.logs.committed import CommittedStream, OperatorProgress
from headrace.store.logs.layers import Layers, needs_base
from headrace.store.logs.manifest import Manifest, ManifestLog
from headrace.store.logs.radix_list import ListFiles

names = st.sampled_from("abcde")
steps = st.lists(
    st.tuples(st.dictionaries(names, st.integers(-9, 9)), st.sets(names), st.booleans()), max_size=12
)


@given(steps)
def test_layers_are_the_mapping_that_all_changes_make(
    steps: list[tuple[dict[str, int], set[str], bool]],
) -> None:
    """Records of at least 0 are at rest; `True`: a new base is made before the change."""
    layers, plain = Layers[int](lambda _, value: value >= 0), dict[str, int]()
    for records, dropped, makes_base in steps:
        if makes_base:
            layers = layers.over(layers.at_rest())
            assert layers.changes == 0
        layers = layers.changed(records, dropped)
        plain = {name: value for name, value in plain.items() if name not in dropped} | records
        assert dict(layers) == plain
        assert len(layers) == len(plain)
        assert {name: layers.get(name) for name in "abcde"} == {name: plain.get(name) for name in "abcde"}
        assert {name for name in "abcde" if name in layers} == plain.keys()
        assert dict(layers.moving) == {name: value for name, value in plain.items() if value < 0}


def waiting(count: int) -> Manifest:
    """A manifest of a source, and so many operators that follow it."""
    manifest = Manifest(epoch=0, incarnation=1)
    following = {f"q{number}": OperatorProgress(follows="s", since=number) for number in range(count)}
    return replace(
        manifest,
        streams=manifest.streams.changed({"s": CommittedStream(punctuation=7)}),
        operators=manifest.operators.changed({**following, "own": OperatorProgress(5, 1)}),
    )


def test_records_at_rest_are_in_a_file_of_their_own_and_come_back_with_it(tmp_path: Path) -> None:
    store = LocalStore(tmp_path)
    log, files = ManifestLog(store), ListFiles(store)
    manifest = waiting(1000).with_base(files.write)
    store.sync(files.unsynced)
    log.publish(manifest)
    later = replace(
        manifest,
        epoch=1,
        operators=manifest.operators.changed({"q3": OperatorProgress(2, 1)}, ["q4"]),
    )
    log.publish(later)
    latest = ManifestLog(store).latest()
    assert latest is not None
    assert dict(latest.operators) == dict(later.operators)
    assert "q4" not in latest.operators
    assert (latest.operator("q3").emitted_to, latest.operator("q5").emitted_to) == (2, 7)
    assert latest.operator("q5").since == 5


def test_a_manifest_does_not_grow_with_what_is_at_rest() -> None:
    sizes = [len(waiting(count).with_base(lambda _: "lists/base.json").encode()) for count in (1000, 10_000)]
    assert sizes[1] <= sizes[0] + 2


def test_a_new_base_is_made_when_changes_are_many() -> None:
    layers = Layers[int](lambda *_: True).changed({f"q{number}": 1 for number in range(10_000)})
    assert needs_base([layers])
    layers = layers.over(layers.at_rest())
    assert not needs_base([layers.changed({f"q{number}": 2 for number in range(190)})])
    assert needs_base([layers.changed({f"q{number}": 2 for number in range(210)})])


def test_progress_follows_through_levels_and_unions() -> None:
    manifest = Manifest(epoch=0, incarnation=1)
    manifest = replace(
        manifest,
        streams=manifest.streams.changed(
            {
                "s": CommittedStream(punctuation=70, greatest=75, taken=4),
                "t": CommittedStream(punctuation=50, greatest=90, taken=6),
                "u": CommittedStream(inputs=("s", "t"), now_of=("s", "t"), until=3),
                "@q1": CommittedStream(producer="q1", behind=1, now_of=("u",)),
            }
        ),
        operators=manifest.operators.changed(
            {"q1": OperatorProgress(follows="u"), "q2": OperatorProgress(follows="@q1")}
        ),
    )
    union = manifest.stream("u")
    assert (union.punctuation, union.greatest, union.until) == (50, 90, 7)
    assert manifest.operator("q1").replayed == 7
    assert (manifest.stream("@q1").punctuation, manifest.stream("@q1").greatest) == (49, 90)
    assert manifest.operator("q2").emitted_to == 49
