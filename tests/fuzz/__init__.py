"""Arbitrary and mutated bytes for everything that reads bytes.

The laws, for any bytes at all:

1. Nothing comes out of a decoder but its result or a `LogStorageError`.
2. It ends.
3. It needs no more memory than its budget, whatever the bytes announce.
4. Records before the first changed byte are read as they were written.
5. A reader that checks CRCs never gives a record that nobody wrote.

A case follows from the run's seed and its number, so one that breaks a law can be run again alone:
`python -m tests.fuzz --seed SEED --only NUMBER`.
"""
