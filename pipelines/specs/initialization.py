"""Where the initial weights come from, if not from the seed."""

from __future__ import annotations

from typing import Annotated, Literal, Self

from pydantic import AfterValidator, Field, model_validator

from electra_core.config import FrozenModel
from pipelines.specs.corpus import SUPPORTED_SCHEMES, Uri

Network = Literal["both", "discriminator", "generator"]


def _is_one_place(uri: str) -> str:
    scheme, separator, _ = uri.partition("://")
    if separator and scheme not in SUPPORTED_SCHEMES:
        raise ValueError(f"must have a scheme of {', '.join(SUPPORTED_SCHEMES)} or none, got {uri!r}")
    if any(letter in uri for letter in "*?[\n\x00"):
        raise ValueError(f"must name one place and be no pattern, got {uri!r}")
    return uri


WeightsUri = Annotated[Uri, AfterValidator(_is_one_place)]
"""One file or folder: a local path, `file://`, `s3://`, `gs://` or `https://`."""


class CheckpointInitialization(FrozenModel):
    """A checkpoint of another job of ours: its weights, and neither its step nor its optimizer's state."""

    type: Literal["checkpoint"] = "checkpoint"
    uri: WeightsUri
    """A job's directory or its `checkpoints` folder, for the newest in it, or one `checkpoints/step_…` folder."""
    load: Network = "both"
    """What is not loaded keeps the start the seed gives; `both` are those of the two that the objective has. Embeddings
    that both networks share are loaded with either."""


class TransformersInitialization(FrozenModel):
    """Folders in the layout of Transformers: `config.json` and `model.safetensors` or `pytorch_model.bin`."""

    type: Literal["transformers"] = "transformers"
    discriminator_uri: WeightsUri | None = None
    """Folder of an `ElectraForPreTraining`, or of another class with an Electra backbone: its head then starts anew."""
    generator_uri: WeightsUri | None = None
    """Folder of an `ElectraForMaskedLM`. Where both are given, shared embeddings are the discriminator's."""

    @model_validator(mode="after")
    def _names_one(self) -> Self:
        if self.discriminator_uri is None and self.generator_uri is None:
            raise ValueError("discriminator_uri or generator_uri must be given, got neither")
        return self


class TensorflowInitialization(FrozenModel):
    """A checkpoint of the original implementation, google-research/electra."""

    type: Literal["tensorflow"] = "tensorflow"
    uri: WeightsUri
    """What stands before `.index` and `.data-00000-of-00001` in the names of the files."""
    load: Network = "both"
    """As for `checkpoint`."""


InitializationSpec = Annotated[
    CheckpointInitialization | TransformersInitialization | TensorflowInitialization, Field(discriminator="type")
]


def named_files(spec: InitializationSpec) -> dict[str, str]:
    """Field to the URI of something that must exist before the job starts."""
    if isinstance(spec, TransformersInitialization):
        uris = {"discriminator_uri": spec.discriminator_uri, "generator_uri": spec.generator_uri}
        return {name: f"{uri.rstrip('/')}/config.json" for name, uri in uris.items() if uri is not None}
    if isinstance(spec, TensorflowInitialization):
        return {"uri": spec.uri.removesuffix(".index") + ".index"}
    return {"uri": spec.uri}
