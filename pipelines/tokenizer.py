"""WordPiece vocabularies: trained, loaded, and written as Transformers reads them. No torch, no Ray."""

from __future__ import annotations

import json
import logging
import os
from collections.abc import Callable, Iterable
from typing import Any

import numpy as np
import numpy.typing as npt
from tokenizers import Tokenizer, decoders, models, normalizers, pre_tokenizers, processors, trainers

from pipelines import storage
from pipelines.errors import CorpusError
from pipelines.specs.corpus import PretrainedTokenizerSpec, WordPieceSpec
from pipelines.storage.artifacts import SpecialTokenIds

log = logging.getLogger(__name__)

SPECIAL_TOKENS = ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]")
TOKENIZER_FILE = "tokenizer.json"
VOCAB_FILE = "vocab.txt"
CONFIG_FILE = "tokenizer_config.json"
_OF_BERT = frozenset({"Bert", "Electra", "DistilBert", "ConvBert", "MobileBert", "PreTrained"})
"""What the names of tokenizers begin with that cut text into words as BERT does."""
_BERTS_LONGEST_WORD = 100
"""Characters; a longer one is [UNK]."""
MAX_LONGEST_ROW = 10_000_000
"""Tokens; more is a way to say that there is no limit."""


def load_tokenizer(uri: str) -> Tokenizer:
    """The tokenizer of a folder that holds a `tokenizer.json`.

    Raises:
        StorageError: it is absent.
        CorpusError: it is no tokenizer.
    """
    return _parse(storage.join(uri, TOKENIZER_FILE))


def special_ids(tokenizer: Tokenizer) -> SpecialTokenIds:
    """Ids of [PAD], [UNK], [CLS], [SEP] and [MASK].

    Raises:
        CorpusError: the vocabulary lacks one.
    """
    ids: list[Any] = [tokenizer.token_to_id(token) for token in SPECIAL_TOKENS]
    absent = [token for token, token_id in zip(SPECIAL_TOKENS, ids, strict=True) if token_id is None]
    if absent:
        raise CorpusError(f"the tokenizer must know {', '.join(SPECIAL_TOKENS)}; it lacks {', '.join(absent)}")
    return SpecialTokenIds(*ids)


def vocab_size(tokenizer: Tokenizer) -> int:
    """One more than the largest id, so that every id has a row in an embedding."""
    return max(tokenizer.get_vocab(with_added_tokens=True).values()) + 1


def is_continuation(tokenizer: Tokenizer) -> npt.NDArray[np.bool_]:
    """bool[vocab_size]; True at ids whose token goes on with the word before it, as `##ing` does.

    All False where the model has no prefix for such tokens: in a byte-level vocabulary `##` is a heading, no prefix.
    """
    flags = np.zeros(vocab_size(tokenizer), np.bool_)
    prefix: str | None = getattr(tokenizer.model, "continuing_subword_prefix", None)
    if prefix:
        for token, token_id in tokenizer.get_vocab(with_added_tokens=False).items():
            flags[token_id] = token.startswith(prefix)
    return flags


def train_wordpiece(texts: Callable[[], Iterable[str]], spec: WordPieceSpec) -> Tokenizer:
    """Train a vocabulary. The same texts give the same file, on any number of threads.

    Left alone, the library numbers the characters in the order of a randomly seeded hash map and breaks ties between
    equally frequent pairs by these numbers, so no two trainings agree. The alphabet is therefore counted and ordered
    here, and handed over as tokens that exist already.

    Args:
        texts: called twice; gives the training text each time.
        spec: sizes and rules.

    Raises:
        CorpusError: there is no text.
    """
    normalizer = _bert_normalizer(spec.lowercase, spec.strip_accents)
    alphabet, continuing = _alphabet(texts(), normalizer, spec)
    if not alphabet:
        raise CorpusError("there is no text to train a tokenizer on")
    trainer = trainers.WordPieceTrainer(
        vocab_size=spec.vocab_size,
        min_frequency=spec.min_frequency,
        special_tokens=[*SPECIAL_TOKENS, *alphabet, *continuing],
        initial_alphabet=alphabet,
        limit_alphabet=len(alphabet),
        show_progress=False,
    )
    # The trainer runs on a tokenizer of its own: it would make special tokens of the alphabet.
    scratch = Tokenizer(models.WordPiece(unk_token="[UNK]"))  # noqa: S106 - a token of text
    scratch.normalizer, scratch.pre_tokenizer = normalizer, pre_tokenizers.BertPreTokenizer()
    os.environ["TOKENIZERS_PARALLELISM"] = "true"
    scratch.train_from_iterator(texts(), trainer)
    return bert_tokenizer(scratch.get_vocab(with_added_tokens=False), spec.lowercase, spec.strip_accents)


