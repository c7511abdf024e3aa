"""A request with an idempotency key is answered once; requests with other keys do not wait for it."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor

import pytest

from headrace.errors import UserError
from headrace.server import repetition
from headrace.server.problems import Refused
from headrace.server.repetition import LONGEST_KEY, Repetitions


def test_a_repetition_waits_for_the_first_and_other_keys_do_not() -> None:
    repetitions, entered, release = Repetitions(), threading.Event(), threading.Event()
    made: list[str] = []

    def slow() -> str:
        made.append("slow")
        entered.set()
        release.wait()
        return "first"

    with ThreadPoolExecutor(2) as threads:
        first = threads.submit(repetitions.answer, ("ana", "a"), "text", slow)
        entered.wait()
        again = threads.submit(repetitions.answer, ("ana", "a"), "text", slow)
        assert repetitions.answer(("ana", "b"), "text", lambda: "other") == "other"
        assert not first.done()
        release.set()
        assert (first.result(), again.result()) == ("first", "first")
    assert made == ["slow"]
    with pytest.raises(Refused, match="was used for another request"):
        repetitions.answer(("ana", "a"), "another text", slow)


def test_an_error_is_not_remembered() -> None:
    repetitions = Repetitions()

    def fail() -> str:
        raise UserError("not now")

    with pytest.raises(UserError, match="not now"):
        repetitions.answer(("ana", "a"), "text", fail)
    assert repetitions.answer(("ana", "a"), "text", lambda: "later") == "later"
    assert repetitions.answer(("ana", "a"), "text", fail) == "later"


def test_a_key_is_checked_and_shown_without_the_token_of_its_sender() -> None:
    repetitions = Repetitions()
    longest = "k" * LONGEST_KEY
    assert repetitions.answer(("a long token", longest), "text", lambda: "first") == "first"
    for key in ("", longest + "k"):
        with pytest.raises(Refused, match="1 to 200 characters"):
            repetitions.answer(("a long token", key), "text", lambda: "never")
    with pytest.raises(Refused, match=f"the Idempotency-Key '{longest}' was used"):
        repetitions.answer(("a long token", longest), "another text", lambda: "never")


def test_keys_of_two_senders_are_two_whatever_their_tokens_end_with() -> None:
    repetitions = Repetitions()
    assert repetitions.answer(("ana", "1k"), "text", lambda: "of ana") == "of ana"
    assert repetitions.answer(("ana1", "k"), "another text", lambda: "of ana1") == "of ana1"


def remembered(repetitions: Repetitions, keys: list[str]) -> list[str]:
    """Those of the keys whose request is not answered again."""
    again = [key for key in keys if repetitions.answer(("ana", key), "text", lambda: "again") == "again"]
    return [key for key in keys if key not in again]


def test_answers_are_remembered_up_to_a_number_of_bytes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(repetition, "_MOST_BYTES", 10_000, raising=False)
    repetitions = Repetitions()
    for key in "abcd":
        repetitions.answer(("ana", key), "text", lambda: 3000 * "x")
    repetitions.answer(("ana", "b"), "text", lambda: "again")  # asked for after c and d
    repetitions.answer(("ana", "e"), "text", lambda: 3000 * "x")
    assert remembered(repetitions, ["d", "b", "e"]) == ["d", "b", "e"]
    assert remembered(repetitions, ["a", "c"]) == []


def test_the_newest_answer_is_remembered_whatever_its_size_and_those_under_way_are(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(repetition, "_MOST_BYTES", 10_000, raising=False)
    repetitions = Repetitions()

    def slow() -> str:
        for key in "ab":
            repetitions.answer(("ana", key), "text", lambda: 20_000 * "x")
        return "slow"

    assert repetitions.answer(("ana", "slow"), "text", slow) == "slow"
    assert remembered(repetitions, ["slow"]) == ["slow"]
    repetitions.answer(("ana", "c"), "text", lambda: 20_000 * "x")
    assert remembered(repetitions, ["c"]) == ["c"]
    assert remembered(repetitions, ["a", "b", "slow"]) == []


def test_so_many_answers_are_remembered(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(repetition, "_KEPT", 3)
    repetitions = Repetitions()
    for key in "abcde":
        repetitions.answer(("ana", key), "text", lambda: "first")
    assert remembered(repetitions, ["c", "d", "e"]) == ["c", "d", "e"]
    assert remembered(repetitions, ["a"]) == []
