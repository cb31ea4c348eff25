"""Verbs that give a store's logs to brokers."""
