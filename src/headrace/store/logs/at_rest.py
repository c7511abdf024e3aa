"""Manifest entries that rarely change ("at rest"), and their encoding: streams and operators whose progress is computed
from that of others, the lists of internal streams, and lists of failures.

They are in a file that many manifests name, the *base*, so that ten thousand queries that wait add nothing to a manifest.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field
from typing import Any, Final

from headrace.dataclass import dataclass
from headrace.store.files.envelope import json_text, seal_text, unseal
from headrace.store.logs.committed import (
    CommittedStream,
    OperatorProgress,
    operators_from_json,
    operators_to_json,
)
from headrace.store.logs.layers import Layers
from headrace.store.logs.radix_list import RadixList

_KIND: Final = "records at rest"
_VERSION: Final = 1


def _follows(_name: str, record: CommittedStream | OperatorProgress) -> bool:
    return bool(record.follows)


def _is_internal(name: str, _listed: RadixList) -> bool:
    """Whether a list is of an internal stream, whose name begins with @, or of one query."""
    return ":@" in name or name.startswith("failures:")


NO_STREAMS: Final[Layers[CommittedStream]] = Layers(_follows)
NO_OPERATORS: Final[Layers[OperatorProgress]] = Layers(_follows)
NO_LISTS: Final[Layers[RadixList]] = Layers(_is_internal)


def lists_text(lists: Mapping[str, RadixList]) -> str:
    """The JSON of lists by name."""
    return f"{{{','.join(f'{json_text(_KIND, name)}:{listed.json()}' for name, listed in lists.items())}}}"


@dataclass(frozen=True, slots=True)
class Records:
    """Records of streams, operators and lists by name."""

    streams: Mapping[str, CommittedStream] = field(default_factory=dict)
    operators: Mapping[str, OperatorProgress] = field(default_factory=dict)
    lists: Mapping[str, RadixList] = field(default_factory=dict)

    @staticmethod
    def from_json(value: Mapping[str, Any]) -> Records:
        """The inverse of `text`, from its values."""
        return Records(
            {name: CommittedStream.from_json(stream) for name, stream in value["streams"].items()},
            operators_from_json(value["operators"]),
            {name: RadixList.from_json(radix_list) for name, radix_list in value["lists"].items()},
        )

    def text(self) -> str:
        """The JSON values as text: a manifest has it as one value, so records that did not change are not encoded again."""
        streams = {name: stream.as_json() for name, stream in self.streams.items()}
        operators = json_text(_KIND, operators_to_json(self.operators))
        return f'{{"streams":{json_text(_KIND, streams)},"operators":{operators},"lists":{lists_text(self.lists)}}}'

    def encode(self) -> bytes:
        """The bytes of a base's file."""
        return seal_text(_KIND, _VERSION, self.text())

    @staticmethod
    def decode(data: bytes, name: str) -> Records:
        """The inverse; `CorruptStore` names the file `name`."""
        return Records.from_json(unseal(_KIND, _VERSION, data, name))
