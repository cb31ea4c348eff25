"""Checks logs against themselves and the ledger."""
