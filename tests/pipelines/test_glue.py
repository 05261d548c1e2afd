"""GLUE's nine tasks in their own files, and what its server takes back."""

from __future__ import annotations

from pathlib import Path

import pytest
from shared_data import SHARED

from pipelines.errors import DataError
from pipelines.specs.task import ClassificationTask, GlueName, GlueTask, RegressionTask
from pipelines.tasks.examples import TextExample
from pipelines.tasks.glue import LAYOUTS, glue_task, missing_files, submission_file
from pipelines.tasks.read import read_task

# A row of each file as the benchmark distributes it: header, training row.
FILES: dict[GlueName, tuple[str, str]] = {
    "CoLA": ("", "gj04\t0\t*\tThey drank the pub."),
    "SST-2": ("sentence\tlabel", "a fine film \t1"),
    "MRPC": ("Quality\t#1 ID\t#2 ID\t#1 String\t#2 String", "1\t1\t2\tHe said so .\tHe said that ."),
    "STS-B": (
        "index\tgenre\tfilename\tyear\told_index\tsource1\tsource2\tsentence1\tsentence2\tscore",
        "0\tx\tx\t2012\t1\tnone\tnone\tA plane .\tA jet .\t4.250",
    ),
    "QQP": ("id\tqid1\tqid2\tquestion1\tquestion2\tis_duplicate", "1\t2\t3\tWho ?\tWho is it ?\t1"),
    "MNLI": (
        "index\tpromptID\tpairID\tgenre\tsentence1_binary_parse\tsentence2_binary_parse\tsentence1_parse\t"
        "sentence2_parse\tsentence1\tsentence2\tlabel1\tgold_label",
        "0\t1\t1n\tx\t(\t(\t(\t(\tIt rains .\tIt is wet .\tneutral\tneutral",
    ),
    "QNLI": ("index\tquestion\tsentence\tlabel", "0\tWhen ?\tIn 1900 .\tnot_entailment"),
    "RTE": ("index\tsentence1\tsentence2\tlabel", "0\tIt rains .\tIt is wet .\tentailment"),
    "WNLI": ("index\tsentence1\tsentence2\tlabel", "0\tIt rains .\tIt is wet .\t1"),
}


def write(folder: Path, name: GlueName) -> str:
    header, row = FILES[name]
    content = "".join(f"{line}\n" for line in (header, row) if line)
    for split in ["train", *(f"dev_{key}" if key else "dev" for key in LAYOUTS[name].sets)]:
        (folder / f"{split}.tsv").write_text(content)
    return str(folder)


@pytest.mark.parametrize("name", FILES)
def test_the_files_of_each_task_are_read(tmp_path: Path, name: GlueName) -> None:
    task, files = glue_task(GlueTask(name=name, uri=write(tmp_path, name)))
    data = read_task(task, files)
    example = data.train.examples[0]
    assert isinstance(example, TextExample)
    assert (example.text_pair is None) == (name in ("CoLA", "SST-2"))
    assert list(data.validation) == list(LAYOUTS[name].sets)
    assert isinstance(task, RegressionTask if name == "STS-B" else ClassificationTask)
    assert (example.label == 4.25) if name == "STS-B" else (example.label in data.labels)


def test_an_empty_sentence_of_a_test_file_is_predicted_too(tmp_path: Path) -> None:
    """The server counts the rows; in the other files it is malformed."""
    folder = write(tmp_path, "RTE")
    (tmp_path / "test.tsv").write_text("index\tsentence1\tsentence2\n0\tIt rains .\t\n1\t\tIt is wet .\n")
    task, files = glue_task(GlueTask(name="RTE", uri=folder))
    first, second = read_task(task, files).test[""].examples
    assert first == TextExample("test.tsv:2", "It rains .", "", None)
    assert second == TextExample("test.tsv:3", "", "It is wet .", None)
    (tmp_path / "dev.tsv").write_text(FILES["RTE"][0] + "\n0\tIt rains .\t\tentailment\n")
    with pytest.raises(DataError, match=r"got 0.01 and 1 of 1"):
        read_task(task, files)


DIAGNOSTICS = (
    "index\tsentence1\tsentence2\n0\tThe cat sat.\tThe cat did not sit.\n1\tThe cat did not sit.\tThe cat sat.\n"
)


