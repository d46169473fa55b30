"""The device plugin's ConfigMap on a real API server: entries come and go, others' stay."""

from collections.abc import Iterator

import pytest

from gpu.adapters.kubernetes import KubernetesCluster
from gpu.executors.device_plugin import DEFAULT_ENTRY, Book, entry_name
from gpu.ports import CONFIG_MAP, ConflictError
from tests.cluster.control_plane import ControlPlane

pytestmark = pytest.mark.cluster

SPACE = "plugin-configurations"
NAME = "configs"
THEIRS = {"ts-2": "version: v1", "ts-4": "version: v1\n"}


@pytest.fixture
def cluster(control_plane: ControlPlane) -> Iterator[KubernetesCluster]:
    """The cluster with an empty namespace of the test's own."""
    path = f"/api/v1/namespaces/{SPACE}"
    body = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": SPACE}}
    control_plane.api.apply(path, body)
    found = KubernetesCluster.from_kubeconfig(str(control_plane.kubeconfig))
    yield found
    found.delete(CONFIG_MAP, NAME, SPACE)


def book_of(cluster: KubernetesCluster) -> Book:
    return Book.from_manifest(cluster.read(CONFIG_MAP, NAME, SPACE))


def install_theirs(plane: ControlPlane) -> None:
    """Write the ConfigMap as somebody else, such as Helm, does."""
    body = {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": NAME, "namespace": SPACE},
        "data": THEIRS,
    }
    plane.api.apply(f"/api/v1/namespaces/{SPACE}/configmaps/{NAME}", body)


def test_entries_are_added_and_only_our_unused_ones_go(
    control_plane: ControlPlane, cluster: KubernetesCluster
) -> None:
    install_theirs(control_plane)
    cluster.apply(book_of(cluster).with_entry("one", in_use=(), default="plain"))
    one = entry_name("one")
    assert book_of(cluster).data == {**THEIRS, one: "one", DEFAULT_ENTRY: "plain"}
    cluster.apply(book_of(cluster).with_entry("two", in_use={one}, default=None))
    two = entry_name("two")
    assert book_of(cluster).data == {**THEIRS, one: "one", two: "two", DEFAULT_ENTRY: "plain"}
    cluster.apply(book_of(cluster).with_entry("three", in_use={two, "ts-4"}, default=None))
    three = entry_name("three")
    assert book_of(cluster).data == {
        **THEIRS,
        two: "two",
        three: "three",
        DEFAULT_ENTRY: "plain",
    }


def test_two_changes_at_once_lose_nothing(
    control_plane: ControlPlane, cluster: KubernetesCluster
) -> None:
    install_theirs(control_plane)
    seen = book_of(cluster)
    cluster.apply(seen.with_entry("one", in_use=(), default="plain"))
    with pytest.raises(ConflictError):
        cluster.apply(seen.with_entry("two", in_use=(), default="plain"))
    assert book_of(cluster).data[entry_name("one")] == "one"


def test_a_configmap_that_is_missing_is_made(cluster: KubernetesCluster) -> None:
    cluster.apply(Book(NAME, SPACE).with_entry("one", in_use=(), default="plain"))
    assert book_of(cluster).data == {entry_name("one"): "one", DEFAULT_ENTRY: "plain"}


def test_a_default_of_ours_that_somebody_edits_is_theirs(
    control_plane: ControlPlane, cluster: KubernetesCluster
) -> None:
    cluster.apply(Book(NAME, SPACE).with_entry("one", in_use=(), default="plain"))
    path = f"/api/v1/namespaces/{SPACE}/configmaps/{NAME}"
    control_plane.api.merge(path, {"data": {DEFAULT_ENTRY: "edited"}})
    cluster.apply(book_of(cluster).with_entry("two", in_use=(), default=None))
    assert book_of(cluster).data[DEFAULT_ENTRY] == "edited"
