"""Text for the corpus benchmark: given files, or the documentation of the installed packages, as long as is asked."""

from __future__ import annotations

import gzip
import io
import json
import random
from collections.abc import Iterable, Iterator
from pathlib import Path

import zstandard

from pipelines.corpus import python_docs

_POOL_BYTES = 20_000_000


def lines_of(path: Path) -> Iterator[str]:
    with path.open("rb") as stored:
        if path.suffix == ".gz":
            yield from io.TextIOWrapper(gzip.GzipFile(fileobj=stored), encoding="utf-8")
        elif path.suffix == ".zst":
            yield from io.TextIOWrapper(zstandard.ZstdDecompressor().stream_reader(stored), encoding="utf-8")
        else:
            yield from io.TextIOWrapper(stored, encoding="utf-8")


def endless_texts(paths: Iterable[Path]) -> Iterator[str]:
    """The texts of the .jsonl files, or of the installed packages where none is given; then, without end, new ones
    put together from their paragraphs, so that no document equals another.
    """
    given = [*paths]
    read: Iterator[str]
    if given:
        read = (json.loads(line)["text"] for path in given for line in lines_of(path))
    else:
        read = python_docs.read_documents(tuple(file.uri for file in python_docs.list_files(None, True)))
    paragraphs: list[str] = []
    size = 0
    for text in read:
        yield text
        if size < _POOL_BYTES:
            size += len(text)
            paragraphs += [paragraph for paragraph in text.split("\n\n") if len(paragraph) >= 50]
    rng = random.Random(0)
    while paragraphs:
        yield "\n\n".join(rng.choices(paragraphs, k=rng.randint(3, 30)))


def write_text(texts: Iterator[str], path: Path, num_bytes: int) -> float:
    """Write about so many bytes of text as JSON lines, in ten files under `path`; megabytes written."""
    path.mkdir(parents=True)
    written = 0
    for number in range(1, 11):
        with (path / f"{number:02}.jsonl").open("w", encoding="utf-8") as stream:
            for text in texts:
                stream.write(json.dumps({"text": text}) + "\n")
                written += len(text.encode())
                if written >= number * num_bytes / 10:
                    break
    return written / 1e6
