"""`electra convert`: a process of its own does the work, and its end is the command's."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import pytest
from typer.testing import CliRunner

from service.cli import app, convert

GOLDEN = Path(__file__).parents[1] / "golden" / "tensorflow" / "electra.ckpt"


def test_folders_are_written(tmp_path: Path) -> None:
    words = ["convert", str(GOLDEN), str(tmp_path), "--network", "discriminator", "--json"]
    result = CliRunner().invoke(app, words)
    assert result.exit_code == 0
    assert json.loads(result.stdout)["destination"] == str(tmp_path)
    assert sorted(path.name for path in (tmp_path / "discriminator").iterdir()) == ["config.json", "model.safetensors"]


def test_a_source_that_is_none_is_wrong_input(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    assert CliRunner().invoke(app, ["convert", str(tmp_path / "no"), str(tmp_path / "out")]).exit_code == 2
    assert "cannot convert" in capfd.readouterr().err


def test_a_process_that_was_killed_is_a_failure_and_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    commands: list[list[str]] = []

    def die(command: list[str], *, check: bool, stdout: int | None) -> subprocess.CompletedProcess[bytes]:
        commands.append(command)
        return subprocess.CompletedProcess(command, -15)

    monkeypatch.setattr(convert.subprocess, "run", die)
    result = CliRunner().invoke(app, ["convert", "a", str(tmp_path)])
    assert (result.exit_code, "killed by signal 15" in result.stderr) == (1, True)
    ((_, *arguments),) = commands
    # With -P nothing is imported from the folder that the command is given in.
    assert arguments == ["-P", "-m", "pipelines.convert", "--network", "both", "--", "a", str(tmp_path)]


def test_without_its_packages_it_names_the_extra(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(convert, "_NEEDED", ("a_package_nobody_has",))
    result = CliRunner().invoke(app, ["convert", "a", str(tmp_path)])
    assert result.exit_code == 2
    assert "a_package_nobody_has" in result.stderr
    assert "pip install 'electra-pretraining[training]'" in result.stderr
