"""What a corpus was made of, for people who ask later: `sources.json` beside its manifest."""

from __future__ import annotations

from typing import Any

from pipelines.corpus.sources import Inventory
from pipelines.specs.corpus import PythonDocsSource

FORMAT_VERSION = 1
MAX_FILES = 200
"""Of each source so many are named; its hash is over all of them."""


def describe_sources(inventory: tuple[Inventory, ...], texts_digest: str) -> dict[str, Any]:
    """Each source with its files, their sizes, and a hash over names, sizes and identities of all of them."""
    return {"format": FORMAT_VERSION, "texts": texts_digest, "sources": [_describe(source) for source in inventory]}


def _describe(inventory: Inventory) -> dict[str, Any]:
    words = inventory.source.model_dump(mode="json", exclude={"weight"})
    known = [file.size_bytes for file in inventory.files if file.size_bytes >= 0]
    named = () if isinstance(inventory.source, PythonDocsSource) else inventory.files[:MAX_FILES]
    return {
        "type": inventory.source.type,
        "words": words,
        "num_files": len(inventory.files),
        "size_bytes": sum(known),
        "files_sha256": inventory.identity["files"],
        "files": [{"uri": f.uri, "size_bytes": f.size_bytes, "identity": f.identity} for f in named],
    }
