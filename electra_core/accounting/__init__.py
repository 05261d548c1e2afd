"""What a model costs: parameters, arithmetic, memory. Plain arithmetic without torch: the service can quote it."""

from electra_core.accounting.flops import Flops, training_flops_per_token
from electra_core.accounting.masked_positions import max_masked_positions
from electra_core.accounting.memory import MemoryBytes, training_memory_bytes
from electra_core.accounting.parameters import ParameterCounts, parameter_counts

__all__ = [
    "Flops",
    "MemoryBytes",
    "ParameterCounts",
    "max_masked_positions",
    "parameter_counts",
    "training_flops_per_token",
    "training_memory_bytes",
]
