"""Stores of immutable objects: batches stay where tasks wrote them, the ledger says which offsets they have."""
