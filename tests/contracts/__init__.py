"""Suites that simulated and real parts both pass, and adapters against bad answers."""
