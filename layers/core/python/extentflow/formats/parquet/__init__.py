"""Parquet files: the format, its metadata, and the checks before Arrow reads a page."""
