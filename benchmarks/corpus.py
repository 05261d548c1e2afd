"""Speed of corpus preparation against a plain `tokenizers` loop over the same text, in the same run.

    python benchmarks/corpus.py [--quick] [--json PATH] [PATHS]

PATHS are .jsonl, .jsonl.gz or .jsonl.zst files with a `text` field; without any, the documentation of the installed
packages is written out and used. The plain loop reads the files, encodes 1 000 documents at a time on two threads and
keeps the ids as uint16: what a script would do. It runs before and after the preparation, and the mean counts, for
machines are never idle. MB are 10^6 bytes of UTF-8 text.
"""

from __future__ import annotations

import argparse
import gzip
import io
import itertools
import json
import os
import platform
import secrets
import shutil
import tempfile
import time
from pathlib import Path

THREADS = 2
_SCRATCH = Path(tempfile.mkdtemp(prefix="electra-bench-"))
(_SCRATCH / "token").write_text(secrets.token_hex(32))
os.environ.update(RAY_USAGE_STATS_ENABLED="0", RAY_AUTH_MODE="token", RAY_AUTH_TOKEN_PATH=str(_SCRATCH / "token"))
os.environ.update(RAYON_NUM_THREADS=str(THREADS))

import numpy as np
import ray
import zstandard

from pipelines.corpus import python_docs
from pipelines.corpus.prepare import prepare_corpus
from pipelines.corpus.ray_data import map_in_order
from pipelines.specs.corpus import CorpusSpec, JsonlSource, WordPieceSpec
from pipelines.tokenizer import load_tokenizer


def lines_of(path: Path):
    with path.open("rb") as stored:
        if path.suffix == ".gz":
            yield from io.TextIOWrapper(gzip.GzipFile(fileobj=stored))
        elif path.suffix == ".zst":
            yield from io.TextIOWrapper(zstandard.ZstdDecompressor().stream_reader(stored))
        else:
            yield from io.TextIOWrapper(stored)


def plain_loop(paths: list[Path], tokenizer_uri: str) -> tuple[float, int, int]:
    """Seconds, bytes of text and tokens of the loop anyone would write."""
    os.environ["TOKENIZERS_PARALLELISM"] = "true"
    tokenizer = load_tokenizer(tokenizer_uri)
    started = time.perf_counter()
    texts = (json.loads(line)["text"] for path in paths for line in lines_of(path))
    num_bytes, ids = 0, []
    while batch := list(itertools.islice(texts, 1000)):
        num_bytes += sum(len(text.encode()) for text in batch)
        encodings = tokenizer.encode_batch_fast(batch, add_special_tokens=False)
        ids += [np.array(encoding.ids, np.uint16) for encoding in encodings]
    num_tokens = len(np.concatenate(ids))
    return time.perf_counter() - started, num_bytes, num_tokens


def prepare(paths: list[Path], vocab_size: int):
    """The corpus, and seconds by stage."""
    clock: dict[str, float] = {}
    last = ["", time.perf_counter()]

    def report(message: str, fraction: float | None) -> None:
        stage = message.split(":")[0]
        if stage != last[0]:
            now = time.perf_counter()
            clock[last[0]] = now - last[1]
            last[:] = [stage, now]

    spec = CorpusSpec(sources=(JsonlSource(uris=tuple(str(path) for path in paths)),))
    corpus = prepare_corpus(spec, WordPieceSpec(vocab_size=vocab_size), str(_SCRATCH / "storage"), report, "benchmark")
    clock[last[0]] = time.perf_counter() - last[1]
    return corpus, clock


def idle(item: int):
    yield os.getpid() + item


def python_documentation(limit_bytes: int) -> list[Path]:
    path = _SCRATCH / "python_docs.jsonl"
    size = 0
    with path.open("w") as stream:
        for text in python_docs.read_documents(tuple(f.uri for f in python_docs.list_files(None, True))):
            size += stream.write(json.dumps({"text": text}) + "\n")
            if size > limit_bytes:
                break
    return [path]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("paths", nargs="*", type=Path)
    parser.add_argument("--quick", action="store_true", help="about 5 MB of text")
    parser.add_argument("--json", type=Path, help="write the figures here")
    parser.add_argument("--vocab-size", type=int, default=30_522)
    options = parser.parse_args()
    try:
        paths = options.paths or python_documentation(5_000_000 if options.quick else 40_000_000)
        ray.init(address="local", num_cpus=THREADS, include_dashboard=False, logging_level="ERROR", log_to_driver=False)
        list(map_in_order(range(2 * THREADS), idle))  # workers start and import once, before any clock
        figures = measure(paths[:1] if options.quick else paths, options.vocab_size)
    finally:
        ray.shutdown()
        shutil.rmtree(_SCRATCH, ignore_errors=True)
    for name, value in figures.items():
        print(f"{name:45} {value:>14,.2f}")
    if options.json:
        machine = (
            f"{os.cpu_count()} CPUs, {platform.machine()}, {platform.system()}, Python {platform.python_version()}"
        )
        document = {"figures": figures, "machine": machine, "date": time.strftime("%Y-%m-%d", time.gmtime())}
        options.json.write_text(json.dumps(document, indent=1) + "\n")


def measure(paths: list[Path], vocab_size: int) -> dict[str, float]:
    corpus, clock = prepare(paths, vocab_size)
    shutil.rmtree(_SCRATCH / "storage" / "corpora")  # the tokenizer is there now: once more, with the loop around it
    before = plain_loop(paths, corpus.tokenizer_uri)
    corpus, again = prepare(paths, vocab_size)
    after = plain_loop(paths, corpus.tokenizer_uri)
    megabytes = before[1] / 1e6
    plain = (before[0] + after[0]) / 2
    tokenise = again["tokenising"]
    read = clock["reading and cleaning"]
    return {
        "text_mb": megabytes,
        "tokens": float(corpus.num_train_tokens + corpus.num_validation_tokens),
        "vocab_size": float(corpus.vocab_size),
        "plain_loop_mb_per_second": megabytes / plain,
        "plain_loop_before_mb_per_second": megabytes / before[0],
        "plain_loop_after_mb_per_second": megabytes / after[0],
        "read_and_clean_mb_per_second": megabytes / read,
        "train_tokenizer_mb_per_second": megabytes / clock["training the tokenizer"],
        "tokenise_and_write_mb_per_second": megabytes / tokenise,
        "tokenise_relative_to_plain_loop": plain / tokenise,
        "read_clean_tokenise_relative_to_plain_loop": plain / (read + tokenise),
    }


if __name__ == "__main__":
    main()
