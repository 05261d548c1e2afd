"""`/v1/presets`: whole specs by name."""

from __future__ import annotations

import inspect
from typing import Annotated

from fastapi import APIRouter, Path

from pipelines.specs.presets import PRESETS
from service.errors import PresetNotFoundError
from service.http.problems import problems
from service.http.schemas import Preset, PresetList

router = APIRouter(prefix="/v1/presets", tags=["presets"])


@router.get("", responses=problems())
def list_presets() -> PresetList:
    """All presets."""
    return PresetList(items=tuple(_preset(name) for name in PRESETS))


@router.get("/{name}", responses=problems(404))
def get_preset(name: Annotated[str, Path(max_length=100)]) -> Preset:
    """One preset."""
    if name not in PRESETS:
        raise PresetNotFoundError(f"Presets are {', '.join(PRESETS)}; there is no {name[:100]!r}.")
    return _preset(name)


def _preset(name: str) -> Preset:
    make = PRESETS[name]
    summary = (inspect.getdoc(make) or "").partition("\n")[0]
    return Preset(name=name, summary=summary, spec=make().model_dump(mode="json"))
