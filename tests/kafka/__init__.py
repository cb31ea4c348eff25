"""Proof by Kafka: what Sparklog wrote, judged by a stock broker, its dump tool and three clients.

The folder is a package of `tests` on purpose: put on the import path by itself it would hide the client library that
is also called `kafka`.
"""
