"""The simulated lab: a cluster with GPUs that ships with the product, for demo and fast tests."""

from gpu.adapters.simulated.cluster import SimulatedCluster
from gpu.adapters.simulated.lab import build_lab

__all__ = ["SimulatedCluster", "build_lab"]
