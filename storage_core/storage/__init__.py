"""The only code that touches filesystems."""
