"""Compressed objects: their content, and where decompression can begin within them."""
