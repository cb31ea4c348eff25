"""Rows that could not become records, in Parquet files beside the store."""
