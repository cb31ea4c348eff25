"""Record batches of format v2."""
