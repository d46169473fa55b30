"""Reads for pages and planners: rows become frozen values in a constant number of queries."""
