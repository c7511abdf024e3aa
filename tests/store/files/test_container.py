"""Containers give back the tables they were made of, share bytes with their file, and notice damage."""

from __future__ import annotations

import gc
import itertools
import json
import math
import struct
import zlib
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from headrace.errors import CorruptStore, StoreError
from headrace.store.files import container as container_module
from headrace.store.files import filesystem
from headrace.store.files.checksums import block_checksums
from headrace.store.files.container import PASSING, Adjacent, Container, pack, parts, streamed
from headrace.store.files.filesystem import LocalStore

TYPES = {
    pa.int64(): st.integers(-(2**63), 2**63 - 1),
    pa.float64(): st.floats(allow_nan=False),
    pa.string(): st.text(max_size=5),
    pa.binary(): st.binary(max_size=5),
    pa.bool_(): st.booleans(),
    pa.list_(pa.int32()): st.lists(st.integers(0, 9), max_size=3),
    pa.dictionary(pa.int32(), pa.string()): st.sampled_from(["a", "b"]),
    pa.struct([("x", pa.int8()), ("y", pa.dictionary(pa.int8(), pa.string()))]): st.just({"x": 1, "y": "q"}),
}


@st.composite
def tables(draw: st.DrawFn) -> pa.Table:
    kinds = draw(st.lists(st.sampled_from(list(TYPES)), min_size=1, max_size=4))
    chunks = []
    for _ in range(draw(st.integers(0, 3))):
        rows = draw(st.integers(0, 5))
        columns = [
            pa.array(draw(st.lists(st.none() | TYPES[kind], min_size=rows, max_size=rows)), kind)
            for kind in kinds
        ]
        chunks.append(pa.table(columns, [f"c{number}" for number in range(len(kinds))]))
    empty = pa.schema(
        [(f"c{number}", kind) for number, kind in enumerate(kinds)], {"about": "x"}
    ).empty_table()
    whole = pa.concat_tables([chunk.cast(empty.schema) for chunk in chunks]) if chunks else empty
    return whole.slice(draw(st.integers(0, 2)))


@given(st.dictionaries(st.text(max_size=8), tables(), max_size=5), st.booleans())
def test_what_is_packed_comes_back(given_tables: dict[str, pa.Table], checksums: bool) -> None:
    header = {"level": 3, "name": "é"}
    packed = pack(given_tables, header, checksums=checksums)
    container = Container.open(packed)
    container.verify()
    assert container.header == header
    assert list(container.sections()) == list(given_tables)
    for name, table in given_tables.items():
        unpacked = container.table(name)
        assert unpacked.equals(table, check_metadata=True)
        assert container.schema(name).equals(table.schema, check_metadata=True)
        assert container.sections()[name].rows == table.num_rows
    assert container.tables().keys() == given_tables.keys()


def test_a_nan_is_read_as_it_was() -> None:
    container = Container.open(pack({"a": pa.table({"x": [math.nan]})}))
    assert math.isnan(container.table("a")["x"][0].as_py())
    assert "a" in container
    assert "b" not in container


def test_tables_are_views_of_the_mapped_file(tmp_path) -> None:
    store = LocalStore(tmp_path)
    table = pa.table({"x": np.arange(100_000)})
    size = store.write_once("run", parts({"pad": pa.table({"s": ["odd"]}), "big": table}))
    buffer = store.map("run")
    assert buffer.size == size
    data = Container.open(buffer, "run").table("big")["x"].chunk(0).buffers()[1]
    assert buffer.address <= data.address < buffer.address + buffer.size
    assert data.address % 8 == 0


def test_many_small_chunks_become_one_and_equal_schemas_are_written_once() -> None:
    chunked = pa.concat_tables([pa.table({"x": [n]}) for n in range(50)])
    container = Container.open(pack({"a": chunked}))
    assert container.table("a")["x"].num_chunks == 1
    same = Container.open(pack({f"s{n}": pa.table({"x": [n]}) for n in range(100)}))
    assert len(same._index.schemas) == 1
    assert same.table("s7")["x"].to_pylist() == [7]


