"""Producers expire in order of their last batches, each at its own instant, and without reading those that are retained."""

from __future__ import annotations

from collections.abc import Iterator

from hypothesis import given
from hypothesis import strategies as st

from headrace.connectors.records.ingest_record import WHOLE, IngestRecord
from headrace.connectors.records.producers import COMPARED, Producer, Producers


def batch(producer: str, sequence: int, at: int) -> IngestRecord:
    return IngestRecord(
        "s", "", "arrow", 0, WHOLE, 0, 0, at, producer=producer, sequence=sequence, digest=f"{sequence}"
    )


class Counted(dict[str, Producer]):
    """Counts the producers that were read one after the other."""

    reads = 0

    def items(self) -> Iterator[tuple[str, Producer]]:  # type: ignore[override]
        for item in super().items():
            self.reads += 1
            yield item

    def values(self) -> Iterator[Producer]:  # type: ignore[override]
        for value in super().values():
            self.reads += 1
            yield value


def test_producers_that_expire_one_by_one_are_found_without_the_others() -> None:
    """As where every call is a producer of its own: with each push the oldest of them expires."""
    producers = Producers(Counted())
    for number in range(1000):
        producers.add(batch(f"call-{number}", 0, number))
    by_name = producers.by_name
    for number in range(500):
        producers.forget_before(number)
        producers.add(batch(f"call-{1000 + number}", 0, 1000 + number))
    assert list(producers.by_name) == [f"call-{number}" for number in range(499, 1500)]
    assert by_name is producers.by_name
    assert isinstance(by_name, Counted)
    assert by_name.reads == 0


@given(
    st.lists(
        st.tuples(st.sampled_from("abcd"), st.integers(0, 5), st.integers(0, 50), st.integers(0, 60)),
        max_size=40,
    ),
    st.integers(0, 40),
)
def test_each_is_retained_after_its_last_batch_also_if_the_clock_is_set_back(
    calls: list[tuple[str, int, int, int]], reopened: int
) -> None:
    producers, retained = Producers(), dict[str, Producer]()
    for number, (name, sequence, at, horizon) in enumerate(calls):
        if number == reopened:
            producers = Producers.from_json(producers.as_json())
        producers.add(batch(name, sequence, at))
        retained.setdefault(name, Producer(at)).add(sequence, f"{sequence}", at)
        producers.forget_before(horizon)
        retained = {name: producer for name, producer in retained.items() if producer.at >= horizon}
        assert producers.by_name == retained
        assert producers.as_json() == Producers(retained).as_json()


def test_what_a_summary_has_of_producers_is_not_changed_by_later_batches() -> None:
    producers = Producers()
    for sequence in range(COMPARED + 2):
        producers.add(batch("one", sequence, sequence))
    producers.add(batch("other", 7, 3))
    stored = producers.as_json()
    producers.add(batch("one", 500, 500))
    producers.add(batch("third", 0, 501))
    assert stored == Producers.from_json(stored).as_json()
    assert [Producer.batches_of(values) for values in stored.values()] == [COMPARED, 1]
    again = Producers.from_json(stored)
    assert (again.last("one"), again.last("other"), again.last("third")) == (COMPARED + 1, 7, None)
