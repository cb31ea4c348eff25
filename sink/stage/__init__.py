"""On executors: rows become encoded batches in staging files."""
