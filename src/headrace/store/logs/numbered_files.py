"""How do files numbered 0, 1, 2, … have exactly one writer each, and how is the last one found quickly?

Law: the files of a folder are always one unbroken range. Numbers are published one after the other, and dropped from
the lowest upwards. So a file's absence above one that is present means that it was never published, and the last is
found by galloping, in a number of look-ups logarithmic in how many are new.
"""

from __future__ import annotations

from typing import Final

from headrace.errors import AlreadyPublished, StoreError
from headrace.store.files.filesystem import Store

KEPT: Final = 2
"""The fewest files that `drop_below` leaves: a late writer must find that the one before its own is gone."""


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

        What lies below a gap is not of it: a stray file of a writer that was stopped while it found out.
        """
        numbers = self.listed()
        first = len(numbers) - 1
        while first > 0 and numbers[first - 1] == numbers[first] - 1:
            first -= 1
        return range(numbers[first], numbers[-1] + 1) if numbers else range(0)

    def listed(self) -> list[int]:
        """Every number there is a file of, in order; also what should not be there."""
        prefix = f"{self._folder}/"
        stems = [file.name[len(prefix) : -len(".json")] for file in self._store.list(prefix)]
        return sorted(int(stem) for stem in stems if stem.isascii() and stem.isdigit())

    def last(self, known: int | None = None) -> int | None:
        """The greatest published number; None when there is none.

        `known` is a number that was the greatest once: what came since is found without listing.
        """
        while True:
            if known is None or not self.exists(known):
                found = self.range()
                return found[-1] if found else None
            low = self._gallop(known)
            # If it is still there then nothing above it can have been dropped while we looked.
            if self.exists(low):
                return low

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

    def publish(self, number: int, data: bytes) -> None:
        """Publish the next number, durably. `AlreadyPublished` when another writer has been there."""
        name = self.name(number)
        if not self._continues(number):
            raise self._superseded(number)
        if not self._store.put_if_absent(name, data):
            raise self._superseded(number)
        if not self._continues(number, published=True):
            # This writer slept so long that its number, free again, had been published and dropped by another.
            if not self.exists(number + 1):
                self._store.delete(name)
            raise self._superseded(number)

    def _continues(self, number: int, *, published: bool = False) -> bool:
        """Whether the one before is there; for number 0 whether none was ever there but itself and 1."""
        if number:
            return self.exists(number - 1)
        found = self.range()
        return not found or (published and (found == range(1) or self.exists(1)))

    def drop_below(self, number: int) -> tuple[str, ...]:
        """Delete the files below a number, lowest first; the names that went.

        Each deletion is durable before the next, so that the range is unbroken also after a power cut.
        """
        stop = self.range().stop - KEPT
        names = [self.name(each) for each in self.listed() if each < min(number, stop)]
        return tuple(name for name in names if self._store.delete(name, durable=True))

    def _superseded(self, number: int) -> StoreError:
        found = self.range()
        if number > found.stop:
            return StoreError(
                f"cannot publish '{self.name(number)}': the next of {self._folder}/ is {found.stop}; "
                "a number must not be left out"
            )
        return AlreadyPublished(
            f"the number of '{self.name(number)}' has been published by another writer of the home {self._store.root}; "
            f"the last of {self._folder}/ is {found.stop - 1}. This writer must stop; start it again to take over"
        )
