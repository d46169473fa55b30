"""The real Kubernetes API behind the Cluster port."""

from gpu.adapters.kubernetes.cluster import KubernetesCluster

__all__ = ["KubernetesCluster"]
