"""The upgrade benchmark takes over from a version whose database has to be migrated."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

BENCHMARKS = Path(__file__).parents[2] / "benchmarks"


@pytest.fixture
def commit(monkeypatch, tmp_path):
    """Makes a commit with migrations of these numbers alone, in a repository that the benchmark takes for its own."""
    monkeypatch.syspath_prepend(str(BENCHMARKS))
    import upgrade

    monkeypatch.setattr(upgrade, "ROOT", tmp_path)
    folder = tmp_path / upgrade.VERSIONS

    def git(*arguments):
        who = ["-c", "user.name=t", "-c", "user.email=t@t.test"]
        return subprocess.run(["git", *who, *arguments], cwd=tmp_path, check=True, capture_output=True, text=True)

    def make(*numbers):
        folder.mkdir(parents=True, exist_ok=True)
        for path in folder.iterdir():
            path.unlink()
        for number in numbers:
            (folder / f"{number:04}_x.py").write_text("")
        (folder / "__init__.py").write_text("")
        git("add", "-A")
        git("commit", "-q", "--allow-empty", "-m", "x")
        return git("rev-parse", "HEAD").stdout.strip()

    git("init", "-q")
    return make


def test_the_newest_ancestor_with_the_first_of_our_migrations_is_taken(commit):
    from upgrade import earlier_revision

    commit(1)
    wanted = commit(1, 2)
    commit(1, 3)  # of a branch, numbered anew since: its database is no earlier form of ours
    commit(1, 2, 3)
    commit(1, 2, 3)
    assert earlier_revision() == wanted


def test_without_such_an_ancestor_one_has_to_be_named(commit):
    from upgrade import earlier_revision

    commit(1)
    with pytest.raises(SystemExit, match="--revision"):
        earlier_revision()


def test_a_worktree_is_gone_afterwards(commit, tmp_path):
    from upgrade import VERSIONS, checked_out

    revision = commit(1)
    commit(1, 2)
    with checked_out(revision, tmp_path / "old") as old:
        assert [path.name for path in (old / VERSIONS).glob("0*")] == ["0001_x.py"]
    assert not old.exists()
