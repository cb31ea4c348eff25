"""What is done to a store's logs apart from appending."""
