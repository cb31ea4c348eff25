"""Invalid rows, diverted to Parquet files beside the store."""
