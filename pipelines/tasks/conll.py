"""CoNLL files: a word a line, columns between blanks, an empty line after each sentence; and CoNLL-U."""

from __future__ import annotations

import itertools
import re
import string
from collections.abc import Collection, Iterable, Iterator
from typing import NamedTuple

from pipelines.errors import DataError
from pipelines.tasks.examples import TaggedExample
from pipelines.tasks.tables import BadRow, is_broken, read_lines

CONLLU_COLUMNS = ("id", "form", "lemma", "upos", "xpos", "feats", "head", "deprel", "deps", "misc")
_NO_VALUE = "_"
_PLACEHOLDERS = frozenset({_NO_VALUE, "-"})
"""What stands for labels in test files of columns whose labels are kept back."""
_JOINED_OR_EMPTY = re.compile(r"[0-9]+[-.][0-9]+")
_DOCUMENT = "-DOCSTART-"
# Of ASCII alone: others of Unicode, such as U+3000, stand inside words.
_BLANKS = re.compile(r"\s+", re.ASCII)
_COMMENT_MARKS = ("# ", "#\t")
"""The second is GermEval's."""
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
            elif not _JOINED_OR_EMPTY.fullmatch(cells[0]):
                problem = f"line {number} must begin with a number, such as 3, 3-4 or 5.1, got {cells[0]!r:.60}"
        if not has_labels and _NO_VALUE in labels:
            labels = []
        elif not problem and _NO_VALUE in labels:
            problem = f"every word must have a value in {tags}, got none for {words[labels.index(_NO_VALUE)]!r}"
        if words or problem:
            yield _example(uri, first, lines, words, labels, problem)


class Columns(NamedTuple):
    """Where words and labels stand."""

    token: int = 0
    """Number of the column from 0; negative ones count from the end."""
    tag: int = -1
    num_with_labels: int = 0
    """That a file with labels has: one of fewer, where it need not have labels, lacks theirs."""

    def have_labels(self, width: int) -> bool:
        """Whether a file of this width has the column of labels."""
        return width >= max(2, self.num_with_labels) if self.tag < 0 else width > max(1, self.tag)


def num_columns(uri: str) -> int:
    """Of a file's first row.

    Raises:
        DataError: the compressed data is damaged.
        StorageError: the file cannot be read.
    """
    return _layout_of(read_lines(uri))[0].width


def read_conll(
    uri: str, columns: Columns, *, has_labels: bool = True, known: Collection[str] = ()
) -> Iterator[TaggedExample | BadRow]:
    """The sentences of a file of columns, between tabs or else blanks; all rows must have as many as the first.

    Args:
        uri: the file. Lines that begin with `-DOCSTART-` are passed over, and comments before a sentence.
        columns: of words and labels.
        has_labels: whether a sentence without labels is malformed. Where it is not, `_` or `-` for a label says that
            the sentence has none, and so does a file without their column.
        known: labels of the training data; `_` and `-` are labels where they are among them.

    Raises:
        DataError: the compressed data is damaged.
        StorageError: the file cannot be read.
    """
    layout, file_lines = _layout_of(read_lines(uri))
    may_lack: frozenset[str] = frozenset() if has_labels else _PLACEHOLDERS - set(known)
    is_tagged = has_labels or columns.have_labels(layout.width)
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
                words.append(cells[columns.token])
                labels.append(cells[columns.tag] if is_tagged and len(cells) > 1 else "")
            except IndexError:
                problem = f"line {number} must have the columns of words and labels, got {len(cells)}"
                break
            if not words[-1] or (has_labels and not labels[-1]):
                problem = f"line {number} must have a word and a label, got {line[:60]!r}"
                break
        if words or problem:
            is_known = all(labels) and may_lack.isdisjoint(labels)
            yield _example(uri, first, lines, words, labels if is_known else [], problem)


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
        is_like_one = line.startswith(_COMMENT_MARKS)
        return is_like_one and (len(self.cells(line)) != self.width or _COMMENT.match(line) is not None)


def _cells(line: str, has_tabs: bool) -> list[str]:
    cells = line.split("\t") if has_tabs else _BLANKS.split(line.strip(string.whitespace))
    return [cell.strip(string.whitespace) for cell in cells]


def _layout_of(lines: Iterator[str]) -> tuple[_Layout, Iterator[str]]:
    """That of the first row, and all lines."""
    head: list[str] = []
    for line in lines:
        head.append(line)
        if line.strip(string.whitespace) and not line.startswith((*_COMMENT_MARKS, _DOCUMENT)):
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
