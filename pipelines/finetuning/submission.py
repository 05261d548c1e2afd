"""Predictions of test sets as the servers of GLUE and SQuAD want them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from pipelines import storage
from pipelines.finetuning.seed_task import SeedTask
from pipelines.tasks.glue import submission_file
from pipelines.tasks.prepare import TEST


def write_submissions(run: SeedTask, folder: Path) -> None:
    """Write the files of a finished run's test sets: for GLUE and for questions; nothing for other tasks."""
    for split in run.prepared.splits_of(TEST):
        name = split.name.replace(" ", "-")
        text = storage.read_bytes(storage.join(run.uri, f"predictions-{name}.jsonl")).decode()
        # At line ends alone: other separators of Unicode stand in answers as they are.
        predictions: list[dict[str, Any]] = [json.loads(line) for line in text.split("\n") if line]
        if run.prepared.glue_name is not None:
            test_set = split.name.removeprefix(TEST).strip()
            values = [one["prediction"] for one in predictions]
            file, content = submission_file(run.prepared.glue_name, test_set, values)
            # As the server wants them, in one folder; a suite may have one task of GLUE twice.
            place = folder if run.prepared.name == run.prepared.glue_name else folder / run.prepared.name
            _write(place / file, content)
        elif run.prepared.task.kind == "question_answering":
            answers = {one["id"]: one["prediction"] for one in predictions}
            odds = {one["id"]: one["null_odds"] for one in predictions}
            n_best = {one["id"]: one["n_best"] for one in predictions}
            # The 2.0 script looks for a threshold on the odds itself, and wants a span for every question then.
            spans = {one["id"]: one["n_best"][0]["text"] for one in predictions}
            documents = {"predictions": answers, "spans": spans, "null_odds": odds, "n_best": n_best}
            for file, document in documents.items():
                _write(
                    folder / f"{run.prepared.name}-{name}-{file}.json", json.dumps(document, ensure_ascii=False) + "\n"
                )


def _write(path: Path, content: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(content, encoding="utf-8")
