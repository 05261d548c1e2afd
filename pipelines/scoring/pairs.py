"""Minimal pairs: which sentence of each pair a pretrained network prefers, without any training."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import torch
from tokenizers import Tokenizer

from electra_core.batches import SpecialTokens, TokenBatch
from electra_core.scoring.networks import Discriminator, MaskedLanguageModel
from electra_core.scoring.sentences import original_log_probability, pseudo_log_likelihood
from pipelines.errors import DataError
from pipelines.scoring.networks import KeptNetwork
from pipelines.specs.evaluate import MinimalPairsSpec
from pipelines.specs.labelled import format_of
from pipelines.tasks.files import MAX_REPORTED_ROWS, BadValueError, text_of
from pipelines.tasks.tables import BadRow, Row, is_broken, read_rows
from pipelines.tokenizer import load_tokenizer

TOKENS_PER_BATCH = 8192
"""Of one batch, padding included."""
MOST_ROWS = 512
"""Of one batch of masked rows: each has a logit for every id."""
MOST_PHENOMENA = 1000
"""Of a file: each has a figure of its own."""
MOST_CHARACTERS = 200
"""Of what a pair is about."""
_TABLES = ("jsonl", "csv", "tsv", "parquet")


Ids = tuple[int, ...]
"""Of a sentence, without special tokens."""


class Pair(NamedTuple):
    """Two sentences, the better one first."""

    line: int
    good: Ids
    bad: Ids
    phenomenon: str


@dataclass(frozen=True)
class PairFile:
    """What was read of one file."""

    pairs: tuple[Pair, ...]
    num_rows: int
    num_bad_rows: int
    report: tuple[str, ...]
    """The first malformed lines, by file and line."""


@dataclass(frozen=True)
class PairScores:
    """One network on one file, as its document holds it."""

    num_pairs: int
    num_right: dict[str, int]
    """By phenomenon: pairs whose better sentence scored higher. A tie is wrong."""
    num_by_phenomenon: dict[str, int]
    num_alike: int
    """Pairs whose sentences are the same tokens to the network: always a tie."""
    num_rows: int
    num_bad_rows: int
    report: tuple[str, ...]

    @property
    def accuracy(self) -> float:
        """Share of the pairs that are right."""
        return sum(self.num_right.values()) / self.num_pairs


def read_pairs(uri: str, spec: MinimalPairsSpec, tokenizer: Tokenizer, max_tokens: int) -> PairFile:
    """The pairs of one file.

    Args:
        uri: a table whose name tells its format.
        spec: keys, and how many lines may be malformed.
        tokenizer: the network's.
        max_tokens: of a sentence, [CLS] and [SEP] included.

    Raises:
        DataError: there is no pair, too many lines are malformed, or the file is damaged.
        StorageError: it cannot be read.
    """
    pairs: list[Pair] = []
    report: list[str] = []
    num_rows = num_bad = 0
    for row in _rows(uri, spec, tokenizer, max_tokens):
        if isinstance(row, BadRow):
            # A quotation mark that is never closed takes all lines behind it along.
            num_rows += row.num_lines
            num_bad += row.num_lines
            if len(report) < MAX_REPORTED_ROWS:
                report.append(str(row))
            continue
        num_rows += 1
        pairs.append(row)
        if len(pairs) == spec.max_pairs_per_file:
            break
    if num_bad > spec.max_bad_row_fraction * num_rows:
        raise DataError(
            f"minimal_pairs.max_bad_row_fraction must be at least the share of malformed lines in {uri}, "
            f"got {spec.max_bad_row_fraction:g} and {num_bad} of {num_rows}",
            tuple(report),
        )
    if not pairs:
        raise DataError(f"{uri} must hold pairs of sentences, got {num_rows} lines with none", tuple(report))
    num_phenomena = len({pair.phenomenon for pair in pairs})
    if num_phenomena > MOST_PHENOMENA:
        raise DataError(
            f"minimal_pairs.phenomenon must name a key with at most {MOST_PHENOMENA} values in a file, got "
            f"{spec.phenomenon!r} with {num_phenomena} in {uri}"
        )
    return PairFile(tuple(pairs), num_rows, num_bad, tuple(report))


def _rows(uri: str, spec: MinimalPairsSpec, tokenizer: Tokenizer, max_tokens: int) -> Iterator[Pair | BadRow]:
    kind, name = format_of(uri), file_name(uri)
    if kind not in _TABLES:
        raise DataError(f"minimal_pairs.uris must name files that end in .{', .'.join(_TABLES)}, got {uri}")
    for row in read_rows(uri, kind, columns=(spec.sentence_good, spec.sentence_bad, spec.phenomenon)):
        if isinstance(row, BadRow):
            yield row
            continue
        try:
            yield _pair(row, spec, tokenizer, max_tokens, name)
        except BadValueError as error:
            yield BadRow(row.uri, row.line, str(error))


def _pair(row: Row, spec: MinimalPairsSpec, tokenizer: Tokenizer, max_tokens: int, name: str) -> Pair:
    texts = [text_of(row, column) for column in (spec.sentence_good, spec.sentence_bad)]
    if texts[0] == texts[1]:
        raise BadValueError(
            f"{spec.sentence_good!r} and {spec.sentence_bad!r} must differ, got {texts[0]!r:.100} twice"
        )
    good, bad = (tuple(tokenizer.encode(text, add_special_tokens=False).ids) for text in texts)
    for column, ids in ((spec.sentence_good, good), (spec.sentence_bad, bad)):
        if not 3 <= len(ids) + 2 <= max_tokens:
            raise BadValueError(
                f"{column!r} must have 3 to {max_tokens} tokens, [CLS] and [SEP] included, got {len(ids) + 2}"
            )
    about = row.values.get(spec.phenomenon)
    phenomenon = name if about is None else str(about).strip() or name
    if is_broken(phenomenon) or len(phenomenon) > MOST_CHARACTERS:
        raise BadValueError(
            f"{spec.phenomenon!r} must be at most {MOST_CHARACTERS} characters of UTF-8, got {phenomenon!r:.100}"
        )
    return Pair(row.line, good, bad, phenomenon)


def file_name(uri: str) -> str:
    """Of a file, without its endings."""
    name = uri.rsplit("/", 1)[-1]
    return name.removesuffix(".gz").removesuffix(".zst").rpartition(".")[0] or name


def score_pairs(
    network: KeptNetwork, uri: str, spec: MinimalPairsSpec, max_tokens: int, device: torch.device
) -> tuple[PairScores, str]:
    """Read one file and ask one network.

    Returns:
        The counts; and JSON lines with both scores of every pair, in nats.

    Raises:
        CheckpointError: the network's file is damaged.
        DataError: see `read_pairs`.
        StorageError: a file cannot be read.
    """
    read = read_pairs(uri, spec, pairs_tokenizer(network.uri), max_tokens)
    return score_read(network.load().to(device), read, network.special, device)


def pairs_tokenizer(uri: str) -> Tokenizer:
    """The tokenizer of a folder, as pairs are read with it.

    Raises:
        StorageError: it cannot be read.
    """
    tokenizer = load_tokenizer(uri)
    tokenizer.no_truncation()
    tokenizer.no_padding()
    tokenizer.encode_special_tokens = True  # a sentence that speaks of "[MASK]" shows the network none
    return tokenizer


def score_read(
    network: Discriminator | MaskedLanguageModel, read: PairFile, special: SpecialTokens, device: torch.device
) -> tuple[PairScores, str]:
    """Ask a network, in eval mode and on `device`, for the pairs of a file; returns what `score_pairs` does."""
    # Each sentence once: what is the same to the network must come out the same, to the last bit.
    sentences = list(dict.fromkeys(ids for pair in read.pairs for ids in (pair.good, pair.bad)))
    scores = dict(zip(sentences, sentence_scores(network, sentences, special, device), strict=True))
    num_right, num_all = dict[str, int](), dict[str, int]()
    lines = []
    for pair in read.pairs:
        good, bad = float(scores[pair.good]), float(scores[pair.bad])
        num_all[pair.phenomenon] = num_all.get(pair.phenomenon, 0) + 1
        num_right[pair.phenomenon] = num_right.get(pair.phenomenon, 0) + (good > bad)
        lines.append(json.dumps({"line": pair.line, "phenomenon": pair.phenomenon, "good": good, "bad": bad}) + "\n")
    counts = PairScores(
        num_pairs=len(read.pairs),
        num_right=num_right,
        num_by_phenomenon=num_all,
        num_alike=sum(pair.good == pair.bad for pair in read.pairs),
        num_rows=read.num_rows,
        num_bad_rows=read.num_bad_rows,
        report=read.report,
    )
    return counts, "".join(lines)


def sentence_scores(
    network: Discriminator | MaskedLanguageModel,
    sentences: Sequence[Sequence[int]],
    special: SpecialTokens,
    device: torch.device,
) -> npt.NDArray[np.float64]:
    """How natural each sentence is to the network: nats, the higher the better.

    Args:
        network: in eval mode, on `device`.
        sentences: ids of each, without special tokens.
        special: ids of the special tokens.
        device: where it is computed.
    """
    lengths = np.array([len(ids) + 2 for ids in sentences])
    scores = np.zeros(len(sentences))
    order = np.argsort(-lengths, kind="stable")
    at = 0
    while at < len(order):
        longest = int(lengths[order[at]])
        some = order[at : at + max(1, TOKENS_PER_BATCH // longest)]
        at += len(some)
        batch = _batch([sentences[index] for index in some], longest, special, device)
        if isinstance(network, Discriminator):
            found = original_log_probability(network, batch, special)
        else:
            found = pseudo_log_likelihood(network, batch, special, min(MOST_ROWS, max(1, TOKENS_PER_BATCH // longest)))
        scores[some] = found.double().cpu().numpy()
    return scores


def _batch(
    sentences: Sequence[Sequence[int]], longest: int, special: SpecialTokens, device: torch.device
) -> TokenBatch:
    rows = [[special.cls_id, *ids, special.sep_id] for ids in sentences]
    padded = torch.tensor([row + [special.pad_id] * (longest - len(row)) for row in rows], device=device)
    lengths = torch.tensor([len(row) for row in rows], device=device)
    return TokenBatch(
        input_ids=padded,
        attention_mask=torch.arange(longest, device=device) < lengths[:, None],
        rows=torch.arange(len(rows), device=device),
        is_packed=all(len(row) == longest for row in rows),
    )
