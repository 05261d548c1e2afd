"""Finetuning specs: what is refused and how it is said, what is filled in, and what a plan tells."""

from __future__ import annotations

import pytest

from pipelines.specs.finetune import FinetuneSpec
from pipelines.specs.jobs import SPECS
from pipelines.specs.parsing import dump_spec, load_spec
from pipelines.specs.plans import FinetunePlan, finetuning_files, plan_any
from pipelines.specs.spec_errors import SpecError

MODEL = "kind: finetune\nmodel: {type: registered, name: m}\n"
TASK = MODEL + "task: {type: classification, data: {train: a.csv, validation: [b.csv, c.csv]}"

ERROR = "{type: regression, data: {train: a.csv}, metric: mean_squared_error}"
GLUE = "{type: glue, name: RTE, uri: x, num_epochs: 2.5}"
QUESTIONS = MODEL + "task: {type: question_answering, data: {train: a.json}"


def resolved(document: str, *overrides: str) -> FinetuneSpec:
    spec = load_spec(document, overrides)
    assert isinstance(spec, FinetuneSpec)
    return spec


@pytest.mark.parametrize(
    ("document", "expected"),
    [
        (MODEL, "spec: task or suite must be given, got neither"),
        (TASK + "}\nsuite: {type: glue, uri: x}", "spec: task or suite must be given, got both"),
        ("kind: finetune\ntask: {type: glue, name: RTE, uri: x}", "model: must be given"),
        (TASK + ", label: ''}", "task.label: String should have at least 1 character (got '')"),
        (TASK + ", labels: [a, a]}", "task: labels must be at least two and all different, got 'a', 'a'"),
        (TASK + ", swap_pairs: true}", "task: swap_pairs must be false where text_pair is absent, got true"),
        (TASK + ", metric: f1, labels: [a, b, c]}", "metric must be macro_f1 where there are not two labels"),
        (TASK + ", labels: [a, b], class_weights: {c: 2}}", "class_weights must name labels of the task, got 'c'"),
        (TASK + ", colour: red}", "task.colour: is not a field here (got 'red'); the fields here are data, "),
        (
            MODEL + "task: {type: classification, data: {train: a}}",
            "format must be given where a file's name does not end",
        ),
        (
            MODEL + "task: {type: classification, data: {train: a.jsonl.gz, test: a.parquet.gz}}",
            "task.data: Parquet files must not end in .gz or .zst, for they are compressed within, got 'a.parquet.gz'",
        ),
        (
            MODEL + "task: {type: classification, data: {train: part-0.zst, format: parquet}}",
            "task.data: Parquet files must not end in .gz or .zst, for they are compressed within, got 'part-0.zst'",
        ),
        (MODEL + "task: {type: classification, data: {train: 'a/*'}}", "format must be given where a file's name"),
        (
            MODEL + "task: {type: classification, data: {train: a.tsv, delimiter: ';'}}",
            "delimiter must be absent where no file is CSV, got ';'",
        ),
        (
            MODEL + "task: {type: regression, data: {train: a.csv, format: squad}}",
            "data.format must be one of csv, tsv",
        ),
        (
            MODEL + "task: {type: regression, data: {train: a.csv}, label_range: [5, 0]}",
            "label_range must increase, got 5 and 0",
        ),
        (MODEL + "task: {type: glue, name: SNLI, uri: x}", "task.name: Input should be 'CoLA'"),
        (
            MODEL + "task: {type: token_classification, data: {train: a.conll}, metric: span_f1}",
            "metric must be accuracy where",
        ),
        (
            MODEL + "suite: {type: tasks, tasks: {a: {type: glue, name: RTE, uri: x, z: 1}}}",
            "suite.tasks.a.z: is not a field here",
        ),
        (
            MODEL + f"suite: {{type: tasks, tasks: {{a: {ERROR}, b: {ERROR}}}}}",
            "suite: tasks.a.metric must be one of which more is better where scores of tasks are averaged, "
            "got 'mean_squared_error'",
        ),
        (f"kind: pretrain\nprobe: {{tasks: {{a: {ERROR}}}}}", "probe: tasks.a.metric must be one of which more is"),
        (MODEL + "suite: {type: tasks, tasks: {}}", "suite.tasks: Dictionary should have at least 1 item"),
        (TASK + "}\ntraining: {seeds: [1, 1]}", "training: seeds must all be different, got 1, 1"),
        (
            TASK + "}\ntraining: {num_epochs: 1, num_train_steps: 5}",
            "num_epochs must be absent where num_train_steps is given",
        ),
        (
            TASK + ", num_epochs: 5}\ntraining: {num_train_steps: 70}",
            "spec: task.num_epochs must be absent where training.num_train_steps is given, got 5 and 70",
        ),
        (
            MODEL + f"suite: {{type: tasks, tasks: {{a: {GLUE}}}}}\ntraining: {{num_train_steps: 70}}",
            "spec: suite.tasks.a.num_epochs must be absent where training.num_train_steps is given, got 2.5 and 70",
        ),
        (
            f"kind: pretrain\nprobe: {{tasks: {{a: {GLUE}}}, training: {{num_train_steps: 70}}}}",
            "probe: tasks.a.num_epochs must be absent where training.num_train_steps is given, got 2.5 and 70",
        ),
        (TASK + "}\ntraining: {early_stopping_patience: 2}", "evaluations_per_epoch must be above 0"),
        (
            "kind: finetune\nmodel: {type: registered, name: m, alias: a, version: 2}\n",
            "model: alias must be absent where",
        ),
        ("kind: finetune\nmodel: {type: files, uri: 'ftp://x'}\n", "model.uri: must have a scheme of file, s3, gs"),
        (TASK + "}\nrecord: {alias: v2}", "record: alias must not be 'latest' or a version"),
        (TASK + "}\npreset: tiny", "preset: is not a field here"),
    ],
)
def test_a_bad_spec_is_refused_with_field_rule_and_value(document: str, expected: str) -> None:
    with pytest.raises(SpecError) as error:
        load_spec(document)
    assert expected in str(error.value)


