"""TensorFlow's own files, read without TensorFlow; damaged and foreign ones are refused with a reason."""

from __future__ import annotations

import shutil
from pathlib import Path

import numpy as np
import pytest
from tensorflow_variables import other_variables, variables

from pipelines.errors import CheckpointError, StorageError
from pipelines.tensorflow_checkpoint.bundle import TensorflowCheckpoint
from pipelines.tensorflow_checkpoint.crc32c import crc32c, masked
from pipelines.tensorflow_checkpoint.table import FOOTER_BYTES, read_table

GOLDEN = Path(__file__).parents[1] / "golden"
QUERY = "generator/encoder/layer_0/attention/self/query/kernel"


@pytest.fixture
def prefix(tmp_path: Path) -> Path:
    """A copy that a test may damage."""
    shutil.copytree(GOLDEN / "tensorflow", tmp_path / "tensorflow")
    return tmp_path / "tensorflow" / "electra.ckpt"


def with_trailers(*blocks: bytes, compression: int = 0) -> bytes:
    """A table of one data block, so that the second is its index."""
    data = b""
    for block in blocks:
        content = block + bytes([compression])
        data += content + masked(crc32c(content)).to_bytes(4, "little")
    handles = bytes([0, 0, len(blocks[0]) + 5, len(blocks[1])])
    return data + handles.ljust(FOOTER_BYTES - 8, b"\0") + 0xDB4775248B80FB57.to_bytes(8, "little")


def test_every_variable_is_read_as_tensorflow_wrote_it(prefix: Path):
    checkpoint = TensorflowCheckpoint(str(prefix))
    expected = variables() | other_variables()
    assert checkpoint.num_shards == 2
    assert {name: entry.shape for name, entry in checkpoint.entries.items()} == {
        name: value.shape for name, value in expected.items()
    }
    arrays = checkpoint.read(checkpoint.entries)
    for name, value in expected.items():
        assert arrays[name].dtype == value.dtype
        np.testing.assert_array_equal(arrays[name], value)


def test_one_tensor_is_read_alone_and_the_index_may_be_named(prefix: Path):
    arrays = TensorflowCheckpoint(f"{prefix}.index").read([QUERY])
    assert list(arrays) == [QUERY]
    np.testing.assert_array_equal(arrays[QUERY], variables()[QUERY])


@pytest.mark.parametrize(
    ("data", "checksum"),
    [(b"123456789", 0xE3069283), (bytes(32), 0x8A9136AA), (bytes(range(32)), 0x46DD794E), (b"", 0)],
)
def test_the_checksum_is_that_of_rfc_3720(data: bytes, checksum: int):
    assert crc32c(data) == checksum


@pytest.mark.parametrize("size", [1, 15, 4_097, 300_001])
def test_lanes_do_not_change_the_checksum(size: int):
    data = np.random.default_rng(size).integers(0, 256, size, np.uint8)
    table = [int(crc32c(bytes([byte])) ^ crc32c(b"\0")) for byte in range(256)]  # linear: differences from one byte
    state = 0xFFFFFFFF
    for byte in data.tolist():
        state = table[(state ^ byte) & 0xFF] ^ state >> 8
    assert crc32c(data) == state ^ 0xFFFFFFFF


def test_an_absent_checkpoint_is_a_storage_error(tmp_path: Path):
    with pytest.raises(StorageError, match=r"none\.index: there is no such file"):
        TensorflowCheckpoint(str(tmp_path / "none"))


def test_an_absent_data_file_is_a_storage_error(prefix: Path):
    Path(f"{prefix}.data-00001-of-00002").unlink()
    with pytest.raises(StorageError, match="data-00001-of-00002: there is no such file"):
        TensorflowCheckpoint(str(prefix)).read([QUERY])


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "at least 48 bytes, got 0"),
        (b"x" * 1000, "it is cut off, or no checkpoint of TensorFlow's format V2"),
    ],
)
def test_a_foreign_index_is_refused(prefix: Path, content: bytes, message: str):
    Path(f"{prefix}.index").write_bytes(content)
    with pytest.raises(CheckpointError, match=message):
        TensorflowCheckpoint(str(prefix))


@pytest.mark.parametrize("kept", [47, 500, -1])
def test_a_truncated_index_is_refused(prefix: Path, kept: int):
    index = Path(f"{prefix}.index")
    index.write_bytes(index.read_bytes()[:kept])
    with pytest.raises(CheckpointError, match="index must"):
        TensorflowCheckpoint(str(prefix))


def test_a_changed_byte_of_the_index_is_noticed(prefix: Path):
    index = Path(f"{prefix}.index")
    data = bytearray(index.read_bytes())
    data[1000] ^= 1
    index.write_bytes(data)
    with pytest.raises(CheckpointError, match="it is damaged"):
        TensorflowCheckpoint(str(prefix))


def test_a_changed_byte_of_the_data_is_noticed(prefix: Path):
    checkpoint = TensorflowCheckpoint(str(prefix))
    path = Path(checkpoint.shard_uri(1))
    data = bytearray(path.read_bytes())
    data[checkpoint.entries[QUERY].offset + 5] ^= 1
    path.write_bytes(data)
    with pytest.raises(CheckpointError, match=f"{QUERY} must have the checksum in the index"):
        checkpoint.read([QUERY])


def test_truncated_data_are_refused(prefix: Path):
    checkpoint = TensorflowCheckpoint(str(prefix))
    path = Path(checkpoint.shard_uri(1))
    path.write_bytes(path.read_bytes()[: checkpoint.entries[QUERY].offset + 10])
    with pytest.raises(CheckpointError, match=f"must hold 256 bytes of {QUERY}, got 10: it is cut off"):
        checkpoint.read([QUERY])


def test_an_unknown_tensor_is_refused(prefix: Path):
    with pytest.raises(CheckpointError, match="must hold the tensor nothing"):
        TensorflowCheckpoint(str(prefix)).read(["nothing"])


def test_a_table_with_a_key_that_shares_nothing_is_read():
    entry = bytes([0, 1, 2]) + b"k" + b"vw"
    restarts = (0).to_bytes(4, "little") + (1).to_bytes(4, "little")
    block = entry + restarts
    index = bytes([0, 1, 2]) + b"k" + bytes([0, len(block)]) + restarts
    assert list(read_table(with_trailers(block, index))) == [(b"k", b"vw")]
    with pytest.raises(CheckpointError, match="must not be compressed, as TensorFlow writes them, got snappy"):
        list(read_table(with_trailers(block, index, compression=1)))
