"""On the driver: staged batches get offsets and go into segments."""
