"""What every adapter of the Cluster port does: one suite for the simulated and the real cluster.

A subclass gives the fixture `lab`: a cluster with a Ready node that has a free `nvidia.com/gpu`, a
namespace of the test's own, a way to wait for the cluster's own work, and a stranger who writes
too. `cluster_reading_contract` and `cluster_running_contract` hold the rest of the suite.
"""

from collections.abc import Callable
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, Protocol

import pytest
from django.utils import timezone

from gpu.ports import (
    CONFIG_MAP,
    NAMESPACE,
    NODE,
    RESOURCE_QUOTA,
    SERVICE_ACCOUNT,
    AlreadyExistsError,
    Cluster,
    ConflictError,
    Kind,
    Manifest,
    NotFoundError,
    RefusedError,
    kind_of,
)

GPU = "nvidia.com/gpu"


class Meddle(Protocol):
    """Somebody else's server-side apply of a manifest, under a field manager of theirs."""

    def __call__(self, manifest: Manifest) -> None: ...


@dataclass(frozen=True, slots=True)
class Lab:
    """What the suite runs on."""

    cluster: Cluster
    node: str
    namespace: str
    image: str
    eventually: Callable[[Callable[[], bool]], None]
    """Waits until a condition holds; fails the test when it does not within some seconds."""
    meddle: Meddle
    forget: Callable[[], None]
    """Makes the cluster forget its changes so far, so that no watch can go back before now."""

    def config_map(self, name: str = "settings", **data: str) -> Manifest:
        """Return a ConfigMap of the test's namespace."""
        return self.manifest(CONFIG_MAP, name, data=data)

    def manifest(self, kind: Kind, name: str, **fields: Any) -> Manifest:  # noqa: ANN401  # JSON edge
        """Return a manifest in the test's namespace."""
        meta = {"name": name, "namespace": self.namespace}
        return {"apiVersion": kind.api_version, "kind": kind.name, "metadata": meta, **fields}


