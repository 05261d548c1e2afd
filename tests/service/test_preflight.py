from __future__ import annotations

import gzip
import threading
from pathlib import Path

import pytest
from service_doubles import START

from pipelines import storage
from pipelines.specs.parsing import resolve_spec
from pipelines.specs.pretrain import PretrainSpec
from service.errors import CorpusUnreadableError, InsufficientResourcesError
from service.jobs.preflight import check_capacity, check_sources
from service.records import ClusterStatus


def spec_of(*uris: str, **sections: object) -> PretrainSpec:
    sources = [{"type": "text", "uris": list(uris)}] if uris else [{"type": "python_docs"}]
    return resolve_spec({"kind": "pretrain", "preset": "tiny", "corpus": {"sources": sources}, **sections})


def cluster(**changes: object) -> ClusterStatus:
    known: dict[str, object] = {"reconciled_at": START, "is_ray_reachable": True, "num_cpus": 2.0, "num_gpus": 0.0}
    return ClusterStatus(**{**known, **changes})  # type: ignore[arg-type]


def test_sizes_add_up(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("12345")
    (tmp_path / "b.txt").write_text("")
    assert check_sources(spec_of(str(tmp_path / "a.txt"), str(tmp_path)), 5) == 10
    assert check_sources(spec_of(), 5) is None


def test_every_fault_is_told_in_order(tmp_path: Path) -> None:
    with pytest.raises(CorpusUnreadableError) as caught:
        check_sources(spec_of(*[str(tmp_path / str(number)) for number in range(12)]), 5)
    assert [fault.pointer for fault in caught.value.faults] == [f"/spec/corpus/sources/0/uris/{n}" for n in range(12)]


@pytest.mark.parametrize(
    ("section", "pointer", "file"),
    [
        ({"type": "checkpoint", "uri": "job"}, "uri", "job"),
        ({"type": "tensorflow", "uri": "model.ckpt"}, "uri", "model.ckpt.index"),
        ({"type": "transformers", "generator_uri": "model"}, "generator_uri", "model/config.json"),
    ],
)
def test_initial_weights_must_be_there(section: dict[str, str], pointer: str, file: str, tmp_path: Path) -> None:
    (tmp_path / "vocab.txt").write_text("[PAD]")
    section = {key: value if key == "type" else str(tmp_path / value) for key, value in section.items()}
    tokenizer = {"type": "pretrained", "uri": str(tmp_path / "vocab.txt")}
    spec = spec_of(initialization=section, tokenizer=tokenizer)
    with pytest.raises(CorpusUnreadableError, match="no such file") as caught:
        check_sources(spec, 5)
    assert [(fault.pointer, fault.value) for fault in caught.value.faults] == [
        (f"/spec/initialization/{pointer}", str(tmp_path / file))
    ]
    (tmp_path / file).parent.mkdir(exist_ok=True)
    (tmp_path / file).write_text("there")
    assert check_sources(spec, 5) is None


def test_a_store_that_never_answers_costs_the_time_out_and_no_more(monkeypatch: pytest.MonkeyPatch) -> None:
    released = threading.Event()
    monkeypatch.setattr(storage, "expand", lambda _: released.wait(30))
    with pytest.raises(CorpusUnreadableError, match=r"must answer within 0\.2 seconds"):
        check_sources(spec_of("s3://a/b", "s3://a/c"), 0.2)
    assert not released.is_set()  # and it was not waited for
    released.set()


def test_surprises_of_a_driver_are_faults_too(monkeypatch: pytest.MonkeyPatch) -> None:
    def explode(_: str) -> None:
        raise KeyError("inside")

    monkeypatch.setattr(storage, "expand", explode)
    with pytest.raises(CorpusUnreadableError, match="KeyError"):
        check_sources(spec_of("s3://a/b"), 5)


def test_ten_thousand_uris_are_looked_at_in_bounded_time(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("x")
    assert check_sources(spec_of(*[str(tmp_path / "a.txt")] * 2000), 20) == 2000


@pytest.mark.parametrize(
    "status", [None, cluster(num_cpus=None, num_gpus=None), cluster(is_ray_reachable=False), cluster(num_cpus=64)]
)
def test_a_cluster_of_unknown_or_ample_size_takes_the_job(status: ClusterStatus | None) -> None:
    check_capacity(spec_of(compute={"num_workers": 8}), status)


def test_a_small_cluster_does_not() -> None:
    check_capacity(spec_of(compute={"num_workers": 2, "cpus_per_worker": 1.0}), cluster())
    check_capacity(spec_of(compute={"num_workers": 4, "cpus_per_worker": 0.5}), cluster())
    with pytest.raises(InsufficientResourcesError, match=r"at most the cluster's 2 CPUs, got 2\.5"):
        check_capacity(spec_of(compute={"num_workers": 1, "cpus_per_worker": 2.5}), cluster())


def test_the_workers_of_a_probe_must_fit_too() -> None:
    """Alone: they wait for the end of training where there is no room beside it."""
    task = {"type": "glue", "name": "RTE", "uri": "x"}
    probe = {"tasks": {"rte": task}, "interval_steps": 20_000, "compute": {"cpus_per_worker": 2.0}}
    check_capacity(spec_of(compute={"num_workers": 2}, probe=probe), cluster())
    probe["compute"] = {"num_workers": 3}
    with pytest.raises(InsufficientResourcesError) as caught:
        check_capacity(spec_of(compute={"num_workers": 2}, probe=probe), cluster())
    assert [fault.pointer for fault in caught.value.faults] == ["/spec/probe/compute/num_workers"]
    assert "probe.compute.num_workers × cpus_per_worker must be at most the cluster's 2 CPUs" in str(caught.value)


def test_labelled_files_must_be_there(tmp_path: Path) -> None:
    """Files of every split, and a model by its folder or, as TensorFlow's are, by the beginning of its names."""
    for name in ("train.csv", "model.ckpt.index"):
        (tmp_path / name).write_text("12345")
    task = {"type": "classification", "data": {"train": f"{tmp_path}/train.csv", "test": f"{tmp_path}/test.csv"}}
    model = {"type": "files", "uri": f"{tmp_path}/model.ckpt"}
    spec = resolve_spec({"kind": "finetune", "model": model, "task": task})
    with pytest.raises(CorpusUnreadableError) as caught:
        check_sources(spec, 5)
    assert [fault.pointer for fault in caught.value.faults] == ["/spec/task/data/test/0"]
    (tmp_path / "test.csv").write_text("12")
    assert check_sources(spec, 5) == 7


def test_compressed_files_count_as_the_text_they_hold(tmp_path: Path) -> None:
    (tmp_path / "a.txt.gz").write_bytes(gzip.compress(b"text " * 1000))
    assert check_sources(spec_of(str(tmp_path)), 5) == 5000
