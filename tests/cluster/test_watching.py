"""The watcher on a real control plane: right within moments of an event, through every break."""

import os
import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from django.db import connection

from gpu.adapters.kubernetes import KubernetesCluster
from gpu.models import GpuPod, Node
from gpu.reconcilers.watching import Watcher
from tests.cluster.control_plane import ControlPlane
from tests.cluster.processes import wait_until

pytestmark = [pytest.mark.cluster, pytest.mark.django_db(transaction=True)]

NODES = "/api/v1/nodes"
ONE_5GB = "nvidia.com/mig-1g.5gb"
# What a busy machine may take; a healthy watch needs milliseconds.
_PATIENCE_S = 60
_OUTAGE_S = 30
_LOST_S = 10


def soon(holds: Callable[[], bool], what: str) -> None:
    wait_until(holds, what, timeout_s=_PATIENCE_S)


class GpuNodes:
    """Node objects without a kubelet; all are deleted at the end."""

    def __init__(self, plane: ControlPlane) -> None:
        self.api = plane.api
        self._names: set[str] = set()

    def create(self, name: str, **quantities: str) -> None:
        """Create a Ready node that offers GPU resources."""
        self._names.add(name)
        labels = {"kubernetes.io/hostname": name, "nvidia.com/gpu.present": "true"}
        self.api.post(NODES, {"metadata": {"name": name, "labels": labels}})
        self.offer(name, **quantities)

    def offer(self, name: str, **quantities: str) -> None:
        """Change what a node offers."""
        amounts = {"cpu": "8", "memory": "64Gi", "pods": "110", **quantities}
        ready = {"type": "Ready", "status": "True", "reason": "Test", "message": ""}
        status = {"capacity": amounts, "allocatable": amounts, "conditions": [ready]}
        status["nodeInfo"] = {"bootID": f"boot-{name}"}
        self.api.merge(f"{NODES}/{name}/status", {"status": status})

    def delete(self, name: str) -> None:
        """Delete a node object."""
        self.api.delete(f"{NODES}/{name}")

    def clear(self) -> None:
        """Delete all that are left."""
        for name in self._names:
            self.delete(name)


@pytest.fixture
def nodes(control_plane: ControlPlane) -> Iterator[GpuNodes]:
    made = GpuNodes(control_plane)
    yield made
    made.clear()


@contextmanager
def watching(plane: ControlPlane) -> Iterator[Watcher]:
    """Run a watcher of its own connections beside the test, as `watch_cluster` does."""
    cluster = KubernetesCluster.from_kubeconfig(str(plane.kubeconfig))
    watcher = Watcher(cluster, on_beat=lambda: None)

    def run() -> None:
        try:
            watcher.run()
        finally:
            connection.close()

    thread = threading.Thread(target=run)
    thread.start()
    try:
        yield watcher
    finally:
        watcher.stopping.set()
        thread.join(30)
        assert not thread.is_alive()


def row(name: str) -> Node | None:
    return Node.objects.filter(name=name).first()


def offers(name: str, **quantities: int) -> bool:
    found = row(name)
    return found is not None and found.is_present and found.allocatable == quantities


def test_node_is_followed_from_its_making_to_its_end_and_back(
    control_plane: ControlPlane, nodes: GpuNodes
) -> None:
    with watching(control_plane):
        nodes.create("w-1", **{ONE_5GB: "2"})
        soon(lambda: offers("w-1", **{ONE_5GB: 2}), "the node")
        nodes.offer("w-1", **{ONE_5GB: "3"})
        soon(lambda: offers("w-1", **{ONE_5GB: 3}), "its new offer")
        taint = {"key": "nvidia.com/gpu", "value": "yes", "effect": "NoSchedule"}
        nodes.api.merge(f"{NODES}/w-1", {"spec": {"unschedulable": True, "taints": [taint]}})
        soon(lambda: not _found("w-1").is_schedulable, "its cordon")
        soon(lambda: taint in _found("w-1").taints, "its taint")
        before = _found("w-1")
        nodes.delete("w-1")
        soon(lambda: not _found("w-1").is_present, "its end")
        nodes.create("w-1", **{ONE_5GB: "1"})
        soon(lambda: offers("w-1", **{ONE_5GB: 1}), "the node again")
        assert _found("w-1").pk == before.pk
        assert _found("w-1").uid != before.uid
        soon(lambda: _found("w-1").is_schedulable, "no cordon")


