"""CoNLL files: a word a line, columns between blanks, an empty line after each sentence; and CoNLL-U."""

from __future__ import annotations

from collections.abc import Iterator

from pipelines.errors import DataError
from pipelines.tasks.examples import TaggedExample
from pipelines.tasks.tables import BadRow, is_broken, read_text

CONLLU_COLUMNS = ("id", "form", "lemma", "upos", "xpos", "feats", "head", "deprel", "deps", "misc")
_NO_VALUE = "_"


def read_conllu(uri: str, tags: str, *, has_labels: bool = True) -> Iterator[TaggedExample | BadRow]:
    """The sentences of a CoNLL-U file, with one of its columns as labels, which `_` stands for where there is none.

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
        if not has_labels and _NO_VALUE in labels:
            labels = []
        elif not problem and _NO_VALUE in labels:
            problem = f"every word must have a value in {tags}, got none for {words[labels.index(_NO_VALUE)]!r}"
        if words or problem:
            yield _example(uri, first, lines, words, labels, problem)


def read_conll(
    uri: str, token_column: int, tag_column: int, *, has_labels: bool = True
) -> Iterator[TaggedExample | BadRow]:
    """The sentences of a file of columns, between tabs or else blanks.

    Args:
        uri: the file. Lines that begin with `-DOCSTART-` are passed over, and comments: lines before a sentence that
            begin with `#` and a blank and have other columns than its words.
        token_column: number of the column of words from 0; negative ones count from the end.
        tag_column: that of the labels.
        has_labels: whether a sentence without labels is malformed.

    Raises:
        StorageError: the file cannot be read.
    """
    for first, lines in _sentences(uri):
        words: list[str] = []
        labels: list[str] = []
        problem = ""
        width = len(_cells(lines[-1][1]))
        for number, line in lines:
            cells = _cells(line)
            is_comment = line.startswith("# ") and not words and len(cells) != width
            if is_comment or line.startswith("-DOCSTART-"):
                continue
            try:
                words.append(cells[token_column])
                if len(cells) > 1 or has_labels:
                    labels.append(cells[tag_column] if len(cells) > 1 else "")
            except IndexError:
                problem = f"line {number} must have the columns of words and labels, got {len(cells)}"
                break
            if not words[-1] or (has_labels and not labels[-1]):
                problem = f"line {number} must have a word and a label, got {line[:60]!r}"
                break
        if words or problem:
            yield _example(uri, first, lines, words, labels, problem)


def _cells(line: str) -> list[str]:
    return [cell.strip() for cell in line.rstrip().split("\t")] if "\t" in line else line.split()


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
    tags = tuple(labels) if len(labels) == len(words) else None
    return TaggedExample(f"{uri.rsplit('/', 1)[-1]}:{first}", tuple(words), tags)
