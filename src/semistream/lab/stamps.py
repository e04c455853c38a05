"""Rows of R whose payload proves which key they belong to, and the check of output rows."""

from dataclasses import dataclass

import numpy as np
import pyarrow as pa

PAYLOAD = "payload"
_STAMP = 0x5EED5EED5EED


@dataclass
class Check:
    """Raises if an output row does not carry the payload of its key."""

    key: str

    def __call__(self, batch: pa.RecordBatch) -> None:
        """Check one batch."""
        payload = batch.column(PAYLOAD)
        width = payload.type.byte_width
        size, start = len(payload) * width, payload.offset * width
        raw = np.frombuffer(payload.buffers()[1], np.uint8, size, start)
        stamps = raw.reshape(-1, width)[:, :8].copy().view(np.int64).ravel()
        keys = batch.column(self.key).to_numpy()
        if not np.array_equal(stamps ^ _STAMP, keys):
            raise AssertionError("a join gave a tuple the row of another key")


def stamped(keys: pa.Array, schema: pa.Schema) -> pa.RecordBatch:
    """Return rows whose payload begins with their key, XORed with a stamp."""
    width = schema.field(PAYLOAD).type.byte_width
    raw = np.zeros((len(keys), width), np.uint8)
    codes = keys.cast(pa.int64()).to_numpy()
    raw[:, :8] = (codes ^ _STAMP).view(np.uint8).reshape(-1, 8)
    payload = pa.FixedSizeBinaryArray.from_buffers(
        schema.field(PAYLOAD).type, len(keys), [None, pa.py_buffer(raw)]
    )
    return pa.RecordBatch.from_arrays([pa.array(codes), payload], schema=schema)
