"""The Spark reader: `format("kafka-log")`, for frames and for streams."""
