"""The local executor: what it asks of the process it runs in."""

from __future__ import annotations

from pathlib import Path

import pytest
from threadpoolctl import threadpool_info, threadpool_limits

import headrace as hr
from headrace.runtime.epoch import executor


def _blas_threads() -> list[int]:
    return [pool["num_threads"] for pool in threadpool_info() if pool["user_api"] == "blas"]


@pytest.mark.parametrize("threads", [1, 2])
def test_matrix_products_of_tasks_have_one_thread(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, threads: int
) -> None:
    seen: list[list[int]] = []
    scan_blobs = executor.scan_blobs

    def noting(*arguments: object) -> object:
        seen.append(_blas_threads())
        return scan_blobs(*arguments)  # type: ignore[arg-type]

    monkeypatch.setattr(executor, "scan_blobs", noting)
    with threadpool_limits(limits=threads, user_api="blas"), hr.open(tmp_path / "home", local=True) as hub:
        hub.execute("CREATE STREAM s (k BIGINT, at TIMESTAMP) USING push TIMESTAMP BY at")
        hub.execute("CREATE QUERY q AS SELECT COUNT(*) AS n FROM s [RANGE 1 SECOND SLIDE 1 SECOND]")
        hub.push("s", [{"k": 1, "at": "2024-01-01T00:00:00Z"}])
        hub.run_once()
        assert _blas_threads() == [threads]
    assert seen
    assert all(in_task == [1] for in_task in seen)
