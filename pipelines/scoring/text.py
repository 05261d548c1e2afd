"""Unseen text: both networks' losses on rows that are read as pretraining reads them."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from electra_core.batches import SpecialTokens, TokenBatch
from electra_core.masking import apply_mask
from electra_core.metrics import figures
from electra_core.randomness import Draws
from electra_core.scoring.networks import Discriminator, MaskedLanguageModel
from electra_core.scoring.unseen import score_unseen
from pipelines.corpus.cleaning import clean, document_hash, verdict
from pipelines.corpus.encoding import Encoder
from pipelines.corpus.readers import BadRecord, Position, read_records
from pipelines.corpus.sources import cut_into_pieces, take_inventory
from pipelines.errors import DataError
from pipelines.scoring.networks import KeptNetwork
from pipelines.specs.corpus import CorpusSpec, Source
from pipelines.specs.evaluate import UnseenTextSpec
from pipelines.tasks.files import MAX_REPORTED_ROWS
from pipelines.tokenizer import is_continuation, load_tokenizer, vocab_size
from pipelines.training.roc import area_under_roc

TOKENS_PER_BATCH = 4096


@dataclass(frozen=True)
class TextScores:
    """Both networks on one source, as its document holds it."""

    num_rows: int
    num_tokens: int
    """Of text: special tokens and padding left out."""
    num_documents: int
    num_bad_records: int
    report: tuple[str, ...]
    """The first malformed records, by file and line."""
    figures: dict[str, float]
    """Those of `metrics.figures`, `discriminator_auc`, and `generator_perplexity`: e to the generator's loss."""


@dataclass
class _Reading:
    """What has been seen of a source so far."""

    num_records: int = 0
    num_bad_records: int = 0
    num_documents: int = 0


