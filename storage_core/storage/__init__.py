"""Local files: what is durable when, and what an operating system error means."""
