"""Speed of corpus preparation against a plain `tokenizers` loop, and its cost as the corpus grows, in one run.

    python benchmarks/corpus.py [--quick] [--json PATH] [PATHS]

PATHS are .jsonl, .jsonl.gz or .jsonl.zst files with a `text` field; without any, the documentation of the installed
packages is used. Where that is shorter than the largest corpus, more is put together from its paragraphs. The plain
loop reads the files, encodes 1 000 documents at a time on as many threads as preparation has CPUs and keeps the ids as
uint16: what a script would do. Preparation also cleans, deduplicates, splits and writes. Both take turns on the same
files with the same vocabulary. MB are 10^6 bytes of UTF-8 text.
"""

from __future__ import annotations

import itertools
import json
import os
import shutil
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

THREADS = os.cpu_count() or 1
os.environ.update(RAYON_NUM_THREADS=str(THREADS))

from ray_environment import start_ray  # before Ray

# isort: split
import numpy as np
import ray
from common import Samples, option_parser, report
from corpus_text import endless_texts, lines_of, write_text
from memory import PeakOfFamily

from pipelines.corpus.prepare import prepare_corpus
from pipelines.corpus.ray_data import map_in_order
from pipelines.specs.corpus import CorpusSpec, JsonlSource, PretrainedTokenizerSpec, WordPieceSpec
from pipelines.storage.artifacts import PreparedCorpus
from pipelines.tokenizer import load_tokenizer

GROWTH = (1, 4, 16)


def plain_loop(texts: Path, tokenizer_uri: str) -> float:
    """Seconds of the loop anyone would write."""
    os.environ["TOKENIZERS_PARALLELISM"] = "true"
    tokenizer = load_tokenizer(tokenizer_uri)
    started = time.perf_counter()
    read = (json.loads(line)["text"] for path in sorted(texts.iterdir()) for line in lines_of(path))
    ids = []
    while batch := list(itertools.islice(read, 1000)):
        encodings = tokenizer.encode_batch_fast(batch, add_special_tokens=False)
        ids += [np.array(encoding.ids, np.uint16) for encoding in encodings]
    np.concatenate(ids)
    return time.perf_counter() - started


def prepare(
    texts: Path, tokenizer: WordPieceSpec | PretrainedTokenizerSpec, storage: Path
) -> tuple[PreparedCorpus, dict[str, float]]:
    """The corpus, and seconds by stage; `all` is the whole."""
    clock: dict[str, float] = {}
    started = time.perf_counter()
    last = ["", started]

    def told(message: str, fraction: float | None) -> None:
        stage, now = message.split(":")[0], time.perf_counter()
        if stage != last[0]:
            clock[last[0]] = clock.get(last[0], 0.0) + now - last[1]
            last[:] = [stage, now]

    spec = CorpusSpec(sources=(JsonlSource(uris=(str(texts),)),))
    corpus = prepare_corpus(spec, tokenizer, str(storage), told, "benchmark")
    told("", None)
    del clock[""]
    return corpus, clock | {"all": time.perf_counter() - started}


def idle(item: int):
    yield os.getpid() + item


