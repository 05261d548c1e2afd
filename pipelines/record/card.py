"""The model card of an exported network."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from electra_core.parts import generator_encoder, network_parts
from pipelines.specs.plan import JobPlan
from pipelines.specs.pretrain import PretrainSpec
from pipelines.storage.artifacts import PreparedCorpus

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

- Job `{job_id}`: {spec.training.num_train_steps:,} steps of {_tokens_per_step(spec)} tokens, which are
  {plan.total_tokens:,} tokens and {plan.total_flops:.3g} FLOPs.
- {parameters:,} parameters; hidden size {encoder.hidden_size}, {encoder.num_hidden_layers} layers;
  {_recipe(spec)}.
- Every row is one packed segment: token type 1 was never trained.
- The whole spec is in `spec.json` of the MLflow run; it reproduces the job.{_start(spec)}

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


def card_text(folder: Path) -> str:
    """The card in an export's folder without its front matter."""
    return (folder / "README.md").read_text(encoding="utf-8").partition("---\n\n")[2]


def _recipe(spec: PretrainSpec) -> str:
    objective = spec.objective
    if objective.name == "mlm":
        return "no generator"
    is_network = network_parts(objective).has_second_network
    generator = f"ratio {spec.model.generator_size_ratio:g}" if is_network else objective.generator
    if objective.name == "two_stage":
        share = objective.two_stage_switch_fraction
        return f"generator {generator}, alone for {share:.0%} of the steps and frozen for the rest"
    return f"generator {generator}; λ = {objective.discriminator_weight:g}"


def _baseline(baselines: Mapping[str, float], key: str) -> str:
    return f"{baselines[key]:.4g}" if key in baselines else "–"


def _tokens_per_step(spec: PretrainSpec) -> str:
    return ", then ".join(f"{stage.tokens_per_step:,}" for stage in spec.training.stages)


def _start(spec: PretrainSpec) -> str:
    """A line on weights that were not this job's own, token type 1 among them."""
    if spec.initialization is None:
        return ""
    origin = spec.initialization.model_dump_json(exclude_none=True)
    return f"\n- It started from the weights of `{origin}`; what was not trained here is theirs."
