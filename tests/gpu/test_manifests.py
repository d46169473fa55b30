"""Manifests are dictionaries, and are checked as such."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpu import manifests
from gpu.manifests import Amounts, NodeScript, Probe, SlicePod

_POD = SlicePod(
    name="train",
    namespace="team-vision",
    allocation="7",
    resource_name="nvidia.com/mig-1g.10gb",
    products=["NVIDIA-A100-SXM4-80GB"],
    image="cuda",
    command=["sleep", "infinity"],
    amounts=Amounts(4000, 8192, 1024),
)


@given(st.lists(st.text(max_size=80), min_size=1, max_size=3))
def test_every_name_is_a_dns_label(parts: list[str]) -> None:
    name = manifests.object_name(*parts)
    assert len(name) <= 63
    assert name.strip("-") == name
    assert all(c.isascii() and (c.isalnum() or c == "-") and c == c.lower() for c in name)


@given(st.text(max_size=90), st.text(max_size=90))
def test_distinct_inputs_have_distinct_names(one: str, other: str) -> None:
    same = manifests.object_name("op", one) == manifests.object_name("op", other)
    assert same == (one == other)


def test_quota_names_every_key_as_kubernetes_wants_it() -> None:
    body = manifests.resource_quota("ns", {"requests.nvidia.com/gpu": "0", "requests.cpu": "4"})
    assert body["spec"]["hard"] == {"requests.cpu": "4", "requests.nvidia.com/gpu": "0"}


def test_limits_leave_out_storage_that_nobody_counts() -> None:
    body = manifests.limit_range("ns", Amounts(100, 128, 0))
    assert body["spec"]["limits"][0]["default"] == {"cpu": "100m", "memory": "128Mi"}


def test_slice_pod_asks_for_one_device_on_its_product_with_its_label() -> None:
    body = manifests.slice_pod(_POD)
    assert body["metadata"]["labels"] == {"slicedesk.io/allocation": "7"}
    assert body["spec"]["nodeSelector"] == {"nvidia.com/gpu.product": "NVIDIA-A100-SXM4-80GB"}
    [container] = body["spec"]["containers"]
    assert container["resources"]["limits"] == {
        "cpu": "4000m",
        "memory": "8192Mi",
        "ephemeral-storage": "1024Mi",
        "nvidia.com/mig-1g.10gb": "1",
    }


@pytest.mark.parametrize("products", [[], ["A", "B"]], ids=["unknown", "two labels"])
def test_slice_pod_goes_by_affinity_where_labels_differ(products: list[str]) -> None:
    body = manifests.slice_pod(replace(_POD, products=products))
    assert "nodeSelector" not in body["spec"]
    required = body["spec"]["affinity"]["nodeAffinity"]
    [term] = required["requiredDuringSchedulingIgnoredDuringExecution"]["nodeSelectorTerms"]
    assert term["matchExpressions"][0]["values"] == products


def test_node_job_runs_once_privileged_on_its_node_even_when_cordoned() -> None:
    body = manifests.node_job(
        NodeScript("job", "slicedesk-system", "n1", "tools", "true", {"a": "b"}, 60)
    )
    spec = body["spec"]["template"]["spec"]
    assert (body["spec"]["backoffLimit"], spec["restartPolicy"]) == (0, "Never")
    assert spec["tolerations"] == [{"operator": "Exists"}]
    assert spec["containers"][0]["securityContext"] == {"privileged": True}
    assert "nodeName" not in spec


@pytest.mark.parametrize("resource", ["nvidia.com/mig-1g.10gb", None], ids=["device", "none"])
def test_verification_pod_asks_for_one_device_or_to_see_all(resource: str | None) -> None:
    body = manifests.verification_pod(Probe("v", "ns", "n1", "cuda", {}, resource, 60))
    [container] = body["spec"]["containers"]
    asks = [key for key in container["resources"]["limits"] if key.startswith("nvidia.com/")]
    assert asks == ([resource] if resource else [])
    assert ("env" in container) is (resource is None)
    keys = {item["key"] for item in body["spec"]["tolerations"]}
    assert keys == {"node.kubernetes.io/unschedulable", "nvidia.com/gpu"}