def measure(folders: dict[int, Path], scratch: Path, vocab_size: int, repetitions: int) -> dict[str, Any]:
    """Seconds of loop and preparation by growth, and peak memory of the driver and its Ray processes together."""
    trained, clock = prepare(folders[GROWTH[0]], WordPieceSpec(vocab_size=vocab_size), scratch / "vocabulary")
    tokenizer = PretrainedTokenizerSpec(uri=trained.tokenizer_uri)
    loop: dict[int, list[float]] = {factor: [] for factor in GROWTH}
    stages: dict[int, list[dict[str, float]]] = {factor: [] for factor in GROWTH}
    peaks: dict[int, list[float]] = {factor: [] for factor in GROWTH}
    tokens = {}
    for repetition in range(repetitions):
        for factor, folder in folders.items():
            storage = scratch / f"storage-{factor}-{repetition}"
            loop[factor].append(plain_loop(folder, trained.tokenizer_uri))
            with PeakOfFamily(os.getpid()) as memory:
                corpus, clock_of_stages = prepare(folder, tokenizer, storage)
            peaks[factor].append(float(memory.peak_bytes))
            stages[factor].append(clock_of_stages)
            loop[factor].append(plain_loop(folder, trained.tokenizer_uri))  # on either side: machines drift
            tokens[factor] = corpus.num_train_tokens + corpus.num_validation_tokens
            shutil.rmtree(storage)
            print(f"  {factor:2} ×: {clock_of_stages['all']:.1f} s, loop {loop[factor][-1]:.1f} s", file=sys.stderr)
    return {
        "vocabulary_seconds": clock.get("training the tokenizer", 0.0),
        "vocab_size": trained.vocab_size,
        "tokens": tokens,
        "loop": {factor: Samples(tuple(seconds)) for factor, seconds in loop.items()},
        "stages": {
            factor: {name: Samples(tuple(run.get(name, 0.0) for run in runs)) for name in runs[0]}
            for factor, runs in stages.items()
        },
        "peak_bytes": {factor: Samples(tuple(values)) for factor, values in peaks.items()},
    }


def main() -> None:
    parser = option_parser(__doc__, "0.5, 2 and 8 MB of text, once")
    parser.add_argument("paths", nargs="*", type=Path)
    parser.add_argument("--megabytes", type=float, help="text of the smallest corpus: 4, 0.5 with --quick")
    parser.add_argument("--repetitions", type=int, help="3, 1 with --quick")
    parser.add_argument("--vocab-size", type=int, help="30522, 8192 with --quick")
    options = parser.parse_args()
    base = options.megabytes or (0.5 if options.quick else 4.0)
    repetitions = options.repetitions or (1 if options.quick else 3)
    vocab_size = options.vocab_size or (8192 if options.quick else 30_522)
    with tempfile.TemporaryDirectory(prefix="electra-bench-") as folder:
        scratch = Path(folder)
        folders = {factor: scratch / f"texts-{factor}" for factor in GROWTH}
        texts = endless_texts(options.paths)
        sizes = {factor: write_text(texts, folders[factor], int(base * 1e6 * factor)) for factor in GROWTH}
        start_ray(THREADS)
        try:
            list(map_in_order(range(2 * THREADS), idle))  # workers start and import once, before any clock
            found = measure(folders, scratch, vocab_size, repetitions)
        finally:
            ray.shutdown()
    smallest, largest = GROWTH[0], GROWTH[-1]
    seconds = {factor: stages["all"].median for factor, stages in found["stages"].items()}
    peak = {factor: samples.median for factor, samples in found["peak_bytes"].items()}
    figures = {
        "pipeline_vs_loop": found["loop"][largest].median / seconds[largest],
        "cost_growth_16x": (seconds[largest] / sizes[largest]) / (seconds[smallest] / sizes[smallest]),
    }
    if peak[smallest]:  # without /proc there is none
        figures["pipeline_memory_growth_16x"] = peak[largest] / peak[smallest]
    details = {
        "vocab_size": found["vocab_size"],
        "train_tokenizer_mb_per_second": sizes[smallest] / max(found["vocabulary_seconds"], 1e-9),
    }
    for factor in GROWTH:
        details[f"{factor}x"] = {
            "text_mb": sizes[factor],
            "tokens": found["tokens"][factor],
            "seconds_per_mb": seconds[factor] / sizes[factor],
            "mb_per_second": sizes[factor] / seconds[factor],
            "loop_mb_per_second": sizes[factor] / found["loop"][factor].median,
            "peak_memory_mb": peak[factor] / 1e6,
            "loop_seconds": found["loop"][factor].as_details(),
            "stage_seconds": {name: samples.as_details() for name, samples in found["stages"][factor].items()},
        }
    report(figures, details, options.json)


if __name__ == "__main__":
    main()