def test_a_container_cut_out_at_an_odd_place_is_read_aligned() -> None:
    table = pa.table({"x": np.arange(100)})
    body = pa.py_buffer(b"abc" + pack({"a": table})).slice(3)
    unpacked = Container.open(body).table("a")
    assert unpacked.equals(table)
    assert unpacked["x"].chunk(0).to_numpy().flags.aligned


def test_a_section_that_is_not_there_is_reported_with_those_that_are() -> None:
    with pytest.raises(StoreError, match="no section 'c' in received bytes; there is: a, b"):
        Container.open(pack({"a": pa.table({"x": [1]}), "b": pa.table({"x": [1]})})).table("c")


def test_a_header_that_is_no_json_is_refused() -> None:
    with pytest.raises(StoreError, match="must have JSON values"):
        pack({}, {"x": object()})


@given(st.data())
def test_no_damaged_byte_and_no_cut_goes_unnoticed(data: st.DataObject) -> None:
    tables = {"a": pa.table({"x": [1, 2, 3], "s": ["one", None, "three"]}), "b": pa.table({"y": [1.5]})}
    packed = pack(tables)
    if data.draw(st.booleans()):
        damaged = packed[: data.draw(st.integers(0, len(packed) - 1))]
    else:
        at = data.draw(st.integers(0, len(packed) - 1))
        changed = packed[at] ^ data.draw(st.integers(1, 255))
        damaged = packed[:at] + bytes([changed]) + packed[at + 1 :]
    try:
        container = Container.open(damaged, "the-file")
        container.verify()
    except StoreError as error:
        message = str(error)
    else:
        assert container.tables() == tables  # only padding was hit
        return
    assert "the-file" in message


def test_a_newer_format_asks_for_the_program_that_wrote_it() -> None:
    packed = bytearray(pack({}))
    packed[-12] = 9
    with pytest.raises(StoreError, match="format version 9, this program reads 1"):
        Container.open(bytes(packed))


def test_an_index_that_points_outside_is_reported() -> None:
    container = Container.open(pack({"a": pa.table({"x": [1]})}), "f")
    cut = Container(container._buffer.slice(0, 70), container._index, "f")
    with pytest.raises(CorruptStore, match=r"container 'f' is damaged: bytes .* outside"):
        cut.table("a")
    container._index.sections["a"][2] = 7
    with pytest.raises(CorruptStore, match="holds 1 rows where the index records 7"):
        container.table("a")


def test_small_sections_of_one_schema_rest_together_and_come_back_apart() -> None:
    small = {f"q{n}": pa.table({"x": list(range(n % 5)), "y": ["é"] * (n % 5)}) for n in range(40)}
    large = pa.table({"x": np.arange(100_000), "y": pa.array(["abc"] * 100_000)})
    given_tables = {**small, "large": large, "alone": pa.table({"z": [1.5]})}
    packed = pack(given_tables)
    held = Container.open(packed)
    assert len(packed) < len(pack({"large": large, "alone": given_tables["alone"]})) + 40 * 150
    assert held.sections().keys() == given_tables.keys()
    assert all(held.table(name).equals(table) for name, table in given_tables.items())
    assert {name: section.rows for name, section in held.sections().items()}["q39"] == 4
    held.verify()
    damaged = bytearray(packed)
    at = packed.index("é".encode() * 4)
    damaged[at : at + 2] = b"ab"
    with pytest.raises(CorruptStore, match="group 0"):
        Container.open(bytes(damaged)).verify()


def test_a_compressed_section_is_read_in_the_pieces_it_was_written_in():
    long = pa.table({"n": pa.array(range(100_000), pa.int64())})
    short = pa.table({"n": pa.array([1, 2], pa.int64())})
    words = pa.table({"w": pa.array(["a", "b", "a"]).dictionary_encode()})
    tables = {"long": long, "short": short, "words": words}
    container = Container.open(b"".join(parts(tables, compressed=True, piece=30_000)))
    assert [batch.num_rows for batch in container.batches("long")()] == [30_000, 30_000, 30_000, 10_000]
    assert all(
        pa.Table.from_batches(container.batches(name)()).equals(table) for name, table in tables.items()
    )
    assert container.table("long").equals(long)