def bert_tokenizer(vocabulary: dict[str, int], lowercase: bool, strip_accents: bool | None) -> Tokenizer:
    """BERT's tokenizer around a vocabulary.

    Raises:
        CorpusError: the vocabulary lacks a special token.
    """
    tokenizer = Tokenizer(models.WordPiece(vocabulary, unk_token="[UNK]", max_input_chars_per_word=_BERTS_LONGEST_WORD))  # noqa: S106 - a token of text
    tokenizer.normalizer = _bert_normalizer(lowercase, strip_accents)
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    tokenizer.decoder = decoders.WordPiece(prefix="##")
    special = special_ids(tokenizer)
    tokenizer.add_special_tokens(list(SPECIAL_TOKENS))
    tokenizer.post_processor = _template(special)
    return tokenizer


def read_pretrained(spec: PretrainedTokenizerSpec) -> Tokenizer:
    """A vocabulary that exists, read `with_rules`, without the truncation and padding its file may ask for.

    Raises:
        StorageError: it cannot be read.
        CorpusError: it is no tokenizer, or lacks a special token; a rule beside it is neither true nor false; or what
            is beside a bare `vocab.txt` says that its words are not BERT's.
    """
    spec = with_rules(spec)
    uri = spec.uri
    if uri.endswith(".json"):
        tokenizer = _parse(uri)
        tokenizer.no_truncation()
        tokenizer.no_padding()
        special_ids(tokenizer)
        _warn_of_other_rules(tokenizer, _config_beside(uri))
        return tokenizer
    _check_class(uri)
    try:
        words = storage.read_bytes(uri).decode("utf-8-sig").replace("\r\n", "\n").removesuffix("\n").split("\n")
    except UnicodeDecodeError as error:
        raise CorpusError(f"{uri} must be UTF-8: {error}") from error
    vocabulary = {word: index for index, word in enumerate(words)}
    if len(vocabulary) != len(words):
        raise CorpusError(f"{uri} must name every entry once, got {len(words)} lines and {len(vocabulary)} entries")
    assert spec.lowercase is not None  # as `with_rules` leaves none open
    if spec.lowercase:
        _warn_of_capitals(uri, words)
    return bert_tokenizer(vocabulary, spec.lowercase, spec.strip_accents)


def with_rules(spec: PretrainedTokenizerSpec) -> PretrainedTokenizerSpec:
    """The file that a spec means, with the rules that the spec leaves open.

    Those of a bare `vocab.txt` are in a `tokenizer_config.json` beside it, if anywhere. Where nothing says, text is
    lowercased, as by BERT's own tokenizer, and `strip_accents` stays None, which follows it. A `tokenizer.json` brings
    its own, and no rule of the spec counts.

    Raises:
        StorageError: there is no vocabulary, or a file cannot be read.
        CorpusError: a rule beside it is neither true nor false.
    """
    file = pretrained_file(spec.uri)
    if file.endswith(".json"):
        return PretrainedTokenizerSpec(uri=file)
    lowercase, strip_accents = spec.lowercase, spec.strip_accents
    beside = _config_beside(file)
    if (lowercase is None or strip_accents is None) and storage.exists(beside):
        config = storage.read_json(beside)
        lowercase = _rule(config, "do_lower_case", beside) if lowercase is None else lowercase
        strip_accents = _rule(config, "strip_accents", beside) if strip_accents is None else strip_accents
    return PretrainedTokenizerSpec(
        uri=file, lowercase=True if lowercase is None else lowercase, strip_accents=strip_accents
    )


def longest_row(uri: str) -> int | None:
    """Tokens that the network beside a vocabulary was made to read, as its `tokenizer_config.json` says; None where
    nothing does.

    Raises:
        StorageError: there is no vocabulary, or a file cannot be read.
    """
    file = pretrained_file(uri)
    beside = _config_beside(file)
    said = storage.read_json(beside).get("model_max_length") if storage.exists(beside) else None
    # Transformers writes 10³⁰ where there is no limit.
    return said if isinstance(said, int) and 0 < said < MAX_LONGEST_ROW else None


