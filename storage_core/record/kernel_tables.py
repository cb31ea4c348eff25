"""Columns of the tables that kernels fill or read; imports no kernel."""

from typing import Final

__all__ = ["HEADER_COLUMNS", "SECTION_COLUMNS", "HeaderColumn", "SectionColumn"]


class HeaderColumn:
    """Rows of a table of batch headers; one column per batch."""

    SIZE: Final = 0
    MAGIC: Final = 1
    BASE_OFFSET: Final = 2
    LAST_OFFSET: Final = 3
    LEADER_EPOCH: Final = 4
    CRC: Final = 5
    ATTRIBUTES: Final = 6
    BASE_TIMESTAMP: Final = 7
    MAX_TIMESTAMP: Final = 8
    PRODUCER_ID: Final = 9
    PRODUCER_EPOCH: Final = 10
    BASE_SEQUENCE: Final = 11
    RECORDS_COUNT: Final = 12


HEADER_COLUMNS: Final = 13


class SectionColumn:
    """Columns of a section table; one row per batch."""

    START: Final = 0  # of the records, in `source`
    END: Final = 1
    COUNT: Final = 2  # of records
    BASE_OFFSET: Final = 3
    BASE_TIMESTAMP: Final = 4
    FIXED_TIMESTAMP: Final = 5  # not 0: every record has the base timestamp, deltas are ignored (LogAppendTime)
    MAGIC: Final = 6  # 0 and 1 are read by `legacy.kernels`; there a base offset is added to each stored one


SECTION_COLUMNS: Final = 7
