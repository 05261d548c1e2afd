"""Records out of files, without Ray: broken input by kind and line, ranges, cleaning, splitting, Python's docs."""

from __future__ import annotations

import gzip
import json
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import zstandard
from hypothesis import given
from hypothesis import strategies as st

from pipelines.corpus import python_docs, sources
from pipelines.corpus.cleaning import clean, split_at_spaces, verdict
from pipelines.corpus.readers import BadRecord, Position, read_records
from pipelines.corpus.sources import Piece, cut_into_pieces, known_size, take_inventory
from pipelines.corpus.texts import later_copies
from pipelines.errors import CorpusError, StorageError
from pipelines.specs.corpus import CleaningSpec, CorpusSpec, JsonlSource, ParquetSource, PythonDocsSource, TextSource


def read(piece: Piece) -> list[str | tuple[str, int]]:
    """Texts as they are, malformed records as (kind, line)."""
    records = read_records(piece, Position())
    return [(record.kind, record.line) if isinstance(record, BadRecord) else record for record in records]


JSONL = [
    (b'{"text": "fine"}', "fine"),
    (b'{"text": "fi\xc3\xa9"}', "fié"),
    (b'{"text": "broken \xff"}', "broken_utf8"),
    (b'{"text": "cut off', "malformed_json"),
    (b"not json", "malformed_json"),
    (b'["text"]', "malformed_json"),
    (b'"text"', "malformed_json"),
    (b'{"title": "x"}', "missing_field"),
    (b'{"text": null}', "not_a_string"),
    (b'{"text": 5}', "not_a_string"),
    (b'{"text": ["a"]}', "not_a_string"),
    (b'{"text": {"a": "b"}}', "not_a_string"),
    (b'{"text": "a\\u0000b"}', "nul_character"),
    (b'{"text": "half \\ud800"}', "broken_utf8"),
    (b'{"text": "whole \\ud83d\\ude00"}', "whole \N{GRINNING FACE}"),
    (b'{"text": ' + b"[" * 100_000, "malformed_json"),
    (b'{"n": ' + b"9" * 10_000 + b', "text": "x"}', "malformed_json"),
    (b"\x00\x00", "malformed_json"),
]


@pytest.mark.parametrize("suffix", ["", ".gz", ".zst"])
@pytest.mark.parametrize("line_end", [b"\n", b"\r\n"])
def test_each_broken_line_is_told_and_no_other(tmp_path: Path, suffix: str, line_end: bytes) -> None:
    pack = {"": bytes, ".gz": gzip.compress, ".zst": zstandard.compress}[suffix]
    path = tmp_path / f"x.jsonl{suffix}"
    lines = [part for line, _ in JSONL for part in (line, b"", b"  ")]  # blank lines are no records, but count
    path.write_bytes(pack(line_end.join(lines)))
    kinds = {"broken_utf8", "malformed_json", "missing_field", "not_a_string", "nul_character"}
    expected = [(what, 3 * i + 1) if what in kinds else what for i, (_, what) in enumerate(JSONL)]
    expected[-1] = ("nul_character", 3 * len(JSONL) - 2)  # seen before JSON is tried
    assert read(Piece(0, "jsonl", str(path), "line", "text")) == expected


@pytest.mark.parametrize(
    ("document", "expected"),
    [
        ("file", [("broken_utf8", 5)]),
        ("line", ["one\n", "two\n", ("broken_utf8", 5), "four\n", ("nul_character", 8)]),
        ("paragraph", ["one\ntwo\n", ("broken_utf8", 5), ("nul_character", 8)]),
    ],
)
def test_broken_text_costs_one_record(tmp_path: Path, document: str, expected: list[object]) -> None:
    path = tmp_path / "x.txt"
    path.write_bytes(b"\xef\xbb\xbfone\ntwo\n \n\nthr\xffee\nfour\n\nfi\x00ve")
    assert read(Piece(0, "text", str(path), document)) == expected


