"""The folder of a store: its layout, log directories and small files."""
