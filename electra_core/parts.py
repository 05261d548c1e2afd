"""Which networks and heads an objective is made of. Plain words without torch: prices are reckoned from them too."""

from __future__ import annotations

from dataclasses import dataclass

from electra_core.config import EncoderConfig, ModelConfig, ObjectiveConfig

_WITH_LANGUAGE_HEAD = frozenset({"mlm", "replace_mlm", "all_tokens_mlm"})
_WITHOUT_DETECTION_HEAD = frozenset({"mlm", "replace_mlm"})
_WITHOUT_GENERATOR = frozenset({"mlm", "electric"})


@dataclass(frozen=True, slots=True)
class NetworkParts:
    """What is built beside the embeddings and the main network, which every objective has.

    The main network is called `discriminator` everywhere, whatever it is trained for.
    """

    generator: bool
    """A generator, with its head."""
    cloze_towers: bool
    """Electric's two-tower cloze network, with its head, in the generator's place."""
    detection_head: bool
    """On the main network: one logit per token."""
    language_head: bool
    """On the main network: one logit per id."""
    baseline: bool
    """The vector that predicts the generator's reward."""

    @property
    def has_second_network(self) -> bool:
        """Whether replacements come from a network, of either kind: `model.sharing` speaks of it and the main one."""
        return self.generator or self.cloze_towers


def network_parts(objective: ObjectiveConfig) -> NetworkParts:
    """The parts an objective uses: no other is built, so every parameter is trained."""
    name = objective.name
    return NetworkParts(
        generator=objective.generator == "transformer" and name not in _WITHOUT_GENERATOR,
        cloze_towers=name == "electric",
        detection_head=name not in _WITHOUT_DETECTION_HEAD,
        language_head=name in _WITH_LANGUAGE_HEAD,
        baseline=name == "adversarial",
    )


def check_model_fits(model: ModelConfig, objective: ObjectiveConfig) -> None:
    """Refuse networks that an objective cannot be made of.

    Raises:
        ValueError: a field of `model` clashes with the objective.
    """
    if objective.name == "two_stage":
        _check_two_stage(model)
    elif not network_parts(objective).has_second_network:
        who = f"name is {objective.name!r}" if objective.name == "mlm" else f"generator is {objective.generator!r}"
        if model.sharing != "embeddings":
            raise ValueError(
                f"model.sharing must be left at 'embeddings' where objective.{who}, as there is no second network, "
                f"got {model.sharing!r}"
            )
        if model.generator_num_hidden_layers is not None:
            raise ValueError(
                f"model.generator_num_hidden_layers must be absent where objective.{who}, as there is no generator, "
                f"got {model.generator_num_hidden_layers}"
            )
    elif objective.name == "electric" and model.sharing == "all":
        raise ValueError(
            "model.sharing must not be 'all' where objective.name is 'electric', whose cloze network is two towers, "
            "got 'all'"
        )


def _check_two_stage(model: ModelConfig) -> None:
    why = "where objective.name is 'two_stage', whose discriminator starts from the generator's weights"
    if model.generator_size_ratio != 1:
        raise ValueError(f"model.generator_size_ratio must be 1 {why}, got {model.generator_size_ratio:g}")
    if model.generator_depth != model.num_hidden_layers:
        raise ValueError(
            f"model.generator_num_hidden_layers must be absent or equal to num_hidden_layers {why}, "
            f"got {model.generator_num_hidden_layers} of {model.num_hidden_layers} layers"
        )
    if model.sharing != "none":
        raise ValueError(
            f"model.sharing must be 'none' {why} and is trained while the generator stands still, got {model.sharing!r}"
        )


def exported_networks(objective: ObjectiveConfig) -> tuple[str, ...]:
    """Networks worth keeping, the main one first: `discriminator`, or `encoder` where it detects nothing; then
    `generator`, where there is one. Electric's two towers are no BERT, so they stay behind.
    """
    parts = network_parts(objective)
    main = "discriminator" if parts.detection_head else "encoder"
    return (main, "generator") if parts.generator else (main,)


def generator_encoder(model: ModelConfig, objective: ObjectiveConfig, vocab_size: int) -> EncoderConfig:
    """Sizes of the generator, or of one tower: in `two_stage` the discriminator's, heads included, since its weights
    become the discriminator's.
    """
    return model.discriminator(vocab_size) if objective.name == "two_stage" else model.generator(vocab_size)


def cloze_head_encoder(tower: EncoderConfig) -> EncoderConfig:
    """Sizes that the head on two towers is built from: it reads both, side by side."""
    return EncoderConfig.model_validate({**dict(tower), "hidden_size": 2 * tower.hidden_size})
