"""What people read of a run: curves, a model card, one sentence with its replaced tokens marked."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from electra_core.parts import generator_encoder, network_parts
from pipelines.specs.documents import ExampleToken
from pipelines.specs.plan import JobPlan
from pipelines.specs.pretrain import PretrainSpec
from pipelines.storage.artifacts import PreparedCorpus

Curve = Sequence[tuple[int, float]]
"""(step, value), by step."""

_TITLES = {
    "generator_loss": "generator: masked-LM loss (nats)",
    "generator_accuracy": "generator: accuracy",
    "generator_reward": "generator: reward (nats)",
    "mlm_loss": "encoder: masked-LM loss (nats)",
    "mlm_accuracy": "encoder: accuracy",
    "discriminator_loss": "discriminator: RTD loss (nats)",
    "discriminator_auc": "discriminator: AUC",
    "discriminator_f1": "discriminator: F1",
    "replaced_fraction": "share of tokens replaced",
}


_FIGURES_OF = {
    "discriminator": ("discriminator", "mlm", "replaced_fraction"),
    "encoder": ("mlm", "replaced_fraction"),
    "generator": ("generator", "replaced_fraction"),
}
_USES = {
    "discriminator": "Finetune it: the discriminator is the encoder that replaced-token detection is for.",
    "encoder": "Finetune it, or let it fill masks.",
    "generator": "It fills masks. The network trained beside it is the better encoder.",
}
_TAGS = {"mlm": "masked-language-modelling", "replace_mlm": "masked-language-modelling"}
_ABLATION = "an ablation in Clark et al. 2020"
_METHODS = {
    "electra": "replaced-token detection (Clark et al. 2020)",
    "electra_15": f"replaced-token detection at masked positions only (ELECTRA 15 %, {_ABLATION})",
    "random_15": f"replaced-token detection at random positions, as many as are masked ({_ABLATION})",
    "replace_mlm": f"masked-token prediction from a generator's replacements (Replace MLM, {_ABLATION})",
    "all_tokens_mlm": f"prediction of every token with a copy gate (All-Tokens MLM, {_ABLATION})",
    "mlm": "masked language modelling alone (BERT, Devlin et al. 2019)",
    "electric": "noise-contrastive estimation of a cloze energy (Electric, Clark et al. 2020, arXiv:2012.08561)",
    "two_stage": f"replaced-token detection after its generator, from the generator's weights (two-stage, {_ABLATION})",
    "adversarial": f"replaced-token detection against a generator trained to mislead it (adversarial, {_ABLATION})",
}


def plot_losses(train: Mapping[str, Curve], held_out: Mapping[str, Curve], path: Path) -> None:
    """Training curves with the held-out figures on top, one panel a figure the objective has, as PNG."""
    titles = {name: title for name, title in _TITLES.items() if train.get(name) or held_out.get(name)}
    columns = min(3, max(1, len(titles)))
    figure, axes = _figure(rows=max(1, -(-len(titles) // columns)), columns=columns)
    for axis in axes.flat[len(titles) :]:
        axis.set_axis_off()
    for axis, (name, title) in zip(axes.flat, titles.items(), strict=False):
        for curves, style, label in (
            (train, {"alpha": 0.7, "lw": 1}, "training"),
            (held_out, {"marker": "o"}, "held out"),
        ):
            if curves.get(name):
                steps, values = zip(*curves[name], strict=True)
                axis.plot(steps, values, label=label, **style)
        axis.set_title(title, fontsize=9)
        axis.set_xlabel("step", fontsize=8)
        axis.tick_params(labelsize=7)
        axis.grid(alpha=0.3)
        if axis.lines:
            axis.legend(fontsize=7)
    figure.savefig(path, dpi=110)


def plot_learning_rate(learning_rate: Curve, gradient_norm: Curve, path: Path) -> None:
    """Learning rate and gradient norm over the steps, as PNG."""
    figure, axes = _figure(rows=1, columns=2)
    for axis, curve, title in zip(
        axes.flat, (learning_rate, gradient_norm), ("learning rate", "gradient norm before clipping"), strict=True
    ):
        if curve:
            axis.plot(*zip(*curve, strict=True), lw=1)
        axis.set_title(title, fontsize=9)
        axis.set_xlabel("step", fontsize=8)
        axis.tick_params(labelsize=7)
        axis.grid(alpha=0.3)
    figure.savefig(path, dpi=110)


def _figure(rows: int, columns: int):  # type: ignore[no-untyped-def]  # noqa: ANN202 - matplotlib's own types
    # The object interface draws without a display and without pyplot's global list of figures.
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(4 * columns, 3 * rows), layout="constrained")
    FigureCanvasAgg(figure)
    return figure, figure.subplots(rows, columns, squeeze=False)


def model_card(
    network: str,
    job_id: str,
    spec: PretrainSpec,
    plan: JobPlan,
    corpus: PreparedCorpus,
    figures: Mapping[str, float],
    baselines: Mapping[str, float],
) -> str:
    """README.md of an exported network: what it is, what it was trained on, how well it does, how to load it."""
    objective, is_main = spec.objective, network != "generator"
    model_class = "ElectraForPreTraining" if network == "discriminator" else "ElectraForMaskedLM"
    name = spec.discriminator_model_name if is_main else spec.generator_model_name
    encoder = (
        spec.model.discriminator(corpus.vocab_size)
        if is_main
        else generator_encoder(spec.model, objective, corpus.vocab_size)
    )
    parameters = plan.discriminator_parameters if is_main else plan.generator_parameters
    rows = "\n".join(
        f"| {key.replace('_', ' ')} | {value:.4g} | {_baseline(baselines, key)} |"
        for key, value in figures.items()
        if key.startswith(_FIGURES_OF[network])
    )
    sources = "\n".join(
        f"- {source.type}: `{source.model_dump_json(exclude_defaults=True)}`" for source in spec.corpus.sources
    )
    license_line = f"license: {spec.record.license}\n" if spec.record.license else ""
    return f"""---
{license_line}library_name: transformers
tags: [electra, {_TAGS.get(objective.name, "replaced-token-detection")}]
---

