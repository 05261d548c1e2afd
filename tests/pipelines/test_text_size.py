"""How much text files hold, told from their sizes and the beginnings of some."""

from __future__ import annotations

import builtins
import gzip
import random
from pathlib import Path
from typing import Any

import pytest
import zstandard

from pipelines import storage
from pipelines.storage.text_size import MAX_COMPRESSION, TYPICAL_COMPRESSION, text_bytes

PACK = {".gz": gzip.compress, ".zst": zstandard.compress}


def prose(num_words: int) -> bytes:
    rng = random.Random(1)
    words = ["".join(rng.choices("abcdefghij", k=rng.randint(2, 9))) for _ in range(3000)]
    return " ".join(rng.choices(words, k=num_words)).encode()


def measured(path: Path) -> int:
    return text_bytes(storage.expand(str(path)))


@pytest.mark.parametrize("ending", PACK)
def test_what_a_small_file_holds_is_known(ending: str, tmp_path: Path) -> None:
    text = prose(5000)
    (tmp_path / f"a.TXT{ending.upper()}").write_bytes(PACK[ending](text) * 2)
    (tmp_path / "b.txt").write_bytes(b"12345")
    assert measured(tmp_path) == 2 * len(text) + 5


@pytest.mark.parametrize("ending", PACK)
def test_of_a_large_file_the_beginning_tells(ending: str, tmp_path: Path) -> None:
    text = prose(800_000)
    (tmp_path / f"a.jsonl{ending}").write_bytes(PACK[ending](text))
    assert measured(tmp_path) == pytest.approx(len(text), rel=0.1)


def test_of_many_files_some_are_opened(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    opened: list[str] = []
    open_input = storage.open_input
    monkeypatch.setattr(storage, "open_input", lambda uri: opened.append(uri) or open_input(uri))
    text = prose(500)
    for number in range(50):
        (tmp_path / f"{number}.txt.gz").write_bytes(gzip.compress(text))
    assert measured(tmp_path) == 50 * len(text)
    assert 10 < len(opened) <= 16


def test_files_elsewhere_are_not_opened() -> None:
    remote = [storage.FoundFile("s3://a/b.txt.gz", 1000, ""), storage.FoundFile("s3://a/c.txt", 10, "")]
    assert text_bytes(remote) == 1000 * TYPICAL_COMPRESSION + 10


def test_what_cannot_be_decompressed_is_taken_for_prose(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The service does without zstandard."""
    (tmp_path / "broken.gz").write_bytes(b"x" * 1000)
    assert measured(tmp_path / "broken.gz") == 1000 * TYPICAL_COMPRESSION
    (tmp_path / "a.zst").write_bytes(zstandard.compress(prose(1000)))
    imported = builtins.__import__

    def without_zstandard(name: str, *rest: Any) -> Any:
        if name == "zstandard":
            raise ImportError(name)
        return imported(name, *rest)

    monkeypatch.setattr(builtins, "__import__", without_zstandard)
    assert measured(tmp_path / "a.zst") == round((tmp_path / "a.zst").stat().st_size * TYPICAL_COMPRESSION)


def test_a_bomb_is_not_decompressed_whole(tmp_path: Path) -> None:
    (tmp_path / "a.zst").write_bytes(zstandard.compress(b"0" * 50_000_000))
    size = (tmp_path / "a.zst").stat().st_size
    assert measured(tmp_path) < 3 * MAX_COMPRESSION * size + (1 << 20)
    assert measured(tmp_path) < 50_000_000


def test_an_empty_file_holds_nothing(tmp_path: Path) -> None:
    (tmp_path / "a.gz").write_bytes(b"")
    assert measured(tmp_path) == 0
