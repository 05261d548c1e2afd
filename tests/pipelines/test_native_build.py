"""Compiling the CPU kernels: what happens where it cannot be done, or was done badly."""

from pathlib import Path

import pytest

from pipelines.training import native_build
from pipelines.training.native_build import build_native_library


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    return tmp_path / "electra-pretraining"


def built_or_skip():
    library = build_native_library()
    if library is None:
        pytest.skip("no C++ compiler here")
    return library


def test_what_was_compiled_is_kept(cache: Path):
    path = built_or_skip().path
    made_at = path.stat().st_mtime_ns
    assert build_native_library().path == path
    assert path.stat().st_mtime_ns == made_at
    assert [file.name for file in cache.iterdir()] == [path.name]


def test_a_damaged_file_is_made_anew(cache: Path):
    compiler = native_build._compiler()
    if compiler is None:
        pytest.skip("no C++ compiler here")
    cache.mkdir(mode=0o700)
    path = cache / f"kernels-{native_build._digest(compiler)}.so"
    path.write_bytes(b"cut short")
    assert build_native_library().path == path
    assert path.stat().st_size > 1000


@pytest.mark.parametrize("does", ["exit 1", "printf '\\377\\376' >&2; exit 1", "exit 0"])
def test_without_a_working_compiler_torch_does_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, does: str):
    script = tmp_path / "broken-compiler"
    script.write_text(f"#!/bin/sh\n{does}\n")
    script.chmod(0o755)
    monkeypatch.setenv("CXX", str(script))
    assert build_native_library() is None


def test_it_can_be_left_out(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("ELECTRA_CPU_KERNELS", "torch")
    assert build_native_library() is None


def test_a_cache_others_can_write_to_is_not_used(cache: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path):
    cache.mkdir(parents=True)
    cache.chmod(0o777)
    (tmp_path / "tmp").mkdir()
    monkeypatch.setattr(native_build.tempfile, "tempdir", str(tmp_path / "tmp"))
    assert built_or_skip().path.parent.parent == tmp_path / "tmp"
    assert not list(cache.iterdir())