class TextRows:
    """Rows of one source: [CLS], tokens, [SEP]; documents inside a row end in [SEP], and the last row may be padded.

    Args:
        name: of the source in the spec.
        source: what to read.
        spec: cleaning, length and number of rows.
        tokenizer_uri: folder of the networks' tokenizer.
        special: ids of the special tokens.
    """

    def __init__(
        self, name: str, source: Source, spec: UnseenTextSpec, tokenizer_uri: str, special: SpecialTokens
    ) -> None:
        self._name, self._source, self._spec, self._special = name, source, spec, special
        tokenizer = load_tokenizer(tokenizer_uri)
        tokenizer.no_truncation()
        tokenizer.no_padding()
        self._encoder = Encoder(tokenizer, np.int64)
        self.reading = _Reading()
        self.report: list[str] = []

    def read(self) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.bool_]]:
        """Ids and whether they are real: int64 and bool[rows, sequence_length].

        Raises:
            DataError: there is no text, or too many records are malformed.
            StorageError: a file cannot be read.
        """
        width, most = self._spec.sequence_length - 2, self._spec.max_rows
        kept: list[npt.NDArray[np.int64]] = []
        num_tokens = 0
        for ids in self._encoder.encode(self._documents()):
            if not len(ids):
                continue
            self.reading.num_documents += 1
            kept += [ids, np.array([self._special.sep_id])]
            num_tokens += len(ids) + 1
            if num_tokens >= most * width:
                break
        self._check()
        # What ends the last document ends its row too.
        stream = np.concatenate(kept)[:-1][: most * width]
        num_rows = -(-len(stream) // width)
        rows = np.full((num_rows, width + 2), self._special.pad_id, np.int64)
        rows[:, 0] = self._special.cls_id
        rows[:, 1:-1].flat[: len(stream)] = stream
        lengths = np.full(num_rows, width)
        lengths[-1] = len(stream) - (num_rows - 1) * width
        rows[np.arange(num_rows), lengths + 1] = self._special.sep_id
        return rows, np.arange(width + 2) < lengths[:, None] + 2

    def _documents(self) -> Iterator[str]:
        seen: set[bytes] = set()
        lines_before: dict[str, int] = {}  # of the pieces of a file that were read
        for piece in cut_into_pieces(take_inventory(CorpusSpec(sources=(self._source,)))):
            position, before = Position(), lines_before.get(piece.uri, 0)
            for record in read_records(piece, position):
                self.reading.num_records += 1
                if isinstance(record, BadRecord):
                    self.reading.num_bad_records += 1
                    if len(self.report) < MAX_REPORTED_ROWS:
                        unit = "record " if piece.kind == "parquet" else ""
                        line = f"{piece.uri}:{unit}{before + record.line}: {record.kind}: {record.detail}"
                        self.report.append(line)
                    continue
                text = clean(record, self._spec.cleaning)
                if verdict(text, self._spec.cleaning) != "kept":
                    continue
                digest = document_hash(text.encode())
                if self._spec.cleaning.deduplicate and digest in seen:
                    continue
                seen.add(digest)
                yield text
            lines_before[piece.uri] = before + position.line

    def _check(self) -> None:
        reading, limit = self.reading, self._spec.max_bad_record_fraction
        if reading.num_bad_records > limit * reading.num_records:
            raise DataError(
                f"unseen_text.max_bad_record_fraction must be at least the share of malformed records in "
                f"unseen_text.sources.{self._name}, got {limit:g} and {reading.num_bad_records} of "
                f"{reading.num_records}",
                tuple(self.report),
            )
        if not reading.num_documents:
            raise DataError(
                f"unseen_text.sources.{self._name} must hold text, got {reading.num_records} records without any "
                "that unseen_text.cleaning.min_characters and max_characters let through",
                tuple(self.report),
            )


def score_text(
    generator: KeptNetwork,
    discriminator: KeptNetwork | None,
    name: str,
    source: Source,
    spec: UnseenTextSpec,
    device: torch.device,
) -> TextScores:
    """Read one source and score it.

    Raises:
        CheckpointError: a network's file is damaged.
        CorpusError: whole words are to be masked, and the vocabulary has no continuations.
        DataError: see `TextRows.read`.
        StorageError: a file cannot be read.
    """
    rows = TextRows(name, source, spec, generator.uri, generator.special)
    ids, is_real = rows.read()
    sums, detected = _sums(generator, discriminator, spec, torch.from_numpy(ids), torch.from_numpy(is_real), device)
    named = figures(sums)
    if sums["generator_correct_positions"]:
        named["generator_perplexity"] = math.exp(min(named["generator_loss"], 700.0))
    else:  # no whole word was short enough to be masked
        del named["generator_loss"], named["generator_accuracy"]
    if detected is not None:
        named["discriminator_auc"] = area_under_roc(*detected)
    return TextScores(
        num_rows=len(ids),
        num_tokens=int((is_real & (ids != generator.special.cls_id) & (ids != generator.special.sep_id)).sum()),
        num_documents=rows.reading.num_documents,
        num_bad_records=rows.reading.num_bad_records,
        report=tuple(rows.report),
        figures=named,
    )


def _sums(
    generator: KeptNetwork,
    discriminator: KeptNetwork | None,
    spec: UnseenTextSpec,
    ids: Tensor,
    is_real: Tensor,
    device: torch.device,
) -> tuple[dict[str, float], tuple[npt.NDArray[np.float32], npt.NDArray[np.float32]] | None]:
    """Sums of everything that adds up, and labels and logits of all positions the discriminator was asked about."""
    tokenizer = load_tokenizer(generator.uri)
    continuations = torch.from_numpy(is_continuation(tokenizer)).to(device) if spec.masking.whole_word else None
    if continuations is not None and not continuations.any():
        raise DataError("unseen_text.masking.whole_word needs a vocabulary with ## continuations, got one without")
    masked_lm = generator.load().to(device)
    assert isinstance(masked_lm, MaskedLanguageModel)
    detector = None if discriminator is None else discriminator.load().to(device)
    assert detector is None or isinstance(detector, Discriminator)
    sums: dict[str, float] = {}
    labels: list[Tensor] = []
    logits: list[Tensor] = []
    rows_per_batch = max(1, TOKENS_PER_BATCH // ids.shape[1])
    for start in range(0, len(ids), rows_per_batch):
        chosen = slice(start, start + rows_per_batch)
        numbers = torch.arange(len(ids), device=device)[chosen]
        batch = TokenBatch(
            ids[chosen].to(device), is_real[chosen].to(device), numbers, is_packed=bool(is_real[chosen].all())
        )
        draws = Draws(spec.seed, 0, numbers)
        masked = apply_mask(
            batch,
            spec.masking,
            generator.special,
            draws,
            vocab_size=vocab_size(tokenizer),
            is_continuation=continuations,
        )
        scored = score_unseen(masked_lm, detector, masked, draws)
        for key, value in scored.detached().items():
            sums[key] = sums.get(key, 0.0) + float(value)
        if scored.detection is not None:
            labels.append(scored.detection.is_replaced[scored.detection.is_scored].float().cpu())
            logits.append(scored.detection.logits[scored.detection.is_scored].cpu())
    if detector is None:
        return sums, None
    return sums, (torch.cat(labels).numpy(), torch.cat(logits).numpy())
