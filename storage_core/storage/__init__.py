"""Local files: fsync order, durability, errors of the operating system."""