def warn_of_ignored_rules(spec: PretrainedTokenizerSpec, field: str) -> None:
    """Say it where a spec has rules for a `tokenizer.json`, which brings its own.

    Args:
        spec: as it was given, before `with_rules`.
        field: of the job's spec.

    Raises:
        StorageError: there is no vocabulary.
    """
    if pretrained_file(spec.uri).endswith(".json") and (spec.lowercase, spec.strip_accents) != (None, None):
        log.warning(
            "tokenizer_rules_ignored",
            extra={"uri": spec.uri, "reason": "a tokenizer.json brings its own", "field": field},
        )


def pretrained_file(uri: str) -> str:
    """The file that `uri` means: itself, or `tokenizer.json` or `vocab.txt` inside the folder it names.

    Raises:
        StorageError: there is neither.
    """
    if uri.endswith((".json", ".txt")):
        return storage.normalise(uri)
    for name in (TOKENIZER_FILE, VOCAB_FILE):
        if storage.exists(storage.join(uri, name)):
            return storage.join(uri, name)
    raise storage.StorageError(uri, "must be or hold a tokenizer.json or a vocab.txt")


def save_tokenizer(tokenizer: Tokenizer, uri: str, max_length: int | None = None) -> None:
    """Write the folder that `transformers.AutoTokenizer.from_pretrained` reads.

    Args:
        tokenizer: whatever its kind.
        uri: the folder.
        max_length: tokens of a row that the network beside it was made for. Transformers cuts where this says, and
            nowhere without it: longer texts then end in an error of its embeddings.
    """
    tokenizer = _with_special_tokens(tokenizer)
    state = json.loads(tokenizer.to_str())
    config: dict[str, Any] = {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "clean_up_tokenization_spaces": True,
        # Without the second, which Transformers leaves out for most, the texts of a pair would be one to a network.
        "model_input_names": ["input_ids", "token_type_ids", "attention_mask"],
        **{f"{name}_token": f"[{name.upper()}]" for name in SpecialTokenIds._fields},
    }
    if _is_berts(state):
        normalizer = state["normalizer"]
        config |= {
            "tokenizer_class": "BertTokenizer",
            "do_lower_case": normalizer["lowercase"],
            "strip_accents": normalizer["strip_accents"],
            "tokenize_chinese_chars": normalizer["handle_chinese_chars"],
        }
        words = sorted(tokenizer.get_vocab(with_added_tokens=True).items(), key=lambda item: item[1])
        storage.write_bytes(storage.join(uri, VOCAB_FILE), "".join(f"{word}\n" for word, _ in words).encode())
    if max_length is not None:
        config["model_max_length"] = max_length
    storage.write_json(storage.join(uri, CONFIG_FILE), config)
    storage.write_bytes(storage.join(uri, TOKENIZER_FILE), tokenizer.to_str(pretty=True).encode())


def _with_special_tokens(tokenizer: Tokenizer) -> Tokenizer:
    """A copy that puts [CLS] and [SEP] around texts: rows are made so here whatever its file says, and Transformers
    does as the file says.
    """
    special = special_ids(tokenizer)
    tokenizer = Tokenizer.from_str(tokenizer.to_str())
    tokenizer.no_truncation()
    tokenizer.no_padding()
    pair = tokenizer.encode("", "")
    if pair.ids != [special.cls, special.sep, special.sep] or pair.type_ids != [0, 0, 1]:
        tokenizer.post_processor = _template(special)
    return tokenizer


def _template(special: SpecialTokenIds) -> Any:
    return processors.TemplateProcessing(
        single="[CLS] $A [SEP]",
        pair="[CLS] $A [SEP] $B:1 [SEP]:1",
        special_tokens=[("[CLS]", special.cls), ("[SEP]", special.sep)],
    )


def _is_berts(state: dict[str, Any]) -> bool:
    """Whether Transformers' `BertTokenizer` is the same: it makes all but the vocabulary and a few rules anew."""
    model, normalizer = state["model"], state["normalizer"] or {}
    rules = ("unk_token", "continuing_subword_prefix", "max_input_chars_per_word")
    return (
        model["type"] == "WordPiece"
        and [model[rule] for rule in rules] == ["[UNK]", "##", _BERTS_LONGEST_WORD]
        and normalizer.get("type") == "BertNormalizer"
        and normalizer["clean_text"]
        and (state["pre_tokenizer"] or {}).get("type") == "BertPreTokenizer"
    )


