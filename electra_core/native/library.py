"""The compiled kernels as Python functions over tensors: `kernels.cpp`, loaded from the file a compiler made of it.

Every function takes contiguous CPU tensors of float32, or of bfloat16 for what is marked "stored"; widths are multiples
of `WIDTH`. They check neither: their only callers are the functions of this folder.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

SOURCES = tuple(
    Path(__file__).parent / name
    for name in (
        "kernels.cpp",
        "attention.h",
        "cross_entropy.h",
        "elementwise.h",
        "products.h",
        "shared_memory.h",
        "vectors.h",
    )
)
"""What is compiled: the first includes the others."""
WIDTH = 16
"""Floats the kernels work on at a time; rows of every matrix are a multiple of it."""

_SUFFIXES = {torch.float32: "f32", torch.bfloat16: "bf16"}
STORED_DTYPES = frozenset(_SUFFIXES)
"""What tensors may be stored as."""
_P, _I, _N, _F = ctypes.c_void_p, ctypes.c_int64, ctypes.c_int, ctypes.c_float
# p pointer, i 64-bit integer, n int, f float: the C signatures in kernels.cpp, in their order.
_SIGNATURES = {
    "dropout": "ppinpiin",
    "add_layer_norm_forward": "ppppppinpppiifn",
    "add_layer_norm_backward": "pppp" + "in" + "ppppp" + "iin",
    "gelu_forward": "pppiin",
    "gelu_backward": "ppppiin",
    "attention_forward": "ppppnppiiiin",
    "attention_backward": "pppppnpppiiiin",
    "cross_entropy": "ppppppfppppiiin",
}
_TYPES = {"p": _P, "i": _I, "n": _N, "f": _F, "d": ctypes.c_double}
# Of shared_memory.h; all return an int64.
_EXCHANGES = {
    "shared_memory_bytes": "i",
    "shared_memory_enter": "pi",
    "shared_memory_sum": "piidppi",
    "shared_memory_gather": "piidpip",
}


class NativeLibrary:
    """The functions of one compiled file."""

    def __init__(self, path: Path) -> None:
        """Load.

        Raises:
            OSError: the file is no library for this machine.
            AttributeError: it lacks a function: it was made from other sources.
        """
        self.path = path
        library = ctypes.CDLL(str(path))
        self._functions: dict[tuple[str, torch.dtype], Callable[..., None]] = {}
        for name, signature in _SIGNATURES.items():
            for dtype, suffix in _SUFFIXES.items():
                function: Any = getattr(library, f"{name}_{suffix}")
                function.argtypes = [_TYPES[letter] for letter in signature]
                function.restype = None
                self._functions[name, dtype] = function
        self._exchanges: dict[str, Callable[..., int]] = {}
        for name, signature in _EXCHANGES.items():
            exchange: Any = getattr(library, name)
            exchange.argtypes = [_TYPES[letter] for letter in signature]
            exchange.restype = _I
            self._exchanges[name] = exchange

    def call(self, name: str, dtype: torch.dtype, *arguments: Tensor | float | None) -> None:
        """Call `name` for tensors stored as `dtype`; the number of threads is torch's and goes last."""
        values = [argument.data_ptr() if isinstance(argument, Tensor) else argument for argument in arguments]
        self._functions[name, dtype](*values, torch.get_num_threads())

    def exchange(self, name: str, *arguments: Any) -> int:
        """Call a function of `shared_memory.h`; other threads of Python run meanwhile."""
        return self._exchanges[name](*arguments)
