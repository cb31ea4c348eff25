"""Locks of a store: writer and maintenance lock, takeover lock, a broker's `.lock`."""
