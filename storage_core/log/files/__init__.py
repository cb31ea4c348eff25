"""The files of a log directory: names, listing, removal."""
