"""Stage 1: cleaned documents, without duplicates, in the order of the sources.

`texts/{digest}/` holds `piece-*.parquet` (columns source, hash, text), each about `PART_BYTES` of text,
`duplicates.npy` (int64 row numbers over all files, ascending, that later stages pass over) and the manifest. The
tasks write the files; the driver sees hashes only: 24 bytes a document, and as much again while it sorts them.
"""

from __future__ import annotations

import functools
import io
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from pipelines import storage
from pipelines.corpus.cleaning import HASH_BYTES, clean, document_hash, verdict
from pipelines.corpus.progress import Progress
from pipelines.corpus.ray_data import map_in_order
from pipelines.corpus.readers import BadRecord, Position, read_records
from pipelines.corpus.sources import Inventory, Piece, cut_into_pieces
from pipelines.specs.corpus import CleaningSpec
from pipelines.storage.artifacts import MANIFEST_FILE

FORMAT_VERSION = 1
PART_BYTES = 4 << 20
"""Text in one file at most, unless one document is longer: about a second of tokenising."""
REPORT_LINES = 100

_SCHEMA = pa.schema([("source", pa.int32()), ("hash", pa.binary(HASH_BYTES)), ("text", pa.large_string())])


@dataclass(frozen=True, slots=True)
class TextPart:
    """One file of cleaned documents."""

    name: str
    source: int
    num_documents: int
    num_bytes: int
    """UTF-8 bytes of its documents, duplicates included."""


@dataclass(frozen=True, slots=True)
class Texts:
    """A complete `texts/{digest}`."""

    uri: str
    parts: tuple[TextPart, ...]
    counts: Mapping[str, int]
    report: tuple[str, ...]
    num_documents: int
    """Without duplicates."""
    num_bytes: int
    """Without duplicates."""
    smallest_hash: int
    """First 8 bytes of the smallest hash, big-endian; with `largest_hash` it tells whether a split has two sides."""
    largest_hash: int

    @classmethod
    def read(cls, uri: str) -> Texts:
        """The complete texts at `uri`."""
        manifest = storage.read_json(storage.join(uri, MANIFEST_FILE))
        parts = tuple(TextPart(*part) for part in manifest.pop("parts"))
        return cls(uri=uri, parts=parts, report=tuple(manifest.pop("report")), **manifest)

    def duplicates(self) -> np.ndarray[Any, Any]:
        """int64 row numbers over all parts, ascending."""
        return np.load(io.BytesIO(storage.read_bytes(storage.join(self.uri, "duplicates.npy"))))  # type: ignore[no-any-return]


@dataclass(frozen=True, slots=True)
class _Written:
    """What a task tells about one file it wrote, or, with no name, about the end of its piece."""

    piece: int
    name: str = ""
    hashes: bytes = b""
    lengths: bytes = b""
    """int64 UTF-8 bytes of each document."""
    counts: Mapping[str, int] = field(default_factory=dict)
    bad: tuple[BadRecord, ...] = ()
    num_lines: int = 0


def digest_inputs(inventory: tuple[Inventory, ...], cleaning: CleaningSpec) -> dict[str, Any]:
    """Everything that decides the bytes of this stage."""
    return {
        "artifact": "texts",
        "format": FORMAT_VERSION,
        "sources": [source.identity for source in inventory],
        "cleaning": cleaning.model_dump(mode="json"),
    }


def write_texts(uri: str, inventory: tuple[Inventory, ...], cleaning: CleaningSpec, progress: Progress) -> Texts:
    """Read, clean and deduplicate everything, and write the stage's files, the manifest last."""
    pieces = cut_into_pieces(inventory)
    counts: Counter[str] = Counter(sources=len(inventory), files=sum(len(source.files) for source in inventory))
    counts["empty_files"] = sum(file.size_bytes == 0 for source in inventory for file in source.files)
    report: list[str] = []
    written: list[_Written] = []
    lines_before: Counter[str] = Counter()
    work = list(enumerate(pieces))
    for part in map_in_order(work, functools.partial(_write_piece, uri=uri, cleaning=cleaning), progress.waiting):
        if part.name:
            written.append(part)
            continue
        piece = pieces[part.piece]
        counts.update(part.counts)
        if piece.is_whole_file and not part.counts.get("records"):
            counts["empty_files"] += 1
        before = lines_before[piece.uri]
        report.extend(_report_line(piece, bad, before) for bad in part.bad[: REPORT_LINES - len(report)])
        lines_before[piece.uri] += part.num_lines
        progress.at((part.piece + 1) / len(pieces), f"{counts['records']:,} records")
    return _finish(uri, pieces, written, counts, report, cleaning)


