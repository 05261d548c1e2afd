"""CoNLL files: a word a line, columns between blanks, an empty line after each sentence; and CoNLL-U."""

from __future__ import annotations

import itertools
import re
import string
from collections.abc import Iterable, Iterator
from typing import NamedTuple

from pipelines.errors import DataError
from pipelines.tasks.examples import TaggedExample
from pipelines.tasks.tables import BadRow, is_broken, read_lines

CONLLU_COLUMNS = ("id", "form", "lemma", "upos", "xpos", "feats", "head", "deprel", "deps", "misc")
_NO_VALUE = "_"
_DOCUMENT = "-DOCSTART-"
# Of ASCII alone: others of Unicode, such as U+3000, stand inside words.
_BLANKS = re.compile(r"\s+", re.ASCII)
_COMMENT = re.compile(r"# (\S+ = \S|(newdoc|newpar)\b)")
"""CoNLL-U's own, which may have as many words as a row has cells."""


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
    for first, lines in _sentences(read_lines(uri)):
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
    """The sentences of a file of columns, between tabs or else blanks; all rows must have as many as the first.

    Args:
        uri: the file. Lines that begin with `-DOCSTART-` are passed over, and comments before a sentence.
        token_column: number of the column of words from 0; negative ones count from the end.
        tag_column: that of the labels.
        has_labels: whether a sentence without labels is malformed.

    Raises:
        DataError: the compressed data is damaged.
        StorageError: the file cannot be read.
    """
    layout, file_lines = _layout_of(read_lines(uri))
    for first, lines in _sentences(file_lines):
        words: list[str] = []
        labels: list[str] = []
        problem = ""
        for number, line in lines:
            if line.startswith(_DOCUMENT) or (not words and layout.is_comment(line)):
                continue
            cells = layout.cells(line)
            if len(cells) != layout.width:
                problem = f"line {number} must have {layout.width} columns, as the file's first row, got {len(cells)}"
                break
            try:
                words.append(cells[token_column])
                labels.append(cells[tag_column] if len(cells) > 1 else "")
            except IndexError:
                problem = f"line {number} must have the columns of words and labels, got {len(cells)}"
                break
            if not words[-1] or (has_labels and not labels[-1]):
                problem = f"line {number} must have a word and a label, got {line[:60]!r}"
                break
        if words or problem:
            yield _example(uri, first, lines, words, labels if all(labels) else [], problem)


class _Layout(NamedTuple):
    """How a file writes its rows."""

    has_tabs: bool
    width: int
    """Cells of a row."""

    def cells(self, line: str) -> list[str]:
        """Of one row."""
        return _cells(line, self.has_tabs)

    def is_comment(self, line: str) -> bool:
        """Of a line before a sentence: "#" is a word too, where the other columns are there."""
        return line.startswith("# ") and (len(self.cells(line)) != self.width or _COMMENT.match(line) is not None)


def _cells(line: str, has_tabs: bool) -> list[str]:
    cells = line.split("\t") if has_tabs else _BLANKS.split(line.strip(string.whitespace))
    return [cell.strip(string.whitespace) for cell in cells]


def _layout_of(lines: Iterator[str]) -> tuple[_Layout, Iterator[str]]:
    """That of the first row, and all lines."""
    head: list[str] = []
    for line in lines:
        head.append(line)
        if line.strip(string.whitespace) and not line.startswith(("# ", _DOCUMENT)):
            break
    row = head[-1] if head else ""
    has_tabs = "\t" in row
    return _Layout(has_tabs, len(_cells(row, has_tabs))), itertools.chain(head, lines)


def _sentences(file_lines: Iterable[str]) -> Iterator[tuple[int, list[tuple[int, str]]]]:
    """Runs of lines between empty ones, with the number of the first."""
    lines: list[tuple[int, str]] = []
    for number, line in enumerate(file_lines, start=1):
        line = line.removesuffix("\n").removesuffix("\r")
        if line.strip(string.whitespace):
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
