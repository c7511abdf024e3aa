"""A folder of JSON files numbered 0, 1, 2, …: each number is published once, by exactly one writer; a fast search for
the last, and deletion from the lowest upwards.

Law: the numbers of a folder are always one unbroken range, but for files below a gap that a power cut has brought back or a
superseded writer has left. They are published one after the other, and dropped from the lowest upwards. So a file that is absent above a present one was never published, and the last is found by galloping,
in a number of look-ups logarithmic in how many are new.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from headrace.errors import AlreadyPublished, StoreError
from headrace.store.files.filesystem import Store

KEPT: Final = 2
"""The fewest files that `drop_below` leaves: a late writer must find that the number before its own is deleted."""


class NumberedFiles:
    """Immutable files `folder/000000000000.json` and on."""

    def __init__(self, store: Store, folder: str) -> None:
        self._store, self._folder = store, folder

    def name(self, number: int) -> str:
        """The file's name in the home."""
        return f"{self._folder}/{number:012d}.json"

    def exists(self, number: int) -> bool:
        """Whether that number is published and not dropped."""
        return self._store.exists(self.name(number))

    def range(self) -> range:
        """The unbroken range that ends with the greatest number, by listing the folder.

        A file below a gap is not in it: a stray file of a writer that was superseded.
        """
        numbers = self.listed()
        first = len(numbers) - 1
        while first > 0 and numbers[first - 1] == numbers[first] - 1:
            first -= 1
        return range(numbers[first], numbers[-1] + 1) if numbers else range(0)

    def listed(self) -> list[int]:
        """Every number that has a file, in order; also those that should have none."""
        prefix = f"{self._folder}/"
        stems = [file.name[len(prefix) : -len(".json")] for file in self._store.list(prefix)]
        return sorted(int(stem) for stem in stems if stem.isascii() and stem.isdigit())

    def last(self, previous: int | None = None) -> int | None:
        """The greatest published number; None when there is none.

        `previous` is a number that was the greatest once: later ones are found without listing.
        """
        if previous is not None:
            low = self._gallop(previous)
            # If it is still there then nothing above it can have been dropped during the search.
            if self.exists(low):
                return low
        numbers = self.range()
        return numbers[-1] if numbers else None

    def _gallop(self, low: int) -> int:
        step = 1
        while self.exists(low + step):
            low, step = low + step, step * 2
        high = low + step
        while high - low > 1:
            middle = (low + high) // 2
            if self.exists(middle):
                low = middle
            else:
                high = middle
        return low

    def publish(self, number: int, data: bytes, after: Iterable[str] = ()) -> None:
        """Publish the next number, durably, and the files `after` before it.

        `AlreadyPublished` when another writer has been there.
        """
        name = self.name(number)
        if not self._continues(number):
            raise self._superseded(number)
        if not self._store.put_if_absent(name, data, after=after):
            raise self._superseded(number)
        if not self._continues(number, published=True):
            # This writer slept so long that its number, free again, had been published and dropped by another.
            if not self.exists(number + 1):
                self._store.delete(name)
            raise self._superseded(number)

    def _continues(self, number: int, *, published: bool = False) -> bool:
        """Whether the number before exists; for number 0 whether no other than itself and 1 ever existed."""
        if number:
            return self.exists(number - 1)
        numbers = self.range()
        return not numbers or (published and (numbers == range(1) or self.exists(1)))

    def drop_below(self, number: int) -> tuple[str, ...]:
        """Delete the files below a number, lowest first, durably; the deleted names.

        A power cut in the middle may bring some of them back, below a gap: they are not in the range.
        """
        listed = self.listed()
        stop = listed[-1] + 1 - KEPT if listed else 0
        names = [self.name(below) for below in listed if below < min(number, stop)]
        return tuple(name for name in names if self._store.delete(name, durable=name == names[-1]))

    def _superseded(self, number: int) -> StoreError:
        numbers = self.range()
        if number > numbers.stop:
            return StoreError(
                f"cannot publish '{self.name(number)}': the next of {self._folder}/ is {numbers.stop}; "
                "a number must not be left out"
            )
        return AlreadyPublished(
            f"the number of '{self.name(number)}' has been published by another writer of the home {self._store.root}; "
            f"the last of {self._folder}/ is {numbers.stop - 1}. This writer must stop; start it again to take over"
        )
