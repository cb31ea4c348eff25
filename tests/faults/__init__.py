"""The answers of the operating system: refused, given short, or forgotten in a power cut.

Files, ledger and code are the real ones; only what the kernel says to this process's own calls is replaced.
"""
