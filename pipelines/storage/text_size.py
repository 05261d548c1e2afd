"""How much text stored files hold, without reading them through."""

from __future__ import annotations

import io
from collections.abc import Sequence

from pipelines import storage
from pipelines.storage.decompression import SUFFIXES, DamagedError, decompressed

TYPICAL_COMPRESSION = 2.6
"""Bytes of prose for one of gzip at its default level: 132 MB of English were 51 MB. For files that are not here, of
which one look could cost a request each; zstd's default level comes near it."""
MAX_COMPRESSION = 100.0
"""No text compresses so well: what does is not decompressed any further."""
MAX_SAMPLES = 16
"""Files of which the beginning is read; the others are taken for as compressible as these."""
SAMPLE_BYTES = 1 << 20
"""Of the beginning of a compressed file, as stored; a smaller one is read whole."""
_STEP_BYTES = 8 << 10
"""The step that meets the end of a sample is lost."""


def text_bytes(files: Sequence[storage.FoundFile]) -> int:
    """Bytes of text in files of known sizes; an estimate for those whose names say that they are compressed.

    Parquet counts as it is stored.
    """
    plain = sum(file.size_bytes for file in files if not file.uri.lower().endswith(SUFFIXES))
    stored = [file for file in files if file.uri.lower().endswith(SUFFIXES)]
    if not stored:
        return plain
    local = [file for file in stored if storage.is_local(file.uri)]
    sampled = local[:: -(-len(local) // MAX_SAMPLES)] if local else []
    ratios = {file: ratio for file in sampled if (ratio := _compression(file.uri)) is not None}
    usual = sum(ratios.values()) / len(ratios) if ratios else TYPICAL_COMPRESSION
    return plain + round(sum(file.size_bytes * ratios.get(file, usual) for file in stored))


def _compression(uri: str) -> float | None:
    """Bytes of text for one stored byte at the beginning of a compressed file; None where that cannot be told."""
    held = 0
    try:
        with storage.open_input(uri) as stream:
            sample = stream.read(SAMPLE_BYTES)
        with decompressed(io.BytesIO(sample), uri) as text:
            while held < MAX_COMPRESSION * len(sample) and (data := text.read(_STEP_BYTES)):
                held += len(data)
    except DamagedError:
        pass  # a sample ends in the middle
    except (ImportError, storage.StorageError):  # zstandard is not among what the service needs
        return None
    return held / len(sample) if held else None
