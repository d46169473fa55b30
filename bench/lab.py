"""A real control plane full of nodes and Pods, with an empty database of the portal's beside it.

Everything is started for one benchmark and thrown away after it; Django is set up here, so that the
benchmarks of the pure core need none.
"""

import base64
import json
import os
import ssl
import tempfile
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import urllib3

from portal.embedded import services
from tests.cluster.build import build
from tests.cluster.control_plane import ControlPlane
from tests.cluster.processes import new_run_directory, remove_run_directory, sweep, wait_until

_PLAIN_FILES = "django.contrib.staticfiles.storage.StaticFilesStorage"
GPUS_A_NODE = 8
SPACES = 10
_WRITERS = 8
_MERGE = "application/merge-patch+json"
_KEY = "nvidia.com/mig-1g.10gb"


@dataclass(frozen=True, slots=True)
class Size:
    """How much is in the cluster; Pods are spread evenly over the nodes."""

    nodes: int
    pods: int


@contextmanager
def control_plane() -> Iterator[ControlPlane]:
    """Run a control plane without nodes."""
    sweep()
    directory = new_run_directory()
    try:
        with ControlPlane(build(), directory) as plane:
            yield plane
    finally:
        remove_run_directory(directory)


@contextmanager
def portal() -> Iterator[None]:
    """Set Django up on an empty database of its own, with a broker beside it."""
    with (
        tempfile.TemporaryDirectory(prefix="bench-", ignore_cleanup_errors=True) as folder,
        services(folder, is_ephemeral=True) as running,
    ):
        os.environ.update(running.environment)
        os.environ.update(
            DJANGO_SETTINGS_MODULE="portal.settings",
            DEPLOYMENT="local",
            SECRET_KEY="only-for-benchmarks",  # noqa: S106  # nobody signs in
            CLUSTER="simulated",
            LOG_LEVEL="error",
            SLICEDESK_STATE_DIR=folder,
        )
        import django  # noqa: PLC0415  # settings are read when it is set up
        from django.conf import settings  # noqa: PLC0415
        from django.core.management import call_command  # noqa: PLC0415
        from django.db import connections  # noqa: PLC0415

        # Names without a hash: nothing is built for a benchmark, and none of it fetches a file.
        settings.STORAGES["staticfiles"] = {"BACKEND": _PLAIN_FILES}
        django.setup()
        call_command("migrate", verbosity=0)
        try:
            yield
        finally:
            connections.close_all()


@dataclass(frozen=True, slots=True)
class Raw:
    """The bare client: HTTP with a token, bytes in and out."""

    server: str
    token: str
    authority: str

    @classmethod
    def of(cls, plane: ControlPlane) -> "Raw":
        """Return a client of a control plane, as its admin."""
        return cls(plane.api.server, plane.api.token, str(plane.api.certificate))

    def pool(self) -> urllib3.PoolManager:
        """Return a connection pool; one for each thread or process."""
        context = ssl.create_default_context(cafile=self.authority)
        return urllib3.PoolManager(
            maxsize=_WRITERS,
            ssl_context=context,
            headers={"Authorization": f"Bearer {self.token}"},
        )

    def send(self, pool: urllib3.PoolManager, method: str, path: str, body: Any = None) -> bytes:  # noqa: ANN401
        """Return the answer's bytes; anything but a success is a `RuntimeError`."""
        kind = _MERGE if method == "PATCH" else "application/json"
        answer = pool.request(
            method,
            self.server + path,
            body=None if body is None else json.dumps(body),
            headers={"Authorization": f"Bearer {self.token}", "Content-Type": kind},
            timeout=60,
        )
        if answer.status >= 300:  # noqa: PLR2004  # no success
            msg = f"{method} {path}: {answer.status} {answer.data[:300]!r}"
            raise RuntimeError(msg)
        return answer.data


def fill(plane: ControlPlane, size: Size) -> None:
    """Create the nodes and Pods, as kubelets and users would have left them."""
    raw, pool = Raw.of(plane), Raw.of(plane).pool()
    for number in range(SPACES):
        name = space(number)
        raw.send(pool, "POST", "/api/v1/namespaces", {"metadata": {"name": name}})
        path = f"/api/v1/namespaces/{name}/serviceaccounts/default"
        wait_until(lambda p=path: _is_there(raw, pool, p), path, timeout_s=60)  # type: ignore[misc]
    with ThreadPoolExecutor(_WRITERS) as writers:
        _all(
            writers.map(lambda n: raw.send(pool, "POST", "/api/v1/nodes", node(n)), _to(size.nodes))
        )
        _all(writers.map(lambda n: _make_pod(raw, pool, n, size), _to(size.pods)))


def space(number: int) -> str:
    """Return the name of a namespace."""
    return f"team-{number % SPACES}"