@pytest.mark.parametrize(
    "place", ["MNLI/diagnostic.tsv", "MNLI/AX.tsv", "AX/AX.tsv", "AX/diagnostic.tsv", "diagnostic/diagnostic.tsv"]
)
def test_the_diagnostics_set_is_predicted_by_the_model_of_mnli(tmp_path: Path, place: str) -> None:
    """It has no labels and no training data of its own."""
    for path in (tmp_path / "MNLI", tmp_path / "RTE", (tmp_path / place).parent):
        path.mkdir(exist_ok=True)
    (tmp_path / place).write_text(DIAGNOSTICS)
    folder = write(tmp_path / "MNLI", "MNLI")
    task, files = glue_task(GlueTask(name="MNLI", uri=folder))
    assert list(files.test) == ["diagnostic"]
    first, second = read_task(task, files).test["diagnostic"].examples
    file = place.partition("/")[2]
    assert first == TextExample(f"{file}:2", "The cat sat.", "The cat did not sit.", None)
    assert second == TextExample(f"{file}:3", "The cat did not sit.", "The cat sat.", None)
    (tmp_path / "MNLI" / "test_matched.tsv").write_text(DIAGNOSTICS)
    assert list(glue_task(GlueTask(name="MNLI", uri=folder + "/"))[1].test) == ["matched", "diagnostic"]
    assert not glue_task(GlueTask(name="RTE", uri=write(tmp_path / "RTE", "RTE")))[1].test


@pytest.mark.parametrize("name", FILES)
@pytest.mark.parametrize("has", ["train.tsv", "dev.tsv"])
def test_what_is_missing_is_named(tmp_path: Path, name: GlueName, has: str) -> None:
    (tmp_path / has).write_text("x\n")
    absent = {"train.tsv", "dev.tsv"} - {has}
    assert missing_files(name, str(tmp_path)) == tuple(absent)
    with pytest.raises(DataError, match=f"must hold train.tsv and dev.tsv of {name}, got no {absent.pop()}"):
        glue_task(GlueTask(name=name, uri=str(tmp_path)))


@pytest.mark.parametrize(
    ("name", "test_set", "values", "file", "lines"),
    [
        ("CoLA", "", ["0", "1"], "CoLA.tsv", ["index\tprediction", "0\t0", "1\t1"]),
        ("SST-2", "", ["1"], "SST-2.tsv", ["index\tprediction", "0\t1"]),
        ("MRPC", "", ["0"], "MRPC.tsv", ["index\tprediction", "0\t0"]),
        ("QQP", "", ["1"], "QQP.tsv", ["index\tprediction", "0\t1"]),
        ("QNLI", "", ["not_entailment"], "QNLI.tsv", ["index\tprediction", "0\tnot_entailment"]),
        ("WNLI", "", ["0"], "WNLI.tsv", ["index\tprediction", "0\t0"]),
        ("STS-B", "", [4.25, -0.1, 5.2], "STS-B.tsv", ["index\tprediction", "0\t4.250", "1\t0.000", "2\t5.000"]),
        ("MNLI", "mismatched", ["neutral"], "MNLI-mm.tsv", ["index\tprediction", "0\tneutral"]),
        ("MNLI", "matched", ["neutral"], "MNLI-m.tsv", ["index\tprediction", "0\tneutral"]),
        (
            "MNLI",
            "diagnostic",
            ["neutral", "entailment"],
            "AX.tsv",
            ["index\tprediction", "0\tneutral", "1\tentailment"],
        ),
        ("RTE", "", ["entailment"], "RTE.tsv", ["index\tprediction", "0\tentailment"]),
    ],
)
def test_submissions_have_the_servers_shape(
    name: GlueName, test_set: str, values: list[str | float], file: str, lines: list[str]
) -> None:
    found, content = submission_file(name, test_set, values)
    assert found == file
    assert content.splitlines() == lines


@pytest.mark.skipif(not SHARED.exists(), reason="the shared data are not here")
@pytest.mark.parametrize(
    ("name", "train", "dev"),
    [
        ("CoLA", 8551, 1043),
        ("MRPC", 3668, 408),
        ("STS-B", 5749, 1500),
        ("RTE", 2490, 277),
        ("WNLI", 635, 71),
        ("MNLI", 20000, 5000),
    ],
)
def test_the_real_files_are_read_whole(name: GlueName, train: int, dev: int) -> None:
    task, files = glue_task(GlueTask(name=name, uri=str(SHARED / "glue" / name)))
    data = read_task(task, files)
    assert (len(data.train.examples), data.train.num_bad_rows) == (train, 0)
    assert len(next(iter(data.validation.values())).examples) == dev
