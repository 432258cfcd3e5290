"""Lines of text in any character set, compressed or not; formats of lines build on it."""