class ClusterWritingContract:
    """Reading, creating, applying, patching and deleting single objects."""

    def test_version_is_kubernetes_own(self, lab: Lab) -> None:
        major, minor, _ = lab.cluster.version().removeprefix("v").split(".")
        assert (int(major), int(minor) >= 25) == (1, True)

    def test_read_returns_the_object(self, lab: Lab) -> None:
        node = lab.cluster.read(NODE, lab.node)
        assert (kind_of(node), node["metadata"]["name"]) == (NODE, lab.node)

    @pytest.mark.parametrize(
        ("kind", "namespaced"), [(NODE, False), (CONFIG_MAP, True)], ids=["cluster", "namespace"]
    )
    def test_read_of_nothing_is_not_found(self, lab: Lab, kind: Kind, namespaced: bool) -> None:  # noqa: FBT001
        with pytest.raises(NotFoundError, match="nowhere"):
            lab.cluster.read(kind, "nowhere", lab.namespace if namespaced else "")

    @pytest.mark.parametrize("name", ["", ".", ".."])
    def test_name_that_would_reach_elsewhere_is_refused(self, lab: Lab, name: str) -> None:
        with pytest.raises(RefusedError):
            lab.cluster.delete(CONFIG_MAP, name, lab.namespace)
        with pytest.raises(RefusedError):
            lab.cluster.read(CONFIG_MAP, name, lab.namespace)

    def test_namespaced_kind_without_a_namespace_is_refused(self, lab: Lab) -> None:
        with pytest.raises(RefusedError, match="namespace"):
            lab.cluster.delete(CONFIG_MAP, "settings")

    def test_create_returns_what_is_there_now(self, lab: Lab) -> None:
        made = lab.cluster.create(lab.config_map(colour="red"))
        assert made["metadata"]["uid"]
        assert made == lab.cluster.read(CONFIG_MAP, "settings", lab.namespace)
        assert made["data"] == {"colour": "red"}

    def test_create_of_a_taken_name(self, lab: Lab) -> None:
        lab.cluster.create(lab.config_map(colour="red"))
        with pytest.raises(AlreadyExistsError, match="settings"):
            lab.cluster.create(lab.config_map(colour="blue"))
        assert self._data(lab) == {"colour": "red"}

    def test_create_in_a_namespace_that_is_not_there(self, lab: Lab) -> None:
        body = lab.config_map()
        body["metadata"]["namespace"] = "nowhere"
        with pytest.raises(NotFoundError, match="nowhere"):
            lab.cluster.create(body)

    def test_create_of_an_invalid_object(self, lab: Lab) -> None:
        with pytest.raises(RefusedError, match="Not_A_Name"):
            lab.cluster.create(lab.config_map("Not_A_Name"))

    def test_create_as_a_dry_run_leaves_nothing(self, lab: Lab) -> None:
        made = lab.cluster.create(lab.config_map(colour="red"), dry_run=True)
        assert made["data"] == {"colour": "red"}
        with pytest.raises(NotFoundError):
            lab.cluster.read(CONFIG_MAP, "settings", lab.namespace)

    def test_apply_creates_then_changes(self, lab: Lab) -> None:
        first = lab.cluster.apply(lab.config_map(colour="red", size="5"))
        second = lab.cluster.apply(lab.config_map(colour="blue"))
        assert first["metadata"]["uid"] == second["metadata"]["uid"]
        assert self._data(lab) == {"colour": "blue"}

    def test_apply_of_the_same_changes_nothing(self, lab: Lab) -> None:
        versions = {
            lab.cluster.apply(lab.config_map(colour="red"))["metadata"]["resourceVersion"]
            for _ in range(2)
        }
        assert len(versions) == 1

    def test_apply_as_a_dry_run_leaves_it_as_it_was(self, lab: Lab) -> None:
        lab.cluster.apply(lab.config_map(colour="red"))
        told = lab.cluster.apply(lab.config_map(colour="blue"), dry_run=True)
        assert told["data"] == {"colour": "blue"}
        assert self._data(lab) == {"colour": "red"}

    def test_apply_keeps_what_others_have_added(self, lab: Lab) -> None:
        lab.cluster.apply(lab.config_map(colour="red"))
        lab.meddle(lab.config_map(size="5"))
        lab.cluster.apply(lab.config_map(colour="blue"))
        assert self._data(lab) == {"colour": "blue", "size": "5"}

    def test_apply_never_overwrites_what_another_owns(self, lab: Lab) -> None:
        lab.meddle(lab.config_map(colour="theirs"))
        with pytest.raises(ConflictError):
            lab.cluster.apply(lab.config_map(colour="ours"))
        assert self._data(lab) == {"colour": "theirs"}

    def test_patch_merges_and_null_removes(self, lab: Lab) -> None:
        lab.cluster.create(lab.config_map(colour="red", size="5"))
        body = {"data": {"colour": None, "shape": "round"}}
        told = lab.cluster.patch(CONFIG_MAP, "settings", body, lab.namespace)
        assert told["data"] == {"size": "5", "shape": "round"} == self._data(lab)

    def test_patch_of_a_newer_object_is_a_conflict(self, lab: Lab) -> None:
        old = lab.cluster.create(lab.config_map(colour="red"))["metadata"]["resourceVersion"]
        lab.cluster.patch(CONFIG_MAP, "settings", {"data": {"colour": "blue"}}, lab.namespace)
        body = {"metadata": {"resourceVersion": old}, "data": {"colour": "green"}}
        with pytest.raises(ConflictError):
            lab.cluster.patch(CONFIG_MAP, "settings", body, lab.namespace)
        assert self._data(lab) == {"colour": "blue"}

    def test_patch_of_nothing_is_not_found(self, lab: Lab) -> None:
        with pytest.raises(NotFoundError):
            lab.cluster.patch(CONFIG_MAP, "nowhere", {"data": {}}, lab.namespace)

    def test_delete_is_done_when_there_is_nothing(self, lab: Lab) -> None:
        lab.cluster.create(lab.config_map())
        for _ in range(2):
            lab.cluster.delete(CONFIG_MAP, "settings", lab.namespace)
        lab.cluster.delete(CONFIG_MAP, "settings", "nowhere")
        with pytest.raises(NotFoundError):
            lab.cluster.read(CONFIG_MAP, "settings", lab.namespace)

    def test_cordon_is_a_patch_that_taints(self, lab: Lab) -> None:
        lab.cluster.patch(NODE, lab.node, {"spec": {"unschedulable": True}})
        try:
            lab.eventually(lambda: "node.kubernetes.io/unschedulable" in self._taints(lab))
        finally:
            lab.cluster.patch(NODE, lab.node, {"spec": {"unschedulable": None}})
        lab.eventually(lambda: "node.kubernetes.io/unschedulable" not in self._taints(lab))

    def test_namespace_and_quota_are_applied(self, lab: Lab) -> None:
        namespace = lab.cluster.read(NAMESPACE, lab.namespace)
        assert namespace["metadata"]["name"] == lab.namespace
        hard = {f"requests.{GPU}": "0"}
        lab.cluster.apply(lab.manifest(RESOURCE_QUOTA, "gpu", spec={"hard": hard}))
        lab.eventually(lambda: self._quota_status(lab) == {"hard": hard, "used": hard})

    def test_token_of_a_service_account_ends_when_asked(self, lab: Lab) -> None:
        lab.cluster.apply(lab.manifest(SERVICE_ACCOUNT, "member"))
        before = timezone.now()
        token = lab.cluster.request_token("member", lab.namespace, lifetime_s=3600)
        assert timedelta(minutes=55) < token.ends_at - before < timedelta(minutes=65)
        assert token.text
        assert token.text not in repr(token)
        other = lab.cluster.request_token("member", lab.namespace, lifetime_s=3600)
        assert other.text != token.text

    def test_token_of_no_account_is_not_found(self, lab: Lab) -> None:
        with pytest.raises(NotFoundError, match="nobody"):
            lab.cluster.request_token("nobody", lab.namespace, lifetime_s=3600)

    def test_token_for_a_moment_is_refused(self, lab: Lab) -> None:
        lab.cluster.apply(lab.manifest(SERVICE_ACCOUNT, "member"))
        with pytest.raises(RefusedError, match="10 minutes"):
            lab.cluster.request_token("member", lab.namespace, lifetime_s=60)

    def test_endpoint_is_an_address(self, lab: Lab) -> None:
        endpoint = lab.cluster.endpoint()
        assert endpoint.server.startswith("https://")
        assert endpoint.certificate_authority == "" or (
            "BEGIN CERTIFICATE" in endpoint.certificate_authority
        )

    @staticmethod
    def _data(lab: Lab) -> dict[str, str]:
        data: dict[str, str] = lab.cluster.read(CONFIG_MAP, "settings", lab.namespace)["data"]
        return data

    @staticmethod
    def _taints(lab: Lab) -> set[str]:
        return {
            taint["key"] for taint in lab.cluster.read(NODE, lab.node)["spec"].get("taints", [])
        }

    @staticmethod
    def _quota_status(lab: Lab) -> dict[str, Any]:
        status: dict[str, Any] = lab.cluster.read(RESOURCE_QUOTA, "gpu", lab.namespace)["status"]
        return status
