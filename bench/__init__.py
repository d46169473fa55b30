"""Benchmarks: ratios against peers and limits that are computed in the same run."""