def test_pod_is_followed_to_its_node_and_to_its_end(
    control_plane: ControlPlane, nodes: GpuNodes, lab_namespace: str
) -> None:
    path = f"/api/v1/namespaces/{lab_namespace}/pods"
    with watching(control_plane):
        nodes.create("w-2", **{ONE_5GB: "1"})
        control_plane.api.post(path, pod("train", node="w-2"))
        soon(lambda: GpuPod.objects.filter(name="train", node__name="w-2").exists(), "the Pod")
        control_plane.api.delete(f"{path}/train")
        soon(lambda: not GpuPod.objects.filter(name="train").exists(), "its end")


def test_new_start_takes_over_what_happened_meanwhile(
    control_plane: ControlPlane, nodes: GpuNodes
) -> None:
    nodes.create("w-3", **{ONE_5GB: "1"})
    nodes.create("w-4", **{ONE_5GB: "1"})
    with watching(control_plane):
        soon(lambda: offers("w-3", **{ONE_5GB: 1}) and offers("w-4", **{ONE_5GB: 1}), "both")
    nodes.delete("w-3")
    nodes.offer("w-4", **{ONE_5GB: "7"})
    with watching(control_plane):
        soon(lambda: not _found("w-3").is_present, "the end of one")
        soon(lambda: offers("w-4", **{ONE_5GB: 7}), "the change of the other")


def test_api_server_that_is_away_for_half_a_minute_heals_by_itself(
    control_plane: ControlPlane, nodes: GpuNodes
) -> None:
    with watching(control_plane):
        nodes.create("w-5", **{ONE_5GB: "1"})
        soon(lambda: offers("w-5", **{ONE_5GB: 1}), "the node")
        control_plane.kill_api_server()
        try:
            time.sleep(_OUTAGE_S)
            seen_at = _found("w-5").observed_at
        finally:
            control_plane.start_api_server()
        nodes.offer("w-5", **{ONE_5GB: "4"})
        soon(lambda: offers("w-5", **{ONE_5GB: 4}), "what happened after")
        soon(lambda: _is_newer("w-5", seen_at), "a fresh look")


def test_freshness_grows_old_with_a_silent_network_and_is_new_after_it(
    control_plane: ControlPlane, nodes: GpuNodes
) -> None:
    with watching(control_plane):
        nodes.create("w-6", **{ONE_5GB: "1"})
        soon(lambda: offers("w-6", **{ONE_5GB: 1}), "the node")
        with frozen(control_plane):
            time.sleep(1)  # what was under way has arrived
            seen_at = _found("w-6").observed_at
            time.sleep(_LOST_S)
            assert _found("w-6").observed_at == seen_at
        nodes.offer("w-6", **{ONE_5GB: "5"})
        soon(lambda: offers("w-6", **{ONE_5GB: 5}), "what happened after")
        soon(lambda: _is_newer("w-6", seen_at), "a fresh look")


def test_quiet_cluster_is_known_to_be_fresh(control_plane: ControlPlane, nodes: GpuNodes) -> None:
    nodes.create("w-7", **{ONE_5GB: "1"})
    with watching(control_plane):
        soon(lambda: offers("w-7", **{ONE_5GB: 1}), "the node")
        seen_at = _found("w-7").observed_at
        soon(lambda: _is_newer("w-7", seen_at), "a fresh look")


def pod(name: str, *, node: str) -> dict[str, Any]:
    """Return a Pod that is placed by the scheduler on a node that has no kubelet."""
    limits = {"limits": {ONE_5GB: 1}}
    container = {"name": "main", "image": "nowhere.test/none:1", "resources": limits}
    spec = {"containers": [container], "nodeSelector": {"kubernetes.io/hostname": node}}
    return {"metadata": {"name": name}, "spec": spec}


@contextmanager
def frozen(plane: ControlPlane) -> Iterator[None]:
    """Stop the API server as a lost network does: connections stay open and nothing comes."""
    pid = plane.pid("kube-apiserver")
    os.kill(pid, signal.SIGSTOP)
    try:
        yield
    finally:
        os.kill(pid, signal.SIGCONT)


def _found(name: str) -> Node:
    return Node.objects.get(name=name)


def _is_newer(name: str, seen_at: Any) -> bool:  # noqa: ANN401  # as the column has it
    observed_at = _found(name).observed_at
    return observed_at is not None and observed_at > seen_at
