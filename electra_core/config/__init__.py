"""The words of the method: sizes of the networks, masking, objective, optimizer.

Pure data. Nothing here imports torch, reads a file or a clock, so the service can check a spec without either.
Names are Transformers' for networks and the paper's for the objective (Clark et al. 2020, arXiv:2003.10555);
"G" is the original implementation, google-research/electra.
"""

from electra_core.config.base import FrozenModel
from electra_core.config.head import HeadConfig, HeadStyle, TaskKind
from electra_core.config.masking import MaskingConfig
from electra_core.config.model import VOCAB_PADDING_MULTIPLE, EncoderConfig, ModelConfig, Sharing
from electra_core.config.objective import ELECTRA, GeneratorKind, ObjectiveConfig, ObjectiveName
from electra_core.config.optimizer import DEFAULT_DECAY_FRACTION, OptimizerConfig

__all__ = [
    "DEFAULT_DECAY_FRACTION",
    "ELECTRA",
    "VOCAB_PADDING_MULTIPLE",
    "EncoderConfig",
    "FrozenModel",
    "GeneratorKind",
    "HeadConfig",
    "HeadStyle",
    "MaskingConfig",
    "ModelConfig",
    "ObjectiveConfig",
    "ObjectiveName",
    "OptimizerConfig",
    "Sharing",
    "TaskKind",
]
