"""One evaluation job, stage by stage: prepare → evaluate → record.

Networks times files are units of their own, side by side in Ray tasks; what is finished is never done again.
"""

from __future__ import annotations

import functools
import json
import tempfile
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import cast

from pipelines import storage
from pipelines.corpus.sources import take_inventory
from pipelines.errors import CheckpointError, DataError, RecordError
from pipelines.job import JobDirectory, ProgressReporter
from pipelines.job_run import open_job_run
from pipelines.pins import take_over_copy
from pipelines.record import tracking
from pipelines.record.identity import RunIdentity
from pipelines.resources import check_resources, run_side_by_side
from pipelines.scoring.networks import FOLDER as NETWORKS
from pipelines.scoring.networks import KeptNetwork, keep_network
from pipelines.scoring.pairs import PairScores
from pipelines.scoring.summarise import headline, metrics, short_names, summarise_pairs, summarise_text, table
from pipelines.scoring.text import TextScores
from pipelines.scoring.units import PairsUnit, TextUnit, Unit, score_unit
from pipelines.specs.corpus import CorpusSpec
from pipelines.specs.documents import JobResult, MinimalPairScores, UnseenTextScores
from pipelines.specs.evaluate import EvaluateSpec, UnseenTextSpec
from pipelines.specs.jobs import JobSpec


def run_evaluation(
    directory: JobDirectory, spec: EvaluateSpec, attempt: int, tracking_uri: str, reporter: ProgressReporter
) -> JobResult:
    """Run the job to its end.

    Raises:
        PipelineError: any stage's, written for the person who submitted the job.
    """
    check_resources(spec.compute)
    run = open_job_run(directory, spec, attempt, tracking_uri)
    reporter.update(now=True, mlflow_run_id=run.run_id, mlflow_experiment_id=run.experiment_id)

    reporter.stage("prepare", "fetching the networks")
    for kind in spec.networks:
        take_over_copy(directory, functools.partial(_network_of, kind), NETWORKS, kind)
    networks = {kind: keep_network(kind, source, directory.uri, tracking_uri) for kind, source in spec.networks.items()}
    if spec.unseen_text is not None:
        _check_text(spec.unseen_text, networks)
    units = _units(spec, networks, directory)
    tracking.log_params(run, spec.model_dump(mode="json"))
    tracking.set_tags(run, {f"electra.{kind}": network.origin for kind, network in networks.items()})

    reporter.stage("evaluate", "starting")

    def tell(num_done: int) -> None:
        reporter.say(f"{num_done} of {len(units)} files and sources scored", num_done / len(units))

    done = dict(run_side_by_side(score_unit, units, spec.compute, tell))

    reporter.stage("record", "writing the report")
    pairs, texts = _summaries(units, done)
    _record(run, directory, pairs, texts)
    return JobResult(
        state="SUCCEEDED",
        attempt=attempt,
        evaluation=headline(pairs, texts),
        baselines={f"{one.network}_minimal_pairs": 0.5 for one in pairs},
        minimal_pairs=tuple(pairs),
        unseen_text=tuple(texts),
        mlflow_run_id=run.run_id,
        mlflow_experiment_id=run.experiment_id,
        finished_at=datetime.now(UTC),
    )


def _network_of(kind: str, spec: JobSpec) -> object:
    return cast(EvaluateSpec, spec).networks.get(kind)


def _check_text(spec: UnseenTextSpec, networks: Mapping[str, KeptNetwork]) -> None:
    for kind, network in networks.items():
        longest = network.encoder.max_position_embeddings
        if spec.sequence_length > longest:
            raise DataError(
                f"unseen_text.sequence_length must be at most the {kind}'s max_position_embeddings, "
                f"got {spec.sequence_length} and {longest}"
            )
    for name, source in spec.sources.items():
        if not any(
            file.size_bytes for inventory in take_inventory(CorpusSpec(sources=(source,))) for file in inventory.files
        ):
            raise DataError(f"unseen_text.sources.{name} must hold text, got files that are all empty")
    if len({network.vocabulary_sha256 for network in networks.values()}) > 1:
        origins = " and ".join(network.origin for network in networks.values())
        raise CheckpointError(
            f"discriminator and generator must have one vocabulary where unseen_text is given, got two: {origins}"
        )
    sizes = {kind: network.encoder.vocab_size for kind, network in networks.items()}
    if sizes["generator"] > sizes.get("discriminator", sizes["generator"]):
        raise CheckpointError(
            "the generator must have at most as many ids as the discriminator, which reads what it writes, got "
            f"{sizes['generator']} and {sizes['discriminator']}"
        )


def _units(spec: EvaluateSpec, networks: Mapping[str, KeptNetwork], directory: JobDirectory) -> list[Unit]:
    units: list[Unit] = []
    if spec.minimal_pairs is not None:
        found = [file for uri in spec.minimal_pairs.uris for file in storage.expand(uri)]
        files = {file.uri: file for file in found}  # two patterns may name one file
        max_tokens = min(network.encoder.max_position_embeddings for network in networks.values())
        for kind, network in networks.items():
            units += [
                PairsUnit(
                    network=network,
                    spec=spec.minimal_pairs,
                    file_uri=file.uri,
                    file_identity=file.identity,
                    max_tokens=max_tokens,
                    compute=spec.compute,
                    uri=directory.path("scores", f"pairs-{kind}-{number:04d}"),
                )
                for number, file in enumerate(files.values())
            ]
    if spec.unseen_text is not None:
        units += [
            TextUnit(
                generator=networks["generator"],
                discriminator=networks.get("discriminator"),
                name=name,
                source=source,
                spec=spec.unseen_text,
                compute=spec.compute,
                uri=directory.path("scores", f"text-{name}"),
            )
            for name, source in spec.unseen_text.sources.items()
        ]
    return units


def _summaries(
    units: list[Unit], done: Mapping[int, PairScores | TextScores]
) -> tuple[list[MinimalPairScores], list[UnseenTextScores]]:
    names = short_names([unit.file_uri for unit in units if isinstance(unit, PairsUnit)])
    by_network: dict[str, dict[str, PairScores]] = {}
    texts = []
    for place, unit in enumerate(units):
        scores = done[place]
        if isinstance(unit, PairsUnit) and isinstance(scores, PairScores):
            by_network.setdefault(unit.network.kind, {})[names[unit.file_uri]] = scores
        elif isinstance(unit, TextUnit) and isinstance(scores, TextScores):
            texts.append(summarise_text(unit.name, scores))
    pairs = [
        summarise_pairs("discriminator" if kind == "discriminator" else "generator", files)
        for kind, files in by_network.items()
    ]
    return pairs, texts


def _record(
    run: RunIdentity, directory: JobDirectory, pairs: list[MinimalPairScores], texts: list[UnseenTextScores]
) -> None:
    """Every figure, the table and the counts."""
    final = tracking.Run(run)
    final.log_metrics(1, metrics(pairs, texts))
    if final.close():
        raise RecordError("MLflow did not take the final figures in time")
    text = table(pairs, texts)
    with tempfile.TemporaryDirectory() as scratch:
        report = Path(scratch)
        (report / "scores.md").write_text(text, encoding="utf-8")
        document = {
            "minimal_pairs": [one.model_dump(mode="json") for one in pairs],
            "unseen_text": [one.model_dump(mode="json") for one in texts],
        }
        (report / "scores.json").write_text(json.dumps(document, indent=1) + "\n", encoding="utf-8")
        storage.upload_tree(report, directory.path("report"))
        tracking.log_artifacts(run, report, "report")
    tracking.end_run(run, "FINISHED", {"mlflow.note.content": text})
