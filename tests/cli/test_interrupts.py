"""Signals as flags: what is under way is finished, what has not begun is left behind."""

from __future__ import annotations

import os
import signal
import threading

import pytest

from headrace.runtime.interrupts import Interrupts


def test_a_signal_is_remembered_not_raised_and_handlers_are_put_back() -> None:
    before = signal.getsignal(signal.SIGTERM)
    with Interrupts() as stop:
        assert stop.proceed()
        os.kill(os.getpid(), signal.SIGTERM)
        assert stop.wait(10)
        assert (stop.stop, stop.exit_code) == (True, 143)
    assert signal.getsignal(signal.SIGTERM) is before


def test_a_start_that_takes_long_is_left_when_a_signal_comes() -> None:
    never = threading.Event()
    with Interrupts() as stop:
        threading.Timer(0.05, os.kill, (os.getpid(), signal.SIGINT)).start()
        assert stop.first(lambda: never.wait(60)) is None
        never.set()


def test_a_start_that_ends_first_gives_its_value_or_its_error() -> None:
    stop = Interrupts()
    assert stop.first(lambda: 7) == 7
    with pytest.raises(ZeroDivisionError):
        stop.first(lambda: 1 // 0)
