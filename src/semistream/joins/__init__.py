"""The join operators: `Iterator[RecordBatch]` in, `Iterator[RecordBatch]` out."""