def _parse(uri: str) -> Tokenizer:
    data = storage.read_bytes(uri)
    try:
        return Tokenizer.from_str(data.decode())
    except Exception as error:  # the library raises bare Exception
        raise CorpusError(f"{uri} is no tokenizer: {error}") from error


def _config_beside(file: str) -> str:
    return storage.join(file[: file.rfind("/") + 1], CONFIG_FILE)


def _check_class(uri: str) -> None:
    """A vocabulary is half of a tokenizer: `BertJapaneseTokenizer` finds words with MeCab, and cut as BERT cuts them,
    its text would be other tokens than the network was trained on.
    """
    beside = _config_beside(uri)
    name = storage.read_json(beside).get("tokenizer_class") if storage.exists(beside) else None
    if name is not None and str(name).removesuffix("Fast").removesuffix("Tokenizer") not in _OF_BERT:
        raise CorpusError(
            f"{beside}: tokenizer_class must be BertTokenizer or ElectraTokenizer where there is a vocab.txt alone, "
            f"got {name!r}; a tokenizer.json would say how text is read"
        )


def _rule(config: dict[str, Any], name: str, uri: str) -> bool | None:
    value = config.get(name)
    if not isinstance(value, bool | None):
        raise CorpusError(f"{uri}: {name} must be true or false, got {value!r}")
    return value


def _warn_of_other_rules(tokenizer: Tokenizer, beside: str) -> None:
    """A `tokenizer.json` is read as it is, where Transformers lets the rules beside it count: both cannot be right."""
    normalizer = json.loads(tokenizer.to_str())["normalizer"] or {}
    if normalizer.get("type") != "BertNormalizer" or not storage.exists(beside):
        return
    config = storage.read_json(beside)
    for ours, theirs in (("lowercase", "do_lower_case"), ("strip_accents", "strip_accents")):
        if config.get(theirs) is not None and config[theirs] != normalizer[ours]:
            reason = f"tokenizer.json counts, with {ours} {normalizer[ours]}; {theirs} is {config[theirs]} there"
            log.warning("tokenizer_rules_differ", extra={"uri": beside, "reason": reason})


def _warn_of_capitals(uri: str, words: Iterable[str]) -> None:
    """Entries that no lowercased text has: the vocabulary is one of cased text, and half of it would lie idle."""
    cased = [word for word in words if word != word.lower() and not (word.startswith("[") and word.endswith("]"))]
    if cased:
        log.warning(
            "lowercased_text_for_a_cased_vocabulary",
            extra={"uri": uri, "num_entries_with_capitals": len(cased), "first": cased[:5]},
        )


def _bert_normalizer(lowercase: bool, strip_accents: bool | None) -> Any:
    return normalizers.BertNormalizer(
        clean_text=True, handle_chinese_chars=True, strip_accents=strip_accents, lowercase=lowercase
    )


def _alphabet(texts: Iterable[str], normalizer: Any, spec: WordPieceSpec) -> tuple[list[str], list[str]]:
    """The most frequent characters in order of their code points, and their `##` forms where words can have them."""
    raw = np.zeros(0x110000, np.int64)
    for text in texts:
        raw += np.bincount(np.frombuffer(text.encode("utf-32-le"), np.uint32), minlength=len(raw))
    counts: dict[str, int] = {}
    for code in np.flatnonzero(raw):
        # Every rule of the normaliser looks at one character, so a count of characters need not normalise the text.
        for character in normalizer.normalize_str(chr(code)):
            if not character.isspace():
                counts[character] = counts.get(character, 0) + int(raw[code])
    room = spec.vocab_size - len(SPECIAL_TOKENS)
    kept: list[str] = []
    continuing: list[str] = []
    pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    for character in sorted(counts, key=lambda character: (-counts[character], character)):
        # Punctuation and Chinese characters are words of their own: nothing continues with them.
        continues = len(pre_tokenizer.pre_tokenize_str(normalizer.normalize_str(f"a{character}"))) == 1
        room -= 1 + continues
        if room < 0 or len(kept) == spec.limit_alphabet:
            break
        kept.append(character)
        if continues:
            continuing.append(f"##{character}")
    return sorted(kept), sorted(continuing)
