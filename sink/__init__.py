"""Rows of a Spark frame become committed batches of Kafka logs."""