# {name}

The {network} of an ELECTRA model, pretrained with {_METHODS[objective.name]}. {_USES[network]}

```python
from transformers import AutoTokenizer, {model_class}

tokenizer = AutoTokenizer.from_pretrained(folder)
model = {model_class}.from_pretrained(folder)
```

## Training

- Job `{job_id}`: {spec.training.num_train_steps:,} steps of {plan.tokens_per_step:,} tokens, which are
  {plan.total_tokens:,} tokens and {plan.total_flops:.3g} FLOPs.
- {parameters:,} parameters; hidden size {encoder.hidden_size}, {encoder.num_hidden_layers} layers;
  {_recipe(spec)}.
- Every row is one packed segment: token type 1 was never trained.
- The whole spec is in `spec.json` of the MLflow run; it reproduces the job.

## Data

{sources}

{corpus.num_train_documents:,} documents, {corpus.num_train_tokens:,} tokens of {corpus.vocab_size:,} kinds; corpus
`{corpus.digest}`. Licences of the sources are theirs.

## Held-out figures

On {corpus.num_validation_documents:,} documents that were not trained on.

| figure | value | without learning |
|---|---|---|
{rows}
"""


def _recipe(spec: PretrainSpec) -> str:
    objective = spec.objective
    parts = network_parts(objective)
    has_network = parts.generator or parts.cloze_towers
    generator = f"ratio {spec.model.generator_size_ratio:g}" if has_network else objective.generator
    if objective.name == "mlm":
        return "no generator"
    if objective.name == "two_stage":
        share = objective.two_stage_switch_fraction
        return f"generator {generator}, alone for {share:.0%} of the steps and frozen for the rest"
    return f"generator {generator}; λ = {objective.discriminator_weight:g}"


def _baseline(baselines: Mapping[str, float], key: str) -> str:
    return f"{baselines[key]:.4g}" if key in baselines else "–"


def plain_example(example: Sequence[ExampleToken]) -> str:
    """The marked sentence as text: `[replaced|original 97 %]` where a token was replaced, with P(replaced)."""
    words = []
    for token in example:
        probability = f"{100 * token.replaced_probability:.0f} %"
        if token.token != token.original:
            words.append(f"[{token.token}|{token.original} {probability}]")
        elif token.replaced_probability > 0.5:
            words.append(f"[{token.token} {probability}]")
        else:
            words.append(token.token)
    return " ".join(words)
