"""What a contender is, and the proof that all of them compute the same thing."""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass

import torch

# Relative. Products in bf16 keep 8 bits of each factor.
_LOSS_TOLERANCE = {"fp32": 1e-4, "bf16": 1e-2}
_GRADIENT_TOLERANCE = {"fp32": 1e-3, "bf16": 5e-2}
DTYPES = {"fp32": torch.float32, "bf16": torch.bfloat16}


class DisagreementError(Exception):
    """Two contenders do not compute the same thing, so their times must not be compared."""


@dataclass(frozen=True)
class Answer:
    """Losses and gradient of the question of `sizes.question`, without dropout."""

    generator_loss: float
    discriminator_loss: float
    gradient_norm: float
    num_parameters: int
    """Without those that pad the vocabulary."""


class Contender(ABC):
    """One way to run a training step, or a part of it."""

    device: torch.device

    @abstractmethod
    def step(self) -> None:
        """Run once."""

    def answer(self) -> Answer | None:
        """To the question; None where there is nothing to compare. Called once, before any step."""
        return None

    def run(self, num_steps: int) -> float:
        """Seconds per step."""
        self._wait()
        start = time.perf_counter()
        for _ in range(num_steps):
            self.step()
        self._wait()
        return (time.perf_counter() - start) / num_steps

    def _wait(self) -> None:
        if self.device.type == "cuda":
            torch.cuda.synchronize(self.device)


def answered(
    module: torch.nn.Module,
    generator_loss: torch.Tensor,
    discriminator_loss: torch.Tensor,
    weight: float,
    num_padding: int,
) -> Answer:
    """Differentiate the whole loss and take the gradient's norm; leaves no gradient behind.

    Args:
        module: both networks.
        generator_loss: 0-dim.
        discriminator_loss: 0-dim.
        weight: λ.
        num_padding: parameters that only pad the vocabulary.
    """
    (generator_loss + weight * discriminator_loss).backward()
    parameters = list(module.parameters())
    norms = [parameter.grad.norm() for parameter in parameters if parameter.grad is not None]
    module.zero_grad(set_to_none=True)
    return Answer(
        generator_loss=generator_loss.item(),
        discriminator_loss=discriminator_loss.item(),
        gradient_norm=torch.stack(norms).norm().item(),
        num_parameters=sum(parameter.numel() for parameter in parameters) - num_padding,
    )


def check_agreement(answers: Mapping[str, tuple[str, Answer]], reference: str) -> None:
    """Compare every answer with the reference's.

    Args:
        answers: name of a contender to its precision ("fp32" or "bf16") and its answer.
        reference: name of the contender the others are held against.

    Raises:
        DisagreementError: one differs by more than its precision explains.
    """
    expected = answers[reference][1]
    for name, (precision, answer) in answers.items():
        if answer.num_parameters != expected.num_parameters:
            raise DisagreementError(
                f"{name} trains {answer.num_parameters} parameters, {reference} {expected.num_parameters}"
            )
        tolerances = {
            "generator_loss": _LOSS_TOLERANCE[precision],
            "discriminator_loss": _LOSS_TOLERANCE[precision],
            "gradient_norm": _GRADIENT_TOLERANCE[precision],
        }
        for field, tolerance in tolerances.items():
            got, wanted = getattr(answer, field), getattr(expected, field)
            if not abs(got - wanted) <= tolerance * abs(wanted):  # also where one is not a number
                raise DisagreementError(
                    f"{field} of {name} is {got:.6g}, but {wanted:.6g} of {reference}: more than {tolerance:g} apart"
                )
