"""CoNLL files: a word a line, columns between blanks, an empty line after each sentence; and CoNLL-U."""

from __future__ import annotations

from collections.abc import Iterator

from pipelines.errors import DataError
from pipelines.tasks.examples import TaggedExample
from pipelines.tasks.tables import BadRow, is_broken, read_text

CONLLU_COLUMNS = ("id", "form", "lemma", "upos", "xpos", "feats", "head", "deprel", "deps", "misc")
_NO_VALUE = "_"


def read_conllu(uri: str, tags: str) -> Iterator[TaggedExample | BadRow]:
    """The sentences of a CoNLL-U file, with one of its columns as labels.

    Lines of joined words (`3-4`) and empty nodes (`5.1`) are passed over: they carry no tag of their own.

    Raises:
        DataError: there is no such column.
        StorageError: the file cannot be read.
    """
    if tags not in CONLLU_COLUMNS:
        raise DataError(f"task.tags must be a column of CoNLL-U, {', '.join(CONLLU_COLUMNS)}, got {tags!r}")
    column = CONLLU_COLUMNS.index(tags)
    for first, lines in _sentences(uri):
        words: list[str] = []
        labels: list[str] = []
        problem = ""
        for number, line in lines:
            cells = line.split("\t")
            if line.startswith("#"):
                continue
            if len(cells) != len(CONLLU_COLUMNS):
                problem = f"line {number} must have 10 columns between tabs, got {len(cells)}"
            elif cells[0].isdecimal():
                words.append(cells[1])
                labels.append(cells[column])
        if not problem and _NO_VALUE in labels:
            problem = f"every word must have a value in {tags}, got none for {words[labels.index(_NO_VALUE)]!r}"
        if words or problem:
            yield _example(uri, first, lines, words, labels, problem)


def read_conll(uri: str, token_column: int, tag_column: int) -> Iterator[TaggedExample | BadRow]:
    """The sentences of a file of columns.

    Args:
        uri: the file; lines that begin with `-DOCSTART-` or `#` + blank are passed over.
        token_column: number of the column of words from 0; negative ones count from the end.
        tag_column: that of the labels.

    Raises:
        StorageError: the file cannot be read.
    """
    needed = max(column + 1 if column >= 0 else -column for column in (token_column, tag_column))
    for first, lines in _sentences(uri):
        words: list[str] = []
        labels: list[str] = []
        problem = ""
        for number, line in lines:
            if line.startswith(("-DOCSTART-", "# ")):
                continue
            cells = line.split("\t") if "\t" in line else line.split(" ")
            if len(cells) < max(needed, 2):
                problem = f"line {number} must have {max(needed, 2)} columns, got {len(cells)}"
                continue
            words.append(cells[token_column])
            labels.append(cells[tag_column].strip())
        if words or problem:
            yield _example(uri, first, lines, words, labels, problem)


def _sentences(uri: str) -> Iterator[tuple[int, list[tuple[int, str]]]]:
    """Runs of lines between empty ones, with the number of the first."""
    lines: list[tuple[int, str]] = []
    for number, line in enumerate(read_text(uri).split("\n"), start=1):
        line = line.removesuffix("\r")
        if line.strip():
            lines.append((number, line))
        elif lines:
            yield lines[0][0], lines
            lines = []
    if lines:
        yield lines[0][0], lines


def _example(
    uri: str, first: int, lines: list[tuple[int, str]], words: list[str], labels: list[str], problem: str
) -> TaggedExample | BadRow:
    if not problem and any(is_broken(line) for _, line in lines):
        problem = "the sentence must be UTF-8"
    if problem:
        return BadRow(uri, first, problem)
    return TaggedExample(f"{uri.rsplit('/', 1)[-1]}:{first}", tuple(words), tuple(labels))
