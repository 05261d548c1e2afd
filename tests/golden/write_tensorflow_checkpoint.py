"""Writes `tests/golden/tensorflow/` with TensorFlow's own Saver. Made with tensorflow-cpu 2.21.0:

python -m venv /tmp/tensorflow && /tmp/tensorflow/bin/pip install tensorflow-cpu==2.21.0
/tmp/tensorflow/bin/python tests/golden/write_tensorflow_checkpoint.py
"""

from __future__ import annotations

from pathlib import Path

import tensorflow.compat.v1 as tf
from tensorflow_variables import other_variables, variables

FOLDER = Path(__file__).parent / "tensorflow"


def write(prefix: Path) -> None:
    """Two devices give two data files: a sharded Saver writes one for each device."""
    with tf.Graph().as_default():
        values = variables() | other_variables()
        for key, value in values.items():
            place = int(key.startswith("generator"))
            with tf.device(f"/cpu:{place}"):
                dtype = tf.bfloat16 if key.endswith("bfloat16") else tf.as_dtype(value.dtype)
                tf.get_variable(key, initializer=tf.cast(tf.constant(value), dtype))
        with tf.Session(config=tf.ConfigProto(device_count={"CPU": 2})) as session:
            session.run(tf.global_variables_initializer())
            tf.train.Saver(sharded=True).save(session, str(prefix), write_meta_graph=False, write_state=False)


if __name__ == "__main__":
    FOLDER.mkdir(exist_ok=True)
    tf.disable_v2_behavior()
    write(FOLDER / "electra.ckpt")
