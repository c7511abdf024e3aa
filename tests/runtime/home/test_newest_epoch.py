"""A read that finds its files collected is repeated at the next epoch, where there is one."""

from __future__ import annotations

from pathlib import Path

import pytest

from headrace.runtime.hub.opening import open_hub
from headrace.runtime.invoke.home_reader import Reader
from headrace.store.files.filesystem import MissingFile
from headrace.store.logs.manifest import Manifest


def test_a_read_is_repeated_when_an_epoch_was_published_meanwhile_and_only_then(tmp_path: Path) -> None:
    with open_hub(tmp_path / "home", local=True) as hub:
        hub.execute("CREATE STREAM s (v BIGINT) USING push")
        hub.push("s", [{"v": 1}])
        hub.run_once()
        home = Reader.at(hub.path).home
        read: list[int] = []

        def epoch_of(manifest: Manifest) -> int:
            read.append(manifest.epoch)
            if len(read) == 1:
                hub.push("s", [{"v": 2}])
                hub.run_once()
                raise MissingFile("collected meanwhile")
            return manifest.epoch

        epoch = home.at_newest_epoch(epoch_of)
        assert read[0] < epoch == read[1] == home.latest().epoch

        def lost(manifest: Manifest) -> None:
            raise MissingFile(f"lost in epoch {manifest.epoch}")

        with pytest.raises(MissingFile, match="lost"):
            home.at_newest_epoch(lost)
