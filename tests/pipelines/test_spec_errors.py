"""What a user is told of a field that is none, wherever it stands."""

from __future__ import annotations

import pytest
from pydantic import ValidationError

from pipelines.specs.parsing import load_spec
from pipelines.specs.pretrain import PretrainSpec
from pipelines.specs.spec_errors import MAX_ADVISED, SpecError, problems_of

PRETRAIN = "kind: pretrain\npreset: tiny\n"
FINETUNE = "kind: finetune\nmodel: {type: files, uri: /m}\n"
SEARCH = (
    "kind: search\npreset: lambda\nbase: {preset: tiny}\nobjective: {type: fixed_corruption}\nbudget: {steps: 100}\n"
)
DATA = "data: {train: a.csv}"


def told(text: str, *overrides: str) -> str:
    with pytest.raises(SpecError) as caught:
        load_spec(text, overrides)
    return str(caught.value)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        # nearly a field of the section
        (PRETRAIN + "modle: {}", "modle: is not a field here (got {}); did you mean model?"),
        (PRETRAIN + "training: {num_train_step: 1}", "training.num_train_step: is not a field here (got 1); did you "),
        (PRETRAIN + "model: {layers: 3}", "did you mean num_hidden_layers or generator_num_hidden_layers?"),
        # in a list, in a mapping, in a union of a union
        (PRETRAIN + "training: {curriculum: [{until_step: 5, seq_length: 3}]}", "0.seq_length: is not a field here"),
        (PRETRAIN + "corpus: {sources: [{type: text, uris: a, docment: b}]}", "sources.0.docment: is not a field here"),
        (
            FINETUNE + f"suite: {{type: tasks, tasks: {{glue: {{type: regression, {DATA}, lable: a}}}}}}",
            "suite.tasks.glue.lable: is not a field here (got 'a'); did you mean label?",
        ),
        # nothing is near, and one field is lacking
        (
            PRETRAIN + "probe: {tasks: {sts-b: {type: glue, task: STS-B, uri: a}}}",
            "probe.tasks.sts-b.task: is not a field here (got 'STS-B'); did you mean name?",
        ),
        # nothing is near at all
        (
            FINETUNE + "task: {type: regression, data: {train: a.csv, x: 1}}",
            "task.data.x: is not a field here (got 1); the fields here are format, delimiter, train, validation, test, "
            "validation_fraction, max_train_examples, max_bad_row_fraction",
        ),
        # a field of another section: the nearest to where it was written
        (PRETRAIN + "learning_rate: 1", "learning_rate: is not a field here (got 1); did you mean optimizer.learning_"),
        (PRETRAIN + "model: {seed: 1}", "did you mean training.seed or evaluation.seed?"),
        (
            PRETRAIN + "model: {corpus: {}}",
            "model.corpus: is not a field here (got {}); did you mean corpus at the top?",
        ),
        (PRETRAIN + "probe: {tasks: {}, learning_rate: 1}", "did you mean probe.training.learning_rate?"),
        (PRETRAIN + "text_field: body", "did you mean corpus.sources.*.text_field?"),
        # a field of another type of the same section
        (
            FINETUNE + f"task: {{type: regression, {DATA}, labels: [a]}}",
            "task.labels: is not a field here (got ['a']); it is a field of type 'classification' or "
            "'token_classification'; did you mean label?",
        ),
        # a section that is a document of its own
        (SEARCH + "corpus: {}", "corpus: is not a field here (got {}); did you mean base.corpus?"),
    ],
)
def test_what_was_meant_is_asked(text: str, expected: str) -> None:
    assert expected in told(text)


def test_many_fields_are_not_listed() -> None:
    assert told(PRETRAIN + "zzz: 1") == "zzz: is not a field here (got 1)"


def test_overrides_are_fields_too() -> None:
    assert told(PRETRAIN, "learning_rate=3") == (
        "learning_rate: is not a field here (got 3); did you mean optimizer.learning_rate?"
    )
    assert told(PRETRAIN, "optmizer.learning_rate=3").endswith("did you mean optimizer?")


@pytest.mark.parametrize(
    ("path", "expected"),
    [
        ("learning_rate", "space.learning_rate: must name a section and a field, as objective.discriminator_weight "),
        ("learning_rate", "got 'learning_rate'; did you mean optimizer.learning_rate?"),
        ("training.learning_rate", "must be a field of training; did you mean optimizer.learning_rate?"),
        ("optimiser.learning_rate", "trials share the rest; did you mean optimizer.learning_rate?"),
        ("model.hiden_size", "space.model.hiden_size: must be a field of model; did you mean model.hidden_size?"),
        ("objective.lambda", "must be a field of objective, one of name, generator, discriminator_weight, "),
    ],
)
def test_paths_of_a_space_are_fields_too(path: str, expected: str) -> None:
    assert expected in told(SEARCH + f"space: {{{path}: {{type: choice, values: [1, 2]}}}}")


def test_a_field_that_cannot_be_searched_is_not_proposed() -> None:
    assert "did you mean" not in told(SEARCH + "space: {model.seed: {type: choice, values: [1, 2]}}")


def test_conditions_name_paths_of_the_space() -> None:
    dimension = "{type: choice, values: [1, 2], when: {model.shring: [all]}}"
    space = f"{{model.hidden_size: {dimension}, model.sharing: {{type: choice, values: [all, none]}}}}"
    assert told(SEARCH + f"space: {space}").endswith("got 'model.shring'; did you mean model.sharing?")


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (FINETUNE + "task: {type: glue, name: RTE}", "task.uri: must be given"),
        (FINETUNE + "task: {name: RTE}", "task: must have a type, one of 'classification', 'regression', "),
        (FINETUNE + "task: RTE", "task: must be a section, a mapping of fields (got 'RTE')"),
        (PRETRAIN + "model: tiny", "model: must be a section, a mapping of fields (got 'tiny')"),
        (PRETRAIN + "corpus: {sources: a}", "corpus.sources: must be a list (got 'a')"),
        (
            FINETUNE + f"task: {{type: classification, {DATA[:-1]}, test: 5}}}}",
            "task.data.test: must be a list (got 5)",
        ),
        (
            FINETUNE + f"task: {{type: classification, {DATA}, class_weights: even}}",
            "task.class_weights: Input should be 'balanced' or a valid dictionary (got 'even')",
        ),
    ],
)
def test_rules_are_in_the_users_terms_and_at_the_users_place(text: str, expected: str) -> None:
    assert told(text).startswith(expected)


def test_thousands_of_unknown_fields_get_little_advice() -> None:
    with pytest.raises(ValidationError) as caught:
        PretrainSpec.model_validate({"kind": "pretrain", **{f"model{number}": 1 for number in range(3000)}})
    problems = problems_of(caught.value, PretrainSpec)
    assert len(problems) == 3000
    assert sum("did you mean" in problem.rule for problem in problems) == MAX_ADVISED
