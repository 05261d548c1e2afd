"""From a spec to token shards: three stages, each found by its digest, each made by one job at a time."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Protocol

from pipelines import storage
from pipelines.corpus import texts as texts_stage
from pipelines.corpus import tokens as tokens_stage
from pipelines.corpus import vocabulary as tokenizer_stage
from pipelines.corpus.described import describe_sources
from pipelines.corpus.documents import split_of
from pipelines.corpus.progress import Progress, Report
from pipelines.corpus.sources import Inventory, require_files, take_inventory
from pipelines.corpus.texts import Texts
from pipelines.errors import CorpusError
from pipelines.specs.corpus import CorpusSpec, TokenizerSpec, decisive_words
from pipelines.specs.documents import CorpusPin
from pipelines.storage.artifacts import MANIFEST_FILE, PreparedCorpus, digest_of
from pipelines.storage.lease import lease
from pipelines.storage.uses import SOURCES_FILE, note_use


class Pins(Protocol):
    """Where a job writes down which corpus it trains on."""

    def read(self, words: str) -> CorpusPin | None:
        """The corpus that was prepared of the same words before."""

    def write(self, pin: CorpusPin) -> None:
        """Write it down."""


def prepare_corpus(
    spec: CorpusSpec,
    tokenizer: TokenizerSpec,
    storage_uri: str,
    report: Report,
    owner: str,
    pins: Pins | None = None,
) -> PreparedCorpus:
    """Read, clean, deduplicate, split and tokenise the sources; a complete corpus of the same digest is returned.

    Args:
        spec: sources, cleaning, split. Weights play no part here: they steer the loader.
        tokenizer: the vocabulary to train or to take.
        storage_uri: root of the artifacts: `texts/`, `tokenizers/`, `corpora/` and `leases/` lie below it.
        report: told what is being done, and the share that is done. What it raises ends the preparation.
        owner: who prepares, such as the job's id. A restart under the same name does not wait for its predecessor.
        pins: of the job. A corpus that it has prepared before is taken as it is, and its sources are not looked at.

    Ray must be initialised, unless the corpus is complete already.

    Raises:
        CorpusError: too many records are malformed (with a report by file and line), too little text is left, or the
            corpus that the job trained on is gone and its sources are no longer the same.
        StorageError: a source cannot be read, or the storage cannot be written.
        ResourceError: the cluster had no free CPU, or another job held the same corpus, for too long.
    """
    root = storage.normalise(storage_uri)
    words = words_digest(spec, tokenizer)
    pin = None if pins is None else pins.read(words)
    inventory: tuple[Inventory, ...] = ()
    if pin is not None:
        _note_uses(root, pin, owner)
    if pin is None or not _can_be_had(root, pin):
        report("listing the sources", 0.0)
        inventory = take_inventory(spec)
        found = resolve_corpus(spec, tokenizer, inventory)
        if pin is not None and found != pin:
            raise CorpusError(
                f"corpus.sources must be as they were when the job prepared them as corpus {pin.corpus[:12]}: that was "
                f"deleted, and now they give {found.corpus[:12]}. `electra clone` begins with them as they are."
            )
        pin = found
    corpus = _prepared(spec, tokenizer, root, pin, inventory, report, owner)
    if pins is not None:
        pins.write(pin)
    return corpus


def words_digest(spec: CorpusSpec, tokenizer: TokenizerSpec) -> str:
    """Of all that a spec says that decides its corpus, and of how this version prepares one."""
    formats = [stage.FORMAT_VERSION for stage in (texts_stage, tokenizer_stage, tokens_stage)]
    return digest_of({**decisive_words(spec, tokenizer), "formats": formats})


def resolve_corpus(spec: CorpusSpec, tokenizer: TokenizerSpec, inventory: tuple[Inventory, ...]) -> CorpusPin:
    """The digests of the corpus that these files give. Raises `StorageError` where a vocabulary cannot be read."""
    texts = digest_of(texts_stage.digest_inputs(inventory, spec.cleaning))
    vocabulary = digest_of(tokenizer_stage.digest_inputs(tokenizer, texts, spec.validation_fraction))
    corpus = digest_of(tokens_stage.digest_inputs(texts, vocabulary, spec.validation_fraction))
    return CorpusPin(words=words_digest(spec, tokenizer), texts=texts, tokenizer=vocabulary, corpus=corpus)


def _note_uses(root: str, pin: CorpusPin, owner: str) -> None:
    """Before any look: whoever deletes what nobody uses takes the manifest away before they look for uses."""
    note_use(storage.join(root, "corpora", pin.corpus), owner)
    note_use(storage.join(root, "texts", pin.texts), owner)


def _can_be_had(root: str, pin: CorpusPin) -> bool:
    """Without the sources: it is there, or the texts and the vocabulary that it is made of are."""
    if _is_complete(storage.join(root, "corpora", pin.corpus)):
        return True
    made_of = (("texts", pin.texts), ("tokenizers", pin.tokenizer))
    return all(_is_complete(storage.join(root, *path)) for path in made_of)


def _prepared(
    spec: CorpusSpec,
    tokenizer: TokenizerSpec,
    root: str,
    pin: CorpusPin,
    inventory: tuple[Inventory, ...],
    report: Report,
    owner: str,
) -> PreparedCorpus:
    """The corpus of these digests, made unless it is there. `inventory` is empty where it can be had without."""
    texts_uri, tokenizer_uri, corpus_uri = (
        storage.join(root, *path)
        for path in (("texts", pin.texts), ("tokenizers", pin.tokenizer), ("corpora", pin.corpus))
    )
    # Before the look: whoever deletes what nobody uses takes the manifest away before they look for uses.
    note_use(corpus_uri, owner)
    if inventory and not storage.exists(storage.join(corpus_uri, SOURCES_FILE)):
        storage.write_json(storage.join(corpus_uri, SOURCES_FILE), describe_sources(inventory, pin.texts))
    if _is_complete(corpus_uri):
        corpus = PreparedCorpus.read(corpus_uri).as_found()
        _check_bad_records(corpus.counts, corpus.report, spec)
        return corpus
    note_use(texts_uri, owner)
    if not inventory and not _is_complete(texts_uri):  # deleted since it was looked for
        raise CorpusError(f"corpus {pin.corpus[:12]} and its texts were deleted a moment ago; retry the job")
    if inventory:
        require_files(inventory)

    def make(uri: str, write: Callable[[], object]) -> bool:
        """Whether this call made the artifact, and no one else."""
        name = "-".join(uri.rsplit("/", 2)[1:])
        with lease(
            storage.join(root, "leases", f"{name}.json"),
            owner,
            lambda: _is_complete(uri),
            report=lambda message: report(message, None),
        ) as is_ours:
            if is_ours:
                write()
        return is_ours

    make(
        texts_uri,
        lambda: texts_stage.write_texts(
            texts_uri, inventory, spec.cleaning, Progress(report, "reading and cleaning", 0.0, 0.3)
        ),
    )
    texts = Texts.read(texts_uri)
    _check_bad_records(texts.counts, texts.report, spec)
    split = split_of(texts, spec.validation_fraction)
    make(
        tokenizer_uri,
        lambda: tokenizer_stage.write_tokenizer(
            tokenizer_uri, tokenizer, texts, split, Progress(report, "training the tokenizer", 0.3, 0.5)
        ),
    )
    is_ours = make(
        corpus_uri,
        lambda: tokens_stage.write_tokens(
            corpus_uri, pin.corpus, tokenizer_uri, texts, split, Progress(report, "tokenising", 0.5, 1.0)
        ),
    )
    corpus = PreparedCorpus.read(corpus_uri)
    return corpus if is_ours else corpus.as_found()


def _is_complete(uri: str) -> bool:
    return storage.exists(storage.join(uri, MANIFEST_FILE))


def _check_bad_records(counts: Mapping[str, int], report: tuple[str, ...], spec: CorpusSpec) -> None:
    records, bad = counts["records"], counts["bad_records"]
    if bad > spec.max_bad_record_fraction * records:
        kinds = ", ".join(f"{n} {kind.removeprefix('bad_').replace('_', ' ')}" for kind, n in sorted(counts.items())
                          if kind.startswith("bad_") and kind != "bad_records")  # fmt: skip
        raise CorpusError(
            f"{bad} of {records} records are malformed ({kinds}), more than corpus.max_bad_record_fraction = "
            f"{spec.max_bad_record_fraction:g} allows; mend the lines below, or raise the limit:\n" + "\n".join(report),
            report,
        )