def _report_line(piece: Piece, bad: BadRecord, lines_before: int) -> str:
    unit = "record " if piece.kind == "parquet" else ""
    return f"{piece.uri}:{unit}{lines_before + bad.line}: {bad.kind}: {bad.detail}"


def _write_piece(work: tuple[int, Piece], uri: str, cleaning: CleaningSpec) -> Iterator[_Written]:
    """Runs in a Ray task: read one piece, write its files."""
    number, piece = work
    counts: Counter[str] = Counter()
    bad: list[BadRecord] = []
    position = Position()
    texts: list[bytes] = []
    size = num_parts = 0
    for record in read_records(piece, position):
        counts["records"] += 1
        if isinstance(record, BadRecord):
            counts["bad_records"] += 1
            counts[f"bad_{record.kind}"] += 1
            if len(bad) < REPORT_LINES:
                bad.append(record)
            continue
        text = clean(record, cleaning)
        what = verdict(text, cleaning)
        if what != "kept":
            counts[what] += 1
            continue
        encoded = text.encode()
        if texts and size + len(encoded) > PART_BYTES:
            yield _write_part(uri, number, num_parts, piece.source, texts)
            texts, size, num_parts = [], 0, num_parts + 1
        texts.append(encoded)
        size += len(encoded)
    if texts:
        yield _write_part(uri, number, num_parts, piece.source, texts)
    yield _Written(number, counts=dict(counts), bad=tuple(bad), num_lines=position.line)


def _write_part(uri: str, piece: int, part: int, source: int, texts: list[bytes]) -> _Written:
    name = f"piece-{piece:06d}-{part:04d}.parquet"
    hashes = [document_hash(text) for text in texts]
    sources = pa.array(np.full(len(texts), source, np.int32))
    columns = [
        sources,
        pa.array(hashes, pa.binary(HASH_BYTES)),
        pa.array(texts, pa.large_binary()).cast("large_string"),
    ]
    with storage.open_output(storage.join(uri, name)) as stream:
        pq.write_table(pa.table(columns, schema=_SCHEMA), stream, compression="zstd", use_dictionary=False)
    lengths = np.array([len(text) for text in texts], np.int64)
    return _Written(piece, name, b"".join(hashes), lengths.tobytes())


def _finish(
    uri: str,
    pieces: list[Piece],
    written: list[_Written],
    counts: Counter[str],
    report: list[str],
    cleaning: CleaningSpec,
) -> Texts:
    hashes = np.frombuffer(b"".join(part.hashes for part in written), ">u8").reshape(-1, 2)
    lengths = np.frombuffer(b"".join(part.lengths for part in written), np.int64)
    duplicates = later_copies(hashes) if cleaning.deduplicate else np.empty(0, np.int64)
    parts = tuple(
        TextPart(
            part.name,
            pieces[part.piece].source,
            len(part.hashes) // HASH_BYTES,
            int(np.frombuffer(part.lengths, np.int64).sum()),
        )
        for part in written
    )
    counts["duplicates"] = len(duplicates)
    for kind in ("records", "bad_records", "too_short", "too_long"):
        counts[kind] += 0  # told even where there is none
    texts = Texts(
        uri=uri,
        parts=parts,
        counts=dict(sorted(counts.items())),
        report=tuple(report),
        num_documents=len(hashes) - len(duplicates),
        num_bytes=int(lengths.sum() - lengths[duplicates].sum()),
        smallest_hash=int(hashes[:, 0].min()) if len(hashes) else 0,
        largest_hash=int(hashes[:, 0].max()) if len(hashes) else 0,
    )
    buffer = io.BytesIO()
    np.save(buffer, duplicates)
    storage.write_bytes(storage.join(uri, "duplicates.npy"), buffer.getvalue())
    manifest = asdict(texts) | {"parts": [list(asdict(part).values()) for part in parts]}
    del manifest["uri"]
    storage.write_json(storage.join(uri, MANIFEST_FILE), manifest)
    return texts


def later_copies(hashes: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """Rows of uint64[N, 2] that equal an earlier row: int64, ascending. The first in order stays."""
    order = np.lexsort((hashes[:, 1], hashes[:, 0]))  # stable, so copies stand in their order
    ranked = hashes[order]
    is_copy = np.zeros(len(order), bool)
    is_copy[1:] = (ranked[1:] == ranked[:-1]).all(axis=1)
    return np.sort(order[is_copy]).astype(np.int64)
