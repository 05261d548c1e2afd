"""Exported networks of pretraining, registered under their names."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pipelines.export import ARCHITECTURES
from pipelines.job_run import serving_requirements
from pipelines.record import tracking
from pipelines.record.card import card_text
from pipelines.record.identity import RunIdentity
from pipelines.specs.documents import ModelVersion
from pipelines.specs.pretrain import PretrainSpec

PIPELINE_TASKS = {"discriminator": "feature-extraction", "encoder": "fill-mask", "generator": "fill-mask"}
"""Transformers pipeline each network serves in MLflow; no pipeline exists for replaced-token detection itself."""


def register_networks(
    run: RunIdentity, spec: PretrainSpec, job_id: str, local: Mapping[str, Path], exports: Mapping[str, str]
) -> tuple[ModelVersion, ...]:
    """Register every network, in the order given.

    Args:
        run: of the job.
        spec: gives the names and the alias.
        job_id: for the tags.
        local: copies of the exports, by network.
        exports: their URIs, by network.

    Raises:
        RecordError: MLflow does not answer, or refuses.
    """
    models = []
    for network, folder in local.items():
        name = spec.generator_model_name if network == "generator" else spec.discriminator_model_name
        version = tracking.register_model(
            run,
            folder,
            artifact_name=network,
            model_name=name,
            alias=spec.record.alias,
            architecture=ARCHITECTURES[network],
            task=PIPELINE_TASKS[network],
            pip_requirements=serving_requirements(),
            tags={tracking.JOB_TAG: job_id, "electra.network": network},
            description=card_text(folder),
        )
        fields: dict[str, Any] = {
            "network": network,
            "name": name,
            "version": version,
            "alias": spec.record.alias,
            "export_uri": exports[network],
        }
        models.append(ModelVersion.model_validate(fields))
    return tuple(models)
