"""Tests; a package, so that `tests.kafka` never hides the client library called `kafka`."""