def test_a_resolved_spec_is_read_back_as_it_was() -> None:
    spec = resolved(TASK + ", text_pair: other}", "training.seeds=[4, 5]", "task.swap_pairs=true")
    assert spec.training.seeds == (4, 5)
    again = SPECS[spec.kind].model_validate_json(dump_spec(spec))
    assert again == spec
    assert spec.record.experiment == "finetuning"


def test_models_are_named_after_the_job_and_its_tasks() -> None:
    one = resolved(TASK + "}\nname: intents")
    assert one.registered_name("intents") == "intents"
    suite = resolved(MODEL + "name: all\nsuite: {type: glue, uri: g}\nrecord: {model_name: best}")
    assert suite.registered_name("RTE") == "best-RTE"


def test_a_model_is_the_newest_where_nothing_is_said() -> None:
    assert resolved(TASK + "}").model.uri == "models:/m@newest"
    assert resolved(TASK + "}", "model.version=3").model.uri == "models:/m/3"


def test_a_plan_counts_runs_and_warns_of_few_seeds() -> None:
    plan = plan_any(
        resolved(MODEL + "suite: {type: glue, uri: g}\ntraining: {seeds: [1, 2]}\ncompute: {num_workers: 4}")
    )
    assert isinstance(plan, FinetunePlan)
    assert (len(plan.tasks), plan.num_runs, plan.num_runs_at_a_time, plan.num_cpus) == (9, 18, 4, 4.0)
    assert plan.warnings[0].startswith("training.seeds has 2")


@pytest.mark.parametrize("section", [f"task: {ERROR}", f"suite: {{type: tasks, tasks: {{a: {ERROR}}}}}"])
def test_an_error_can_be_the_metric_where_nothing_is_averaged(section: str) -> None:
    assert resolved(MODEL + section).kind == "finetune"


@pytest.mark.parametrize(
    "document",
    [QUESTIONS + "}", QUESTIONS + ", document_stride: 128, max_sequence_length: 512}"],
)
def test_windows_that_overlap_draw_no_warning(document: str) -> None:
    assert plan_any(resolved(document)).warnings == ()


def test_windows_that_do_not_overlap_are_warned_of() -> None:
    """128 tokens less a question of 64 and three of their own leave 61: by name in a suite and in a probe too."""
    task = QUESTIONS.removeprefix(MODEL + "task: ") + ", document_stride: 61}"
    (warning,) = plan_any(resolved(MODEL + "task: " + task)).warnings
    assert warning.startswith("task.document_stride (61) leaves windows that do not overlap")
    assert warning.endswith("task.max_query_tokens (64) there is room for 61 tokens of the text.")
    (warning,) = plan_any(resolved(MODEL + f"suite: {{type: tasks, tasks: {{a: {task}}}}}")).warnings
    assert warning.startswith("suite.tasks.a.document_stride (61)")
    (warning,) = plan_any(load_spec(f"kind: pretrain\nprobe: {{tasks: {{a: {task}}}}}")).warnings
    assert warning.startswith("probe.tasks.a.document_stride (61)")


def test_files_are_named_with_their_place() -> None:
    found = dict(finetuning_files(resolved(TASK + "}")))
    assert found == {
        "/task/data/train/0": "a.csv",
        "/task/data/validation/0": "b.csv",
        "/task/data/validation/1": "c.csv",
    }
    suite = MODEL.replace("registered, name: m", "files, uri: w") + (
        "suite: {type: tasks, tasks: {a: {type: glue, name: RTE, uri: r}, b: {type: regression, data: {train: t.tsv}}}}"
    )
    assert dict(finetuning_files(resolved(suite))) == {
        "/model/uri": "w",
        "/suite/tasks/a/uri": "r",
        "/suite/tasks/b/data/train/0": "t.tsv",
    }
