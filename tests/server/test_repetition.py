"""A request with an idempotency key is answered once; requests with other keys do not wait for it."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor

import pytest

from headrace.errors import UserError
from headrace.server.problems import Refused
from headrace.server.repetition import Repetitions


def test_a_repetition_waits_for_the_first_and_other_keys_do_not() -> None:
    repetitions, entered, release = Repetitions(), threading.Event(), threading.Event()
    made: list[str] = []

    def slow() -> str:
        made.append("slow")
        entered.set()
        release.wait()
        return "first"

    with ThreadPoolExecutor(2) as threads:
        first = threads.submit(repetitions.answer, "a", "text", slow)
        entered.wait()
        again = threads.submit(repetitions.answer, "a", "text", slow)
        assert repetitions.answer("b", "text", lambda: "other") == "other"
        assert not first.done()
        release.set()
        assert (first.result(), again.result()) == ("first", "first")
    assert made == ["slow"]
    with pytest.raises(Refused, match="was used for another request"):
        repetitions.answer("a", "another text", slow)


def test_an_error_is_not_remembered() -> None:
    repetitions = Repetitions()

    def fail() -> str:
        raise UserError("not now")

    with pytest.raises(UserError, match="not now"):
        repetitions.answer("a", "text", fail)
    assert repetitions.answer("a", "text", lambda: "later") == "later"
    assert repetitions.answer("a", "text", fail) == "later"
