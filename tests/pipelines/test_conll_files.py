"""Rows, comments and blanks of CoNLL files."""

from __future__ import annotations

import gzip
from pathlib import Path
from typing import Any

import pytest

from pipelines.errors import DataError
from pipelines.tasks.conll import Columns, num_columns, read_conll
from pipelines.tasks.examples import TaggedExample
from pipelines.tasks.tables import BadRow

Pairs = list[tuple[str, str]]
SHAPE = Columns()


def read(folder: Path, text: str, columns: Columns = SHAPE, **fields: Any) -> tuple[list[Pairs], list[str]]:
    """Words with their labels, sentence by sentence; and what is wrong with the other sentences."""
    path = folder / "words.conll"
    path.write_bytes(text.encode())
    sentences: list[Pairs] = []
    problems: list[str] = []
    for found in read_conll(str(path), columns, **fields):
        if isinstance(found, BadRow):
            problems.append(f"{found.line}: {found.detail}")
        else:
            sentences.append(list(zip(found.tokens, found.tags or [""] * len(found.tokens), strict=True)))
    return sentences, problems


@pytest.mark.parametrize(
    ("comments", "row"),
    [
        ("# newdoc\n# newpar\n", "It O\n"),
        ("# newdoc id = a1\n", "It PRP B-NP 5 O\n"),
        ("# sent_id = 5\n", "It PRP B-NP O\n"),
        ("# text = It\n# words of some kind\n", "It PRP B-NP O\n"),
        ("# sent_id = 5\n# newpar id = 2\n", "It\tO\n"),
        ("# Copyright\n\n# sent_id = 5\n", "It PRP B-NP O\n"),
    ],
)
def test_comments_are_no_words_however_many_cells_they_have(tmp_path: Path, comments: str, row: str) -> None:
    """Before the first sentence, from which the width is known, and before others."""
    found, problems = read(tmp_path, f"{comments}{row}\n{comments}{row}")
    assert found == [[("It", "O")], [("It", "O")]]
    assert problems == []


def test_a_pound_sign_with_a_tag_is_a_word_at_the_head_of_a_file_too(tmp_path: Path) -> None:
    found, problems = read(tmp_path, "# NN\n5 CD\n\n# SYM\n")
    assert found == [[("#", "NN"), ("5", "CD")], [("#", "SYM")]]
    assert problems == []


@pytest.mark.parametrize(
    ("row", "cells"),
    [("foo\tNN\t", 3), ("foo", 1), ("New York NNP", 1), ("foo\tNN\tB-NP\tO", 4)],
    ids=["empty-last-cell", "no-tag", "no-tabs", "one-more"],
)
def test_a_row_of_another_width_than_its_files_is_malformed(tmp_path: Path, row: str, cells: int) -> None:
    """Its last cell is no label: that of another column would be taken for one."""
    found, problems = read(tmp_path, f"It\tPRP\n\nthe\tDT\n{row}\n\nend\tNN\n")
    assert found == [[("It", "PRP")], [("end", "NN")]]
    assert problems == [f"3: line 4 must have 2 columns, as the file's first row, got {cells}"]


def test_an_empty_last_cell_is_no_label(tmp_path: Path) -> None:
    found, problems = read(tmp_path, "It\tPRP\tO\n\nfoo\tNN\t\n")
    assert found == [[("It", "O")]]
    assert problems == ["3: line 3 must have a word and a label, got 'foo\\tNN\\t'"]
    unlabelled, problems = read(tmp_path, "It\tPRP\tO\n\nfoo\tNN\t\n", has_labels=False)
    assert unlabelled == [[("It", "O")], [("foo", "")]]
    assert problems == []


@pytest.mark.parametrize("placeholder", ["_", "-"])
def test_a_placeholder_is_no_label_where_there_may_be_none(tmp_path: Path, placeholder: str) -> None:
    """Unless it is a label of the training data; and with labels it is one."""
    text = f"It\t{placeholder}\n\nends\tO\n"
    assert read(tmp_path, text, has_labels=False) == ([[("It", "")], [("ends", "O")]], [])
    labelled = ([[("It", placeholder)], [("ends", "O")]], [])
    assert read(tmp_path, text, has_labels=False, known=(placeholder, "O")) == labelled
    assert read(tmp_path, text) == labelled


@pytest.mark.parametrize(
    ("columns", "expected"),
    [
        (Columns(), "B-NP"),
        (Columns(num_with_labels=3), "B-NP"),
        (Columns(num_with_labels=4), ""),
        (Columns(0, 1, 4), "PRP"),
        (Columns(0, 3, 4), ""),
    ],
)
def test_a_file_of_fewer_columns_lacks_that_of_the_labels(tmp_path: Path, columns: Columns, expected: str) -> None:
    assert read(tmp_path, "It PRP B-NP\n", columns, has_labels=False) == ([[("It", expected)]], [])


def test_columns_are_counted_behind_comments_and_marks_of_documents(tmp_path: Path) -> None:
    (tmp_path / "words.conll").write_text("-DOCSTART- -X-\n\n# sent_id = 5\nIt PRP B-NP O\n")
    assert num_columns(str(tmp_path / "words.conll")) == 4


@pytest.mark.parametrize("blank", ["\u00a0", "\u3000", "\u2009"])
def test_other_blanks_than_asciis_stand_inside_words(tmp_path: Path, blank: str) -> None:
    found, problems = read(tmp_path, f"10{blank}000  CD \n{blank} NN\n")
    assert found == [[(f"10{blank}000", "CD"), (blank, "NN")]]
    assert problems == []


def test_marks_of_documents_may_have_any_width(tmp_path: Path) -> None:
    found, problems = read(tmp_path, "-DOCSTART- -X- -X- O\n\nIt PRP\n\n-DOCSTART-\nends VBZ\r\n\r\n")
    assert found == [[("It", "PRP")], [("ends", "VBZ")]]
    assert problems == []


def test_sentences_come_before_the_file_has_been_read(tmp_path: Path) -> None:
    """A file that is cut off gives what stands before the cut, and then says so."""
    path = tmp_path / "words.conll.gz"
    path.write_bytes(gzip.compress(b"It O\n\n" * 100_000)[:-100])
    sentences = read_conll(str(path), Columns())
    assert next(sentences) == TaggedExample("words.conll.gz:1", ("It",), ("O",))
    with pytest.raises(DataError, match=r"words.conll.gz: the gzip data is damaged"):
        list(sentences)