@pytest.mark.parametrize("name", ["x.jsonl.gz", "x.jsonl.zst"])
def test_damaged_compression_keeps_what_came_before(tmp_path: Path, name: str) -> None:
    data = b"".join(json.dumps({"text": str(np.random.default_rng(i).bytes(50))}).encode() + b"\n" for i in range(9000))
    path = tmp_path / name
    packed = gzip.compress(data) if name.endswith("gz") else zstandard.compress(data)
    path.write_bytes(packed[: len(packed) // 2])
    records = read(Piece(0, "jsonl", str(path), "line", "text"))
    texts = [record for record in records if isinstance(record, str)]
    assert records[-1] == ("unreadable_file", len(texts) + 1)
    assert 1000 < len(texts) < 9000


def test_what_only_looks_compressed_is_told(tmp_path: Path) -> None:
    for name in ("x.jsonl.gz", "x.jsonl.zst", "x.parquet"):
        (tmp_path / name).write_bytes(b"this is plain text, not what its name says")
        kind = "parquet" if name.endswith("parquet") else "jsonl"
        assert read(Piece(0, kind, str(tmp_path / name), "line", "text")) == [("unreadable_file", 1)]


def test_parquet_rows(tmp_path: Path) -> None:
    path = str(tmp_path / "x.parquet")
    raw = pa.array([b"fine", b"br\xffken", None, b"a\x00b", b"last"], pa.binary())
    texts = pa.Array.from_buffers(pa.string(), 5, raw.buffers())  # as careless writers do
    coded = pa.array(["a", "b", "a", "b", "a"]).dictionary_encode()
    pq.write_table(pa.table({"text": texts, "n": range(5), "coded": coded}), path, row_group_size=2)
    expected = ["fine", ("broken_utf8", 2), ("not_a_string", 3), ("nul_character", 4), "last"]
    assert read(Piece(0, "parquet", path, field="text")) == expected
    assert read(Piece(0, "parquet", path, field="text", row_groups=(1, 2))) == [
        ("not_a_string", 1), ("nul_character", 2), "last"]  # fmt: skip
    assert read(Piece(0, "parquet", path, field="coded")) == ["a", "b", "a", "b", "a"]
    assert read(Piece(0, "parquet", path, field="n")) == [("not_a_string", i) for i in range(1, 6)]
    assert read(Piece(0, "parquet", path, field="absent")) == [("missing_field", i) for i in range(1, 6)]


@given(
    lines=st.lists(st.sampled_from([b"", b" ", b"a", b"bb", b"c" * 30, "é".encode()]), max_size=30),
    range_bytes=st.integers(1, 20),
    document=st.sampled_from(["line", "paragraph"]),
    line_end=st.sampled_from([b"\n", b"\r\n"]),
)
def test_ranges_give_the_records_of_the_whole(
    lines: list[bytes], range_bytes: int, document: str, line_end: bytes, tmp_path_factory: pytest.TempPathFactory
) -> None:
    path = tmp_path_factory.getbasetemp() / "ranges.txt"
    data = line_end.join(lines)
    path.write_bytes(data)
    whole, positions = Position(), [Position() for _ in range(0, len(data) + 1, range_bytes)]
    expected = list(read_records(Piece(0, "text", str(path), document), whole))
    ends = [*range(range_bytes, len(data) + 1, range_bytes), None]
    pieces = [
        Piece(0, "text", str(path), document, start=start, end=end)
        for start, end in zip(range(0, len(data) + 1, range_bytes), ends, strict=True)
    ]
    found = [record for piece, at in zip(pieces, positions, strict=True) for record in read_records(piece, at)]
    assert found == expected
    assert sum(at.line for at in positions) == whole.line  # so reports can name lines of the file


def test_large_files_are_cut_by_size_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sources, "RANGE_BYTES", 100)
    (tmp_path / "big.txt").write_bytes(b"x" * 250)
    (tmp_path / "small.txt").write_bytes(b"x" * 200)
    (tmp_path / "empty.txt").write_bytes(b"")
    inventory = take_inventory(CorpusSpec(sources=(TextSource(uris=(str(tmp_path),), document="line"),)))
    ranges = [(Path(piece.uri).name, piece.start, piece.end) for piece in cut_into_pieces(inventory)]
    assert ranges == [("big.txt", 0, 100), ("big.txt", 100, 200), ("big.txt", 200, None), ("small.txt", 0, None)]


def test_large_parquet_files_are_cut_by_row_groups(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sources, "RANGE_BYTES", 500)
    table = pa.table({"text": [str(i) * 100 for i in range(40)]})
    pq.write_table(table, tmp_path / "x.parquet", row_group_size=10, compression="NONE")
    spec = CorpusSpec(sources=(ParquetSource(uris=(str(tmp_path),)),))
    pieces = cut_into_pieces(take_inventory(spec))
    assert len(pieces) > 1
    assert [record for piece in pieces for record in read(piece)] == table["text"].to_pylist()


def test_known_size_asks_for_no_reading(tmp_path: Path) -> None:
    (tmp_path / "a.jsonl").write_bytes(b"x" * 10)
    (tmp_path / "b.jsonl").write_bytes(b"x" * 5)
    source = JsonlSource(uris=(str(tmp_path), str(tmp_path / "*.jsonl")))
    assert known_size(CorpusSpec(sources=(source,))) == 15  # a file named twice is one file
    assert known_size(CorpusSpec()) is None
    with pytest.raises(StorageError, match="no such file"):
        known_size(CorpusSpec(sources=(JsonlSource(uris="/nothing/here"),)))


@pytest.mark.parametrize(
    ("raw", "cleaned"),
    [
        ("  a\r\nb\rc\x0cd\x85e  ", "a\nb\nc\nd\ne"),
        ("a\x00b\x07c\x7f\ufeff\td", "abc\td"),
        ("e\u0301", "é"),
        ("\N{LATIN SMALL LIGATURE FI}", "\N{LATIN SMALL LIGATURE FI}"),
    ],
)
def test_cleaning(raw: str, cleaned: str) -> None:
    assert clean(raw, CleaningSpec()) == cleaned


def test_normal_forms() -> None:
    assert clean("\N{LATIN SMALL LIGATURE FI}", CleaningSpec(unicode_normalization="NFKC")) == "fi"
    assert clean("e\u0301", CleaningSpec(unicode_normalization="none")) == "e\u0301"


@given(st.text())
def test_cleaning_is_idempotent(text: str) -> None:
    once = clean(text, CleaningSpec())
    assert clean(once, CleaningSpec()) == once


def test_length_limits() -> None:
    spec = CleaningSpec(min_characters=2, max_characters=3)
    assert [verdict("x" * n, spec) for n in range(1, 5)] == ["too_short", "kept", "kept", "too_long"]


@given(st.text(alphabet="ab \n\u3000", max_size=200), st.integers(1, 20))
def test_splitting_loses_nothing_and_keeps_words_whole(text: str, limit: int) -> None:
    pieces = list(split_at_spaces(text, limit))
    assert "".join(pieces) == text
    assert all(0 < len(piece) <= limit for piece in pieces)
    if all(len(word) < limit for word in text.split()):
        assert [word for piece in pieces for word in piece.split()] == text.split()


@given(st.lists(st.integers(0, 5), max_size=50))
def test_the_first_copy_stays(values: list[int]) -> None:
    hashes = np.array([(value // 2, value % 2) for value in values], np.uint64).reshape(-1, 2)
    expected = [i for i, value in enumerate(values) if value in values[:i]]
    assert later_copies(hashes).tolist() == expected


MODULE = b'''"""Module.

    Indented.
"""
import os
class A:
    """Class."""
    def method(self):
        """Method."""
        x = """not documentation"""
    if os.name:
        async def other(self):
            "Single."
'''


def test_docstrings_are_found_without_running_anything() -> None:
    assert python_docs.docstrings(MODULE) == "Module.\n\nIndented.\n\nClass.\n\nMethod.\n\nSingle."
    assert python_docs.docstrings(b'raise SystemExit\n"""not first"""') == ""


@pytest.mark.parametrize("source", [b'"""x', b'print """py2"""', b'"""\x00"""', b'# coding: nonsense\n"""x"""'])
def test_what_python_cannot_parse_gives_nothing(source: bytes) -> None:
    assert python_docs.docstrings(source) == ""


def test_package_files_come_in_order_without_tests() -> None:
    files = python_docs.list_files(("numpy", "Typing_Extensions"), include_standard_library=False)
    identities = [file.identity for file in files]
    assert identities == sorted(identities)
    assert any(name.endswith("METADATA") for name in identities)
    assert not any("/tests/" in name for name in identities)


def test_an_absent_package_is_named() -> None:
    spec = CorpusSpec(sources=(PythonDocsSource(packages=("numpy", "no-such-thing")),))
    with pytest.raises(CorpusError, match="no-such-thing is not"):
        take_inventory(spec)


def test_weights_are_no_part_of_the_identity(tmp_path: Path) -> None:
    (tmp_path / "x.jsonl").write_text("{}")
    one, other = (
        take_inventory(CorpusSpec(sources=(JsonlSource(uris=str(tmp_path), weight=weight),)))[0].identity
        for weight in (1.0, 2.0)
    )
    assert one == other


@pytest.mark.parametrize("pack", [gzip.compress, zstandard.compress])
def test_members_one_after_another_are_one_file(tmp_path: Path, pack: Callable[[bytes], bytes]) -> None:
    path = tmp_path / ("x.txt.gz" if pack is gzip.compress else "x.txt.zst")
    path.write_bytes(b"".join(pack(f"line {i}\n".encode() * 1000) for i in range(5)))
    assert len(read(Piece(0, "text", str(path), "line"))) == 5000
