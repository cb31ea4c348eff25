"""Keys of records, and the latest offset of each."""
