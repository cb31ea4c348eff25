"""Record batches: encode, decode, scan, compress. Bytes or Arrow in, bytes or Arrow out."""
