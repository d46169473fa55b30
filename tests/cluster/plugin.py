"""Pytest fixtures for the real cluster: built and started once a session, and only when asked for.

Where the machine cannot run it, the tests that need it are skipped with the reason, or failed when
`SLICEDESK_REQUIRE_CLUSTER=true`. Run them in one process (`-n 0`): every xdist worker would have
its own cluster.
"""

import os
import re
import shutil
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from tests.cluster import device_plugin
from tests.cluster.build import CannotBuildError, Programs, build
from tests.cluster.control_plane import ControlPlane
from tests.cluster.gpus import new_state
from tests.cluster.node import DEFAULT_MODELS, LabNode
from tests.cluster.packages import reason_against_nodes
from tests.cluster.processes import new_run_directory, remove_run_directory, sweep, wait_until

_FIXTURES = {"cluster_programs", "control_plane", "lab_node"}
_KEPT_LOGS = 5
_AS_NEW = {"nvidia.com/gpu": 2}


def pytest_collection_finish(session: pytest.Session) -> None:
    """Build before the first test starts: the minutes it may take are no test's own."""
    if session.config.option.collectonly:
        return
    if any(_FIXTURES & set(getattr(item, "fixturenames", ())) for item in session.items):
        with suppress(CannotBuildError):  # the fixture says so, test by test
            build()


def _give_up(reason: str) -> None:
    if os.environ.get("SLICEDESK_REQUIRE_CLUSTER") == "true":
        pytest.fail(reason)
    pytest.skip(reason)


@pytest.fixture(scope="session")
def cluster_programs() -> Programs:
    """The built control plane and stand-ins."""
    try:
        return build()
    except CannotBuildError as error:
        _give_up(str(error))
        raise


@pytest.fixture(scope="session")
def control_plane(
    cluster_programs: Programs, request: pytest.FixtureRequest
) -> Iterator[ControlPlane]:
    """A real Kubernetes control plane without nodes."""
    sweep()
    directory = new_run_directory()
    try:
        with ControlPlane(cluster_programs, directory) as started:
            yield started
    finally:
        if request.session.testsfailed:
            _keep_logs(directory, request.config.rootpath / "var/cluster-logs")
        remove_run_directory(directory)


@pytest.fixture(scope="session")
def lab_node(control_plane: ControlPlane) -> Iterator[LabNode]:
    """A real node with two A100-40GB, MIG off, and the device plugin running."""
    if reason := reason_against_nodes():
        _give_up(reason)
    with LabNode(control_plane) as node:
        device_plugin.install(control_plane.api)
        wait_until(lambda: offers(node) == _AS_NEW, "2 GPUs", timeout_s=30)
        yield node


@pytest.fixture
def fresh_node(lab_node: LabNode) -> Iterator[LabNode]:
    """The lab node with its GPUs as new, for tests that change them; as new again afterwards."""
    _renew(lab_node)
    yield lab_node
    _renew(lab_node)


def offers(node: LabNode) -> dict[str, int]:
    """Return the resources of which a node offers any; those that are gone stay at 0 for ever."""
    return {key: count for key, count in node.allocatable().items() if count}


def _renew(node: LabNode) -> None:
    as_new = new_state(node.name, DEFAULT_MODELS)
    if node.gpus.read() != as_new or offers(node) != _AS_NEW:
        node.gpus.install(as_new)
        device_plugin.restart(node.control_plane.api, node.name)
        wait_until(lambda: offers(node) == _AS_NEW, "2 GPUs", timeout_s=30)


@pytest.fixture
def lab_namespace(control_plane: ControlPlane, request: pytest.FixtureRequest) -> Iterator[str]:
    """A namespace of the test's own on the real cluster."""
    slug = re.sub(r"[^a-z0-9]+", "-", request.node.name.lower())[:40].strip("-")
    name = f"{slug}-{os.urandom(3).hex()}"
    control_plane.api.post("/api/v1/namespaces", {"metadata": {"name": name}})
    account = f"/api/v1/namespaces/{name}/serviceaccounts"
    wait_until(lambda: control_plane.api.get(account)["items"], "an account", timeout_s=60)
    yield name
    for pod in control_plane.api.get(f"/api/v1/namespaces/{name}/pods")["items"]:
        control_plane.api.delete(f"/api/v1/namespaces/{name}/pods/{pod['metadata']['name']}")
    control_plane.api.delete(f"/api/v1/namespaces/{name}")


def _keep_logs(directory: Path, target: Path) -> None:
    """Copy the logs of a failed session to where they outlive it."""
    folder = target / directory.name
    for log in [*directory.glob("*.log"), *directory.glob("node-*/*.log")]:
        copy = folder / log.relative_to(directory)
        copy.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(log, copy)
    for old in sorted(target.iterdir(), key=lambda path: path.stat().st_mtime)[:-_KEPT_LOGS]:
        shutil.rmtree(old, ignore_errors=True)