def node_name(number: int) -> str:
    """Return the name of a node."""
    return f"gpu-node-{number:05d}"


def pod_path(number: int) -> str:
    """Return the path of a Pod."""
    return f"/api/v1/namespaces/{space(number)}/pods/train-{number:05d}"


def node(number: int) -> dict[str, Any]:
    """Return a node with eight GPUs cut into sevenths, labelled as GPU Feature Discovery does."""
    name = node_name(number)
    labels = {
        "kubernetes.io/hostname": name,
        "kubernetes.io/os": "linux",
        "nvidia.com/gpu.product": "NVIDIA-A100-SXM4-80GB",
        "nvidia.com/gpu.count": str(GPUS_A_NODE),
        "nvidia.com/gpu.memory": "81920",
        "nvidia.com/mig.capable": "true",
        "nvidia.com/mig.strategy": "mixed",
        "nvidia.com/cuda.driver.major": "580",
        **{f"feature.node.kubernetes.io/cpu-cpuid.F{item}": "true" for item in range(40)},
    }
    amounts = {"cpu": "128", "memory": "1056Gi", "pods": "110", "ephemeral-storage": "3Ti"}
    amounts |= {_KEY: str(GPUS_A_NODE * 7), "nvidia.com/gpu": "0"}
    images = [{"names": [f"registry.test/image-{i}:1"], "sizeBytes": 10**9} for i in range(30)]
    kinds = ("MemoryPressure", "DiskPressure", "PIDPressure", "Ready")
    conditions = [
        {"type": kind, "status": str(kind == "Ready"), "reason": "Kubelet", "message": "said so"}
        for kind in kinds
    ]
    status: dict[str, Any] = {"capacity": amounts, "allocatable": amounts}
    status |= {
        "conditions": conditions,
        "images": images,
        "nodeInfo": {"bootID": f"boot-{number}", **_NODE_INFO},
    }
    return {"metadata": {"name": name, "labels": labels}, "status": status}


_NODE_INFO = {
    **dict.fromkeys(("machineID", "systemUUID", "kernelVersion", "osImage"), "x"),
    **dict.fromkeys(("containerRuntimeVersion", "kubeProxyVersion"), "x"),
    "kubeletVersion": "v1.37.2",
    "operatingSystem": "linux",
    "architecture": "amd64",
}


def pod(number: int, size: Size) -> dict[str, Any]:
    """Return a Pod with one GPU slice, bound to a node."""
    amounts = {"cpu": "4", "memory": "16Gi", _KEY: "1"}
    environment = [{"name": f"SETTING_{item}", "value": "some value"} for item in range(12)]
    main = {
        "name": "main",
        "image": "registry.test/train:1",
        "command": ["python", "train.py"],
        "env": environment,
        "resources": {"limits": amounts, "requests": amounts},
        "volumeMounts": [{"name": "data", "mountPath": "/data"}],
    }
    labels = {"app": "train", "slicedesk.io/allocation": str(number)}
    return {
        "metadata": {"name": f"train-{number:05d}", "labels": labels},
        "spec": {
            "nodeName": node_name(number % size.nodes),
            "containers": [main],
            "volumes": [{"name": "data", "emptyDir": {}}],
        },
    }


def running(number: int, message: str = "") -> dict[str, Any]:
    """Return the status that a kubelet gives a Pod, with the device that it holds."""
    device = base64.b16encode(number.to_bytes(8)).decode().lower()
    held = {"name": _KEY, "resources": [{"resourceID": f"MIG-{device}", "health": "Healthy"}]}
    container = {
        "name": "main",
        "image": "registry.test/train:1",
        "imageID": "registry.test/train@sha256:0",
        "ready": True,
        "restartCount": 0,
        "state": {"running": {"startedAt": "2026-12-01T00:00:00Z"}},
        "allocatedResourcesStatus": [held],
    }
    ready = {"type": "Ready", "status": "True"}
    status = {"phase": "Running", "conditions": [ready], "containerStatuses": [container]}
    return {"status": {**status, "message": message}}


def _make_pod(raw: Raw, pool: urllib3.PoolManager, number: int, size: Size) -> None:
    path = pod_path(number)
    raw.send(pool, "POST", path.rpartition("/")[0], pod(number, size))
    raw.send(pool, "PATCH", f"{path}/status", running(number))


def _is_there(raw: Raw, pool: urllib3.PoolManager, path: str) -> bool:
    try:
        raw.send(pool, "GET", path)
    except RuntimeError:
        return False
    return True


def _to(count: int) -> Iterable[int]:
    return range(count)


def _all(results: Iterable[object]) -> None:
    for _result in results:
        pass


def folder() -> Path:
    """Return where the repository is, for processes that are started beside this one."""
    return Path(__file__).parents[1]
