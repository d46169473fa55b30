"""The simulated cluster under the contract that the real one keeps, too."""

from collections.abc import Callable
from pathlib import Path

import pytest

from gpu.adapters.simulated import SimulatedCluster, build_lab
from gpu.ports import NAMESPACE, Manifest
from tests.contracts.cluster_contract import ClusterWritingContract, Lab
from tests.contracts.cluster_reading_contract import ClusterReadingContract
from tests.contracts.cluster_running_contract import ClusterRunningContract


@pytest.fixture
def lab(tmp_path: Path) -> Lab:
    """The lab of the demo at full speed, in a namespace of the test's own."""
    cluster = SimulatedCluster(tmp_path / "lab.sqlite3", pace=0.0)
    build_lab(cluster)
    cluster.create({"apiVersion": "v1", "kind": NAMESPACE.name, "metadata": {"name": "contract"}})

    def eventually(holds: Callable[[], bool]) -> None:
        assert holds()

    def meddle(manifest: Manifest) -> None:
        cluster.apply_as("stranger", manifest)

    def forget() -> None:
        with cluster.store.transaction() as tx:
            tx.forget_changes()

    return Lab(cluster, "gpu-h200-01", "contract", "busybox", eventually, meddle, forget)


class TestWriting(ClusterWritingContract):
    """Single objects."""


class TestReading(ClusterReadingContract):
    """Lists and watches."""


class TestRunning(ClusterRunningContract):
    """Pods, Jobs, devices, quotas."""
