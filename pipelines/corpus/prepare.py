"""From a spec to token shards: three stages, each found by its digest, each made by one job at a time."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from pipelines import storage
from pipelines.corpus import texts as texts_stage
from pipelines.corpus import tokens as tokens_stage
from pipelines.corpus import vocabulary as tokenizer_stage
from pipelines.corpus.described import describe_sources
from pipelines.corpus.documents import split_of
from pipelines.corpus.progress import Progress, Report
from pipelines.corpus.sources import require_files, take_inventory
from pipelines.corpus.texts import Texts
from pipelines.errors import CorpusError
from pipelines.specs.corpus import CorpusSpec, TokenizerSpec
from pipelines.storage.artifacts import MANIFEST_FILE, PreparedCorpus, digest_of
from pipelines.storage.lease import lease
from pipelines.storage.uses import SOURCES_FILE, note_use


def prepare_corpus(
    spec: CorpusSpec, tokenizer: TokenizerSpec, storage_uri: str, report: Report, owner: str
) -> PreparedCorpus:
    """Read, clean, deduplicate, split and tokenise the sources; a complete corpus of the same digest is returned.

    Args:
        spec: sources, cleaning, split. Weights play no part here: they steer the loader.
        tokenizer: the vocabulary to train or to take.
        storage_uri: root of the artifacts: `texts/`, `tokenizers/`, `corpora/` and `leases/` lie below it.
        report: told what is being done, and the share that is done. What it raises ends the preparation.
        owner: who prepares, such as the job's id. A restart under the same name does not wait for its predecessor.

    Ray must be initialised, unless the corpus is complete already.

    Raises:
        CorpusError: too many records are malformed (with a report by file and line), or too little text is left.
        StorageError: a source cannot be read, or the storage cannot be written.
        ResourceError: the cluster had no free CPU, or another job held the same corpus, for too long.
    """
    report("listing the sources", 0.0)
    inventory = take_inventory(spec)
    texts_digest = digest_of(texts_stage.digest_inputs(inventory, spec.cleaning))
    tokenizer_digest = digest_of(tokenizer_stage.digest_inputs(tokenizer, texts_digest, spec.validation_fraction))
    digest = digest_of(tokens_stage.digest_inputs(texts_digest, tokenizer_digest, spec.validation_fraction))
    root = storage.normalise(storage_uri)
    texts_uri, tokenizer_uri, corpus_uri = (
        storage.join(root, *path)
        for path in (("texts", texts_digest), ("tokenizers", tokenizer_digest), ("corpora", digest))
    )
    # Before the look: whoever deletes what nobody uses takes the manifest away before they look for uses.
    note_use(corpus_uri, owner)
    if not storage.exists(storage.join(corpus_uri, SOURCES_FILE)):
        storage.write_json(storage.join(corpus_uri, SOURCES_FILE), describe_sources(inventory, texts_digest))
    if _is_complete(corpus_uri):
        corpus = PreparedCorpus.read(corpus_uri).as_found()
        _check_bad_records(corpus.counts, corpus.report, spec)
        return corpus
    require_files(inventory)
    note_use(texts_uri, owner)

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
            corpus_uri, digest, tokenizer_uri, texts, split, Progress(report, "tokenising", 0.5, 1.0)
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
