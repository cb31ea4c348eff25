"""The streaming job: from a source to the sink."""
