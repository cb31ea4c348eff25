"""Data directories for brokers, made of a store's logs."""
