"""Benchmarks: ratios against a baseline, measured alternately in the same run."""
