"""Kafka's log format and the life of a log, without Spark."""
