"""The simulated scheduler and controllers, case by case."""

from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from gpu.adapters.simulated.scheduling import choose_node
from gpu.ports import DAEMON_SET, NAMESPACE, NODE, POD, RESOURCE_QUOTA, Manifest, RefusedError
from tests.gpu.simulation import GPU, NODE_NAME, SPACE, Simulation, manifest, pod

TAINT = {"key": "nvidia.com/gpu", "value": "present", "effect": "NoSchedule"}


def _node(name: str, *, taints: list[Manifest] | None = None, **labels: str) -> Manifest:
    body = manifest(NODE, name, spec={"taints": taints or []})
    body["metadata"]["labels"] = {key.replace("_", "-"): value for key, value in labels.items()}
    body["status"] = {"allocatable": {"cpu": "4", "memory": "8Gi", GPU: "2", "pods": "3"}}
    return body


def _pod(**spec: Any) -> Manifest:  # noqa: ANN401  # JSON edge
    body = pod("p", node="", limits={GPU: 1})
    body["spec"] |= spec
    return body


def _affinity(*expressions: Manifest, fields: list[Manifest] | None = None) -> Manifest:
    term: Manifest = {"matchExpressions": list(expressions)}
    if fields:
        term = {"matchFields": fields}
    required = {"nodeSelectorTerms": [term]}
    return {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": required}}


@pytest.mark.parametrize(
    ("operator", "values", "fits"),
    [
        ("In", ["a", "b"], True),
        ("In", ["b"], False),
        ("NotIn", ["b"], True),
        ("NotIn", ["a"], False),
        ("Exists", None, True),
        ("DoesNotExist", None, False),
    ],
)
def test_node_affinity(operator: str, values: list[str] | None, fits: bool) -> None:  # noqa: FBT001
    term = {"key": "rack", "operator": operator} | ({"values": values} if values else {})
    decision = choose_node(_pod(affinity=_affinity(term)), [_node("n", rack="a")], {})
    assert (decision.node == "n") is fits
    assert ("didn't match Pod's node affinity/selector" in decision.sentence) is not fits


@pytest.mark.parametrize(
    ("operator", "limit", "fits"),
    [("Gt", "7", True), ("Gt", "8", False), ("Lt", "9", True), ("Lt", "8", False)],
)
def test_node_affinity_compares_numbers(operator: str, limit: str, fits: bool) -> None:  # noqa: FBT001
    term = {"key": "gpus", "operator": operator, "values": [limit]}
    assert (
        choose_node(_pod(affinity=_affinity(term)), [_node("n", gpus="8")], {}).node == "n"
    ) is fits
    none = choose_node(_pod(affinity=_affinity(term)), [_node("n", gpus="many")], {})
    assert none.node is None


def test_unknown_operator_is_refused() -> None:
    term = {"key": "rack", "operator": "Like", "values": ["a"]}
    with pytest.raises(RefusedError, match="Like"):
        choose_node(_pod(affinity=_affinity(term)), [_node("n")], {})


def test_node_affinity_by_name() -> None:
    field = {"key": "metadata.name", "operator": "In", "values": ["two"]}
    nodes = [_node("one"), _node("two")]
    assert choose_node(_pod(affinity=_affinity(fields=[field])), nodes, {}).node == "two"


@pytest.mark.parametrize(
    ("toleration", "fits"),
    [
        ({"operator": "Exists"}, True),
        ({"key": "nvidia.com/gpu", "operator": "Exists"}, True),
        ({"key": "nvidia.com/gpu", "operator": "Exists", "effect": "NoExecute"}, False),
        ({"key": "nvidia.com/gpu", "value": "present", "effect": "NoSchedule"}, True),
        ({"key": "nvidia.com/gpu", "value": "absent"}, False),
        ({"key": "other", "operator": "Exists"}, False),
    ],
    ids=["all", "key", "other effect", "value", "other value", "other key"],
)
def test_toleration(toleration: Manifest, fits: bool) -> None:  # noqa: FBT001
    decision = choose_node(_pod(tolerations=[toleration]), [_node("n", taints=[TAINT])], {})
    assert (decision.node == "n") is fits
    if not fits:
        assert "1 node(s) had untolerated taint {nvidia.com/gpu: present}" in decision.sentence


def test_fullest_node_is_filled_first() -> None:
    nodes = [_node("empty"), _node("half")]
    assert choose_node(_pod(), nodes, {"half": Counter({GPU: 1})}).node == "half"


def test_node_with_as_many_pods_as_it_takes_is_full() -> None:
    decision = choose_node(_pod(), [_node("n")], {"n": Counter({"pods": 3})})
    assert decision.sentence.startswith("0/1 nodes are available: 1 Too many pods.")


def test_cluster_without_nodes() -> None:
    assert choose_node(_pod(), [], {}).sentence == "no nodes available to schedule pods"


@pytest.fixture
def lab(tmp_path: Path) -> Simulation:
    return Simulation.build(tmp_path)


def _daemon_set(script: str = "sleep infinity") -> Manifest:
    spec = pod("d", script=script, node="", policy="Always")["spec"]
    spec["nodeSelector"] = {"kubernetes.io/hostname": NODE_NAME}
    template = {"metadata": {"labels": {"app": "d"}}, "spec": spec}
    return manifest(
        DAEMON_SET, "d", spec={"selector": {"matchLabels": {"app": "d"}}, "template": template}
    )


def test_daemon_set_of_somebody_else_is_no_device_plugin(lab: Simulation) -> None:
    lab.cluster.create(_daemon_set())
    lab.wait(1)
    [mine] = lab.pods()
    assert (mine.node, mine.is_ready, mine.owner_kind) == (NODE_NAME, True, "DaemonSet")
    assert lab.cluster.read(DAEMON_SET, "d", SPACE)["status"]["numberReady"] == 1
    lab.cluster.delete(POD, mine.name, SPACE)
    lab.wait(2)
    assert [item.name == mine.name for item in lab.pods()] == [False]
    assert lab.node().allocatable[GPU] == 2
    lab.cluster.delete(DAEMON_SET, "d", SPACE)
    lab.wait(2)
    assert lab.pods() == []


def test_daemon_sets_pod_waits_for_its_quota(lab: Simulation) -> None:
    lab.cluster.apply(manifest(RESOURCE_QUOTA, "none", spec={"hard": {"pods": "0"}}))
    lab.wait(1)
    lab.cluster.create(_daemon_set())
    lab.wait(5)
    assert lab.pods() == []
    assert lab.said("d") == ["FailedCreate"]
    lab.cluster.delete(RESOURCE_QUOTA, "none", SPACE)
    lab.wait(10)
    assert len(lab.pods()) == 1


def test_daemon_sets_pod_that_was_turned_away_is_replaced(lab: Simulation) -> None:
    body = _daemon_set()
    container = body["spec"]["template"]["spec"]["containers"][0]
    container["resources"] = {"limits": {GPU: 1}}
    lab.cluster.create(pod("first", limits={GPU: 1}))
    lab.wait(1)
    lab.cluster.create(body)
    lab.wait(1)
    lab.cluster.delete(POD, "first", SPACE, grace_s=0)
    lab.wait(3)
    assert [item.phase for item in lab.pods()] == ["Running"]


def test_nothing_is_made_anew_in_a_namespace_that_goes(lab: Simulation) -> None:
    lab.cluster.delete(NAMESPACE, "team-vision")
    lab.wait(60)
    assert not lab.exists(NAMESPACE, "team-vision", "")
    assert lab.pods("team-vision") == []
