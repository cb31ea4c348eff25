"""Erasure: requests to forget keys, and the search for records of these keys."""
