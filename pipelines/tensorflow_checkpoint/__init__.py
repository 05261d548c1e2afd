"""Checkpoints of TensorFlow (format V2: `PREFIX.index` and `PREFIX.data-00000-of-0000N`), read without TensorFlow."""
