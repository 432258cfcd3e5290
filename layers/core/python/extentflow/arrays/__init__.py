"""Tools for Arrow arrays: bytes and bitmaps of columns, encodings, texts, nesting and casts.

The package has no port and no settings. Formats, transforms, converters, columnar values and
delivery use it; it imports nothing of the library but errors.
"""