def test_a_damaged_piece_is_reported_as_damage():
    long = pa.table({"w": [f"word {n}" for n in range(100_000)]})
    data = bytearray(b"".join(parts({"long": long}, compressed=True, piece=30_000)))
    data[len(data) // 2 - 64 : len(data) // 2 + 64] = bytes(128)
    with pytest.raises(CorruptStore):
        list(Container.open(bytes(data)).batches("long")())


def test_what_reads_a_section_does_not_hold_the_index_of_all_others():
    tables = {"long": pa.table({"n": pa.array(range(100_000), pa.int64())}), "short": pa.table({"n": [1]})}
    container = Container.open(b"".join(parts(tables, compressed=True, piece=30_000)), "of a history")
    readers = [container.batches(name) for name in tables]
    del container
    gc.collect()
    assert not [
        held for held in gc.get_objects() if isinstance(held, Container) and held._name == "of a history"
    ]
    assert [sum(batch.num_rows for batch in read()) for read in readers] == [100_000, 1]


def test_columns_that_are_one_memory_are_written_once_and_are_one_again() -> None:
    """Counts under two names, and an end that is an instant too: in a stream that is compressed, in pieces, and plain."""
    counts = np.random.default_rng(1).integers(0, 1 << 40, 40_000)
    other, stamp = pa.array(counts.astype(float)), pa.timestamp("us", tz="UTC")
    columns = [pa.array(counts), other, pa.array(counts).cast(stamp), pa.array(counts)]
    table = pa.table(columns, pa.schema([("a", "int64"), ("b", "double"), ("c", stamp), ("d", "int64")]))
    for options in ({"compressed": True}, {"compressed": True, "piece": 1000}, {}):
        written = b"".join(parts({"t": table}, **options))
        alone = b"".join(parts({"t": table.select(["a", "b"])}, **options))
        assert len(written) < len(alone) + 2000, "two of four columns are written"
        container = Container.open(written)
        container.verify()
        for unpacked in (container.table("t"), pa.Table.from_batches(container.batches("t")())):
            assert unpacked.equals(table)
            addresses = {unpacked.column(name).chunk(0).buffers()[1].address for name in ("a", "c", "d")}
            assert len(addresses) == 1


@pytest.mark.parametrize("compressed", [True, False])
def test_equal_columns_of_many_small_sections_are_written_once(compressed: bool) -> None:
    drawn, stamp = np.random.default_rng(1), pa.timestamp("us", tz="UTC")
    numbers = [drawn.integers(0, 1 << 60, 2_000) for _ in range(40)]
    small = {
        f"q{n}": pa.table({"a": values, "b": pa.array(values).cast(stamp), "c": values[::-1], "d": values})
        for n, values in enumerate(numbers)
    }
    container = Container.open(b"".join(parts(small, compressed=compressed)))
    container.verify()
    assert all(container.table(name).equals(table) for name, table in small.items())
    addresses = [column.chunk(0).buffers()[1].address for column in container.table("q7").columns]
    assert addresses[0] == addresses[1] == addresses[3] != addresses[2]


def test_columns_of_equal_numbers_that_are_not_one_memory_stay_apart() -> None:
    """Also such as share a buffer but not the place in it."""
    whole = pa.array(np.arange(80_000))
    table = pa.table({"a": whole[:40_000], "b": whole[40_000:], "c": pa.array(np.arange(40_000))})
    unpacked = Container.open(pack({"t": table})).table("t")
    assert unpacked.equals(table)
    assert len({unpacked.column(name).chunk(0).buffers()[1].address for name in "abc"}) == 3


@pytest.mark.parametrize("options", [{"compressed": True, "piece": 1000}, {}])
def test_damage_to_columns_that_are_one_memory_is_reported_as_damage(options: dict[str, Any]) -> None:
    """Read piece by piece or whole, without checking checksums first: a byte of the messages before the numbers is wrong."""
    counts = pa.array(np.random.default_rng(1).integers(0, 1 << 20, 20_000))
    odd = pa.array(np.arange(20_000), mask=np.arange(20_000) % 3 == 0)
    table = pa.table({"a": counts, "b": counts.view(pa.timestamp("us", tz="UTC")), "c": odd, "d": odd})
    written = b"".join(parts({"t": table}, **options))
    detected = 0
    for index in range(64, 1200):
        damaged = written[:index] + bytes([written[index] ^ 0x11]) + written[index + 1 :]
        container = Container.open(damaged)
        for read in (container.table, lambda name, held=container: [*held.batches(name)()]):
            try:
                read("t")
            except CorruptStore:
                detected += 1
            except MemoryError:  # so many bytes are not to be had
                pass
    assert detected > 100


@pytest.mark.parametrize("version", [1, 2])
def test_containers_of_earlier_versions_are_read(version: int) -> None:
    """Their index is one JSON text, in which the statistics are in the entries of sections; the first has no groups."""
    table = pa.table({"x": range(10)})
    written = pack({"t": table, "u": table}, {"level": 3})
    trailer = struct.Struct("<QII8s")
    size, *_ = trailer.unpack(written[-trailer.size :])
    body, index = written[: -trailer.size - size], written[-trailer.size - size : -trailer.size]
    first, sections = (json.loads(text) for text in index.split(b"\n"))
    sections["t"][5] = {"rows": 10}
    old = {**first, "sections": sections}
    if version == 1:
        del old["groups"]
    encoded = json.dumps(old, separators=(",", ":")).encode()
    container = Container.open(
        body + encoded + trailer.pack(len(encoded), zlib.crc32(encoded), version, b"HEADRACE")
    )
    container.verify()
    assert container.header == {"level": 3}
    assert container.table("t").equals(table)
    assert {name: section.rows for name, section in container.sections().items()} == {"t": 10, "u": 10}
    assert "u" in container
    assert "v" not in container


NAMES = st.text('ab",:[{\n\\é', max_size=5)


@given(st.lists(NAMES, unique=True, max_size=40), NAMES)
def test_one_section_is_found_whatever_the_names(names: list[str], other: str) -> None:
    """Without the entries of the others; names with quotes, commas, brackets and line feeds too."""
    tables = {name: pa.table({"x": [number]}) for number, name in enumerate(names)}
    packed = pack(tables, {name: [0] for name in names})
    container = Container.open(packed)
    for number, name in enumerate(names):
        assert container.table(name)["x"].to_pylist() == [number]
        assert name in container
    assert (other in container) == (other in names)
    assert container._index._sections is None
    assert list(container.sections()) == names


def test_of_a_container_that_is_streamed_one_section_is_in_memory_a_second_time() -> None:
    """Also of a plain one, whose tables are views of what was written."""
    tables = {f"s{n}": pa.table({"a": np.arange(1 << 17) * n}) for n in range(8)}
    before, most, written = PASSING.bytes_allocated(), 0, list[bytes]()
    for part in streamed({name: table} for name, table in tables.items()):
        written.append(bytes(part))
        most = max(most, PASSING.bytes_allocated() - before)
    data = b"".join(written)
    assert 1 << 20 <= most < 3 << 20
    assert Container.open(data).tables() == tables
    assert data == b"".join(parts(tables))


@given(
    st.lists(st.lists(st.integers(0, 40), min_size=1, max_size=20), min_size=1, max_size=3),
    st.sampled_from([None, 7]),
    st.sampled_from([1 << 18, 400]),
    st.booleans(),
)
@example([[1] * 16 + [40]], None, 400, False)
def test_sections_that_are_adjacent_in_a_table_are_those_of_tables(
    portions: list[list[int]], piece: int | None, large: int, has_text: bool
) -> None:
    """Whether they are a group, or one of them is too large for that, or has values of no width."""
    adjacent, tables = list[Adjacent](), dict[str, pa.Table]()
    for number, rows in enumerate(portions):
        names, values = [f"s{number}.{n}" for n in range(len(rows))], np.arange(sum(rows)) * (number + 1)
        table = pa.table({"a": values, "b": values, "t": [f"{n}" for n in values] if has_text else values})
        adjacent.append(Adjacent(table, names, rows))
        ends = itertools.accumulate(rows)
        tables |= {
            name: table.slice(end - own, own) for name, end, own in zip(names, ends, rows, strict=True)
        }
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(container_module, "_COMPRESSED_FROM", large)
        data = b"".join(streamed(adjacent, piece=piece))
    read = Container.open(data)
    assert read.tables() == tables
    read.verify()
    for number, rows in enumerate(portions):
        if not has_text and len(rows) >= 16 and max(rows) * 24 < large:
            kinds = {read._index.sections[f"s{number}.{n}"][0] for n in range(len(rows))}
            assert kinds == {container_module._SLICE}
        if not has_text and max(rows) * 24 >= large:
            largest = read._index.sections[f"s{number}.{rows.index(max(rows))}"]
            assert largest[0] != container_module._SLICE


def test_a_container_written_in_portions_reads_as_one_written_at_once(tmp_path: Path) -> None:
    """Also where portions are larger than what is written at a time, and sections are grouped or compressed."""
    tables = {f"s{n}": pa.table({"a": np.arange(n + 1), "b": [f"{n}"] * (n + 1)}) for n in range(40)}
    tables["large"] = pa.table({"a": np.arange(1 << 17) % 7, "b": ["x"] * (1 << 17)})
    names = list(tables)
    portions = [{name: tables[name] for name in names[low : low + 17]} for low in range(0, len(names), 17)]
    store = LocalStore(tmp_path)
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(filesystem, "_IN_MEMORY", 1000)
        size = store.write_once("x.run", streamed(portions, piece=1 << 14))
    read = Container.open(store.map("x.run"), "x.run")
    assert size == store.map("x.run").size
    assert read.tables() == tables
    read.verify()
    stored = {
        name: table.slice(first, rows) for table, sections in read.groups() for name, first, rows in sections
    }
    assert stored == tables


def sections_of_all_kinds() -> dict[str, pa.Table]:
    """Two large ones, one with a dictionary, one alone, and two schemas of which small ones are stored together, many of texts."""
    drawn = np.random.default_rng(1)
    small = {
        f"n{n}": pa.table({"x": drawn.integers(0, 1 << 40, 90), "y": drawn.random(90)}) for n in range(200)
    }
    texts = {f"t{n}": pa.table({"x": [f"{n} é {row}" * (row % 4) for row in range(90)]}) for n in range(200)}
    large = {
        "large": pa.table({"x": drawn.integers(0, 1 << 40, 60_000)}),
        "levels": pa.table({"x": np.arange(60_000)}),
    }
    words = pa.table({"w": pa.array(["a", "b", "a"]).dictionary_encode()})
    masked = pa.table({"z": pa.array(np.arange(100.0), mask=np.arange(100) % 3 == 0)})
    return {**small, **texts, **large, "words": words, "masked": masked}


def places_of(container: Container, name: str) -> list[list[int]]:
    """Where the bytes of a section begin, and how many there are; of one in a group those of the group."""
    kind, _, _, _, places, *_ = container._entry(name)
    return places if kind != container_module._SLICE else container._index.groups[places[0][0]][4]


def flipped(written: bytes, at: int, bit: int = 3) -> bytes:
    return written[:at] + bytes([written[at] ^ 1 << bit]) + written[at + 1 :]


@pytest.mark.parametrize("compressed", [True, False])
@pytest.mark.parametrize("name", ["large", "levels", "words", "masked"])
def test_a_flipped_bit_is_an_error_of_its_section_and_of_no_other(name: str, compressed: bool) -> None:
    given_tables = sections_of_all_kinds()
    written = b"".join(parts(given_tables, compressed=compressed, piece=1000))
    for offset, size in places_of(Container.open(written), name):
        for at in (0, 5, size // 3, size // 2, size - 1):
            container = Container.open(flipped(written, offset + at), "state/f.run")
            for read in (container.table, lambda of, held=container: [*held.batches(of)()]):
                with pytest.raises(CorruptStore, match=rf"'state/f\.run' is damaged: section '{name}'"):
                    read(name)
            others = given_tables.keys() - {name}
            assert all(container.table(other).equals(given_tables[other]) for other in others)
            with pytest.raises(CorruptStore, match="state/f"):
                container.verify()


@pytest.mark.parametrize("name", ["n107", "t199"])
def test_a_flipped_bit_of_one_of_many_small_sections_is_an_error_of_those_in_its_block(name: str) -> None:
    """Values, texts and their offsets; a reader of other blocks reads none of these bytes."""
    given_tables = sections_of_all_kinds()
    written = pack(given_tables)
    buffer = pa.py_buffer(written)
    group = [other for other in given_tables if other[0] == name[0] and other[1:].isdigit()]
    for column in Container.open(buffer).table(name).columns:
        for first, end in block_checksums._ranges(column.chunk(0), buffer.address):
            for at in {first, (first + end) // 2, end - 1}:
                container = Container.open(flipped(written, at), "results/f.run")
                with pytest.raises(CorruptStore, match=rf"'results/f\.run' is damaged: section '{name}'"):
                    container.table(name)
                unread = 0
                for other in group:
                    try:
                        assert container.table(other).equals(given_tables[other])
                    except CorruptStore:
                        unread += 1
                assert 1 <= unread < len(group) / 2
                with pytest.raises(CorruptStore, match="section 'group"):
                    list(container.groups())


def test_no_flipped_bit_of_a_group_is_an_answer() -> None:
    """Also in what describes its columns, and between them."""
    given_tables = {f"n{n}": pa.table({"x": [n, n], "y": [str(n), "é"]}) for n in range(20)}
    written = pack(given_tables)
    ((offset, size),) = places_of(Container.open(written), "n3")
    for at in range(offset, offset + size):
        with pytest.raises(CorruptStore, match="section"):
            Container.open(flipped(written, at, at % 8)).table("n3")


def test_a_section_is_compared_once_and_only_if_it_is_read(monkeypatch: pytest.MonkeyPatch) -> None:
    read: list[int] = []
    crc32 = zlib.crc32
    monkeypatch.setattr(zlib, "crc32", lambda data, first=0: read.append(len(data)) or crc32(data, first))
    container = Container.open(pack(sections_of_all_kinds()))
    read.clear()
    assert container.views()["large"].num_rows == 60_000
    assert sum(read) < 1 << 17, "what describes schemas and groups"
    container.table("n3")
    read.clear()
    container.table("n3")
    assert sum(read) < 1 << 10
    container.table("large")
    assert sum(read) > 480_000
    read.clear()
    container.table("large")
    assert sum(read) < 1 << 10


@pytest.mark.parametrize("recorded", [None, 7])
def test_groups_of_earlier_versions_have_one_checksum_or_none(
    monkeypatch: pytest.MonkeyPatch, recorded: int | None
) -> None:
    encoded = container_module.encoded

    def as_before(header: Any, schemas: Any, groups: Any, blocks: Any, sections: Any) -> bytes:
        del blocks
        return encoded(header, schemas, [[*one[:3], recorded, *one[4:]] for one in groups], [], sections)

    monkeypatch.setattr(container_module, "encoded", as_before)
    given_tables = sections_of_all_kinds()
    container = Container.open(pack(given_tables))
    assert container.table("large").equals(given_tables["large"])
    if recorded is None:
        assert all(container.table(name).equals(table) for name, table in given_tables.items())
        container.verify()
    else:
        with pytest.raises(CorruptStore, match="section 'group 0' has checksum"):
            container.table("n3")
