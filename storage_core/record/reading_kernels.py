"""Every kernel for reading batches, in one import, to compile or load them beforehand.

Readers import it to read more than a few batches; see `few_batches`.
"""

from sparklog.storage_core.record.crc_kernels import compare_crc32cs
from sparklog.storage_core.record.legacy.kernels import LEGACY_FAILURES, compare_crcs, locate_entries, parse_entries
from sparklog.storage_core.record.scan_kernels import MIN_BATCH_BYTES, unpack_headers, walk_batches
from sparklog.storage_core.record.v2.decode_kernels import (
    FAILURES,
    copy_headers,
    copy_ranges,
    cut_records,
    measure_headers,
    parse_records,
)

__all__ = [
    "FAILURES",
    "LEGACY_FAILURES",
    "MIN_BATCH_BYTES",
    "compare_crc32cs",
    "compare_crcs",
    "copy_headers",
    "copy_ranges",
    "cut_records",
    "locate_entries",
    "measure_headers",
    "parse_entries",
    "parse_records",
    "unpack_headers",
    "walk_batches",
]
