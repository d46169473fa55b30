"""A stand-in for `nvidia-smi` in the simulated lab, over one directory of JSON per node.

It starts in a few milliseconds, so it imports little: plain dictionaries, no dataclasses.
"""
