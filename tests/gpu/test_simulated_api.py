"""The simulated API server: what it refuses and in which words, what a watch tells, who owns what.

The contract suite holds what both clusters share; this is what the lab does besides.
"""

import time
from pathlib import Path
from typing import Any

import pytest

from gpu.ports import (
    CONFIG_MAP,
    JOB,
    LIMIT_RANGE,
    NAMESPACE,
    NODE,
    POD,
    POD_DISRUPTION_BUDGET,
    RESOURCE_QUOTA,
    SERVICE_ACCOUNT,
    BlockedError,
    ConflictError,
    EventType,
    GoneError,
    NotFoundError,
    RefusedError,
    Scope,
)
from tests.gpu.simulation import GPU, NODE_NAME, SPACE, Simulation, job, manifest, pod


@pytest.fixture
def lab(tmp_path: Path) -> Simulation:
    return Simulation.build(tmp_path)


def _quota(lab: Simulation, **hard: str) -> None:
    keys = {key.replace("__", "/").replace("_", "."): value for key, value in hard.items()}
    lab.cluster.apply(manifest(RESOURCE_QUOTA, "team", spec={"hard": keys}))


def test_quota_says_no_in_kubernetes_own_words(lab: Simulation) -> None:
    _quota(lab, requests_nvidia_com__gpu="1")
    lab.wait(1)
    lab.cluster.create(pod("first", limits={GPU: 1}))
    with pytest.raises(RefusedError) as refusal:
        lab.cluster.create(pod("second", limits={GPU: 1}))
    assert str(refusal.value) == (
        'pods "second" is forbidden: exceeded quota: team, requested: requests.nvidia.com/gpu=1,'
        " used: requests.nvidia.com/gpu=1, limited: requests.nvidia.com/gpu=1"
    )


def test_quota_that_is_new_or_changed_is_taken_up_a_moment_later(lab: Simulation) -> None:
    _quota(lab, requests_nvidia_com__gpu="1")
    with pytest.raises(RefusedError, match="status unknown for quota: team, resources: requests"):
        lab.cluster.create(pod("first", limits={GPU: 1}))
    lab.wait(0.5)
    lab.cluster.create(pod("first", limits={GPU: 1}))
    _quota(lab, requests_nvidia_com__gpu="2")
    with pytest.raises(RefusedError, match=r"limited: requests\.nvidia\.com/gpu=1$"):
        lab.cluster.create(pod("second", limits={GPU: 1}))
    lab.wait(0.5)
    lab.cluster.create(pod("second", limits={GPU: 1}))


def test_quota_counts_cpu_memory_and_pods_as_kubernetes_writes_them(lab: Simulation) -> None:
    _quota(lab, requests_cpu="2", memory="4Gi", pods="3", limits_cpu="4")
    lab.wait(1)
    lab.cluster.create(pod("one", limits={"cpu": "500m", "memory": "512Mi"}))
    lab.cluster.create(pod("two", limits={"cpu": "1500m", "memory": "1536Mi"}))
    status = lab.cluster.read(RESOURCE_QUOTA, "team", SPACE)["status"]
    assert status["used"] == {"requests.cpu": "2", "memory": "2Gi", "pods": "2", "limits.cpu": "2"}
    with pytest.raises(RefusedError, match=r"requested: requests\.cpu=1m, used: requests\.cpu=2,"):
        lab.cluster.create(pod("three", limits={"cpu": "1m", "memory": "1Mi"}))


def test_quota_on_cpu_wants_it_named_unless_a_limit_range_gives_it(lab: Simulation) -> None:
    _quota(lab, requests_cpu="2", limits_memory="1Gi")
    lab.wait(1)
    with pytest.raises(
        RefusedError,
        match=r"failed quota: team: must specify limits\.memory for: main; requests\.cpu for: main",
    ):
        lab.cluster.create(pod("one"))
    limits = [{"type": "Container", "default": {"cpu": "100m", "memory": "64Mi"}}]
    lab.cluster.apply(manifest(LIMIT_RANGE, "defaults", spec={"limits": limits}))
    made = lab.cluster.create(pod("one"))
    amounts = {"cpu": "100m", "memory": "64Mi"}
    assert made["spec"]["containers"][0]["resources"] == {"limits": amounts, "requests": amounts}


@pytest.mark.parametrize(
    ("limits", "requests", "words"),
    [
        ({GPU: "half"}, {}, "must be an integer"),
        ({GPU: "2"}, {GPU: "1"}, "must be equal to nvidia.com/gpu limit"),
        ({}, {GPU: "1"}, "Limit must be set for non overcommitable resources"),
    ],
    ids=["no number", "request differs", "no limit"],
)
def test_device_counts_are_checked(
    lab: Simulation, limits: dict[str, str], requests: dict[str, str], words: str
) -> None:
    body = pod("odd", limits=limits)
    body["spec"]["containers"][0]["resources"]["requests"] = requests
    with pytest.raises(RefusedError, match=words):
        lab.cluster.create(body)


def test_pod_without_containers_is_refused(lab: Simulation) -> None:
    with pytest.raises(RefusedError, match=r"spec\.containers: Required value"):
        lab.cluster.create(manifest(POD, "empty", spec={"containers": []}))


def test_what_runs_cannot_be_changed(lab: Simulation) -> None:
    lab.cluster.create(pod("train"))
    with pytest.raises(RefusedError, match="pod updates may not change fields"):
        lab.cluster.patch(POD, "train", {"spec": {"nodeSelector": None}}, SPACE)
    lab.cluster.create(job("work", "echo one"))
    with pytest.raises(RefusedError, match="field is immutable"):
        lab.cluster.apply(job("work", "echo two"))


def test_labels_of_what_runs_can_be_changed_and_its_status_not(lab: Simulation) -> None:
    lab.cluster.create(pod("train"))
    body = {"metadata": {"labels": {"colour": "red"}}, "status": {"phase": "Succeeded"}}
    told = lab.cluster.patch(POD, "train", body, SPACE)
    assert (told["metadata"]["labels"], told["status"]["phase"]) == ({"colour": "red"}, "Pending")


def test_patch_cannot_rename(lab: Simulation) -> None:
    lab.cluster.create(manifest(CONFIG_MAP, "one"))
    lab.cluster.patch(CONFIG_MAP, "one", {"metadata": {"name": "two", "uid": "7"}}, SPACE)
    assert lab.exists(CONFIG_MAP, "one")
    assert not lab.exists(CONFIG_MAP, "two")


def test_apply_with_a_stale_version_is_a_conflict(lab: Simulation) -> None:
    old = lab.cluster.apply(manifest(CONFIG_MAP, "one", data={"a": "1"}))
    lab.cluster.apply(manifest(CONFIG_MAP, "one", data={"a": "2"}))
    body = manifest(CONFIG_MAP, "one", data={"a": "3"})
    body["metadata"]["resourceVersion"] = old["metadata"]["resourceVersion"]
    with pytest.raises(ConflictError, match="has been modified"):
        lab.cluster.apply(body)


def test_namespace_has_an_account_and_takes_everything_along(lab: Simulation) -> None:
    assert lab.exists(SERVICE_ACCOUNT, "default")
    lab.cluster.create(pod("train"))
    lab.cluster.create(job("work", "sleep 60"))
    lab.wait(5)
    lab.cluster.delete(NAMESPACE, SPACE)
    assert lab.cluster.read(NAMESPACE, SPACE)["status"]["phase"] == "Terminating"
    with pytest.raises(RefusedError, match="because it is being terminated"):
        lab.cluster.create(manifest(CONFIG_MAP, "late"))
    lab.wait(5)
    assert not lab.exists(NAMESPACE, SPACE, "")
    assert lab.pods() == []
    assert not lab.exists(JOB, "work")


@pytest.mark.parametrize(
    ("scope", "words"),
    [
        (Scope(field_selector="spec.hostname=a"), "field label not supported"),
        (Scope(field_selector="metadata.name"), "invalid selector"),
        (Scope(label_selector="=a"), "unable to parse requirement"),
        (Scope(label_selector="colour in red"), "unable to parse requirement"),
    ],
    ids=["unknown field", "no sign", "no key", "no parentheses"],
)
def test_selector_that_cannot_be_read_is_refused(lab: Simulation, scope: Scope, words: str) -> None:
    with pytest.raises(RefusedError, match=words):
        lab.cluster.list(POD, scope)
    with pytest.raises(RefusedError, match=words):
        list(lab.cluster.watch(POD, scope, "0", timeout_s=0))


@pytest.mark.parametrize(
    ("selector", "names"),
    [
        ("colour", {"a", "b"}),
        ("!colour", {"c"}),
        ("colour notin (red, green)", {"b", "c"}),
        ("colour=red,size!=5", set()),
        ("colour==blue", {"b"}),
    ],
    ids=["key", "no key", "not in", "both", "equal"],
)
def test_label_selectors(lab: Simulation, selector: str, names: set[str]) -> None:
    labels = {"a": {"colour": "red", "size": "5"}, "b": {"colour": "blue"}, "c": {}}
    for name, given in labels.items():
        body = manifest(CONFIG_MAP, name)
        body["metadata"]["labels"] = given
        lab.cluster.create(body)
    found = lab.cluster.list(CONFIG_MAP, Scope(SPACE, selector)).items
    assert {item["metadata"]["name"] for item in found} == names


def test_cordoned_nodes_are_found_by_field(lab: Simulation) -> None:
    lab.cluster.patch(NODE, NODE_NAME, {"spec": {"unschedulable": True}})
    found = lab.cluster.list(NODE, Scope(field_selector="spec.unschedulable=true")).items
    assert [item["metadata"]["name"] for item in found] == [NODE_NAME]


def _watch(lab: Simulation, since: str) -> list[tuple[str, str]]:
    events = lab.cluster.watch(CONFIG_MAP, Scope(SPACE), since, timeout_s=0)
    return [(event.type, event.object["metadata"].get("name", "")) for event in events]


def test_watch_from_zero_begins_with_what_is_there(lab: Simulation) -> None:
    lab.cluster.create(manifest(CONFIG_MAP, "one"))
    assert _watch(lab, "0") == [("ADDED", "one")]
    assert _watch(lab, "") == [("ADDED", "one")]


def test_watch_ends_with_a_bookmark_when_others_have_changed(lab: Simulation) -> None:
    since = lab.cluster.list(CONFIG_MAP, Scope(SPACE)).resource_version
    lab.cluster.create(pod("elsewhere"))
    [bookmark] = lab.cluster.watch(CONFIG_MAP, Scope(SPACE), since, timeout_s=0)
    assert bookmark.type is EventType.BOOKMARK
    version = bookmark.object["metadata"]["resourceVersion"]
    assert int(version) > int(since)
    assert _watch(lab, version) == []


def test_watch_of_another_lab_is_gone(lab: Simulation) -> None:
    newest = lab.cluster.list(CONFIG_MAP).resource_version
    with pytest.raises(GoneError):
        _watch(lab, str(int(newest) + 1000))
    with pytest.raises(RefusedError, match="Invalid value"):
        _watch(lab, "newest")


def test_change_log_is_bounded(lab: Simulation, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gpu.adapters.simulated.store._KEPT_CHANGES", 10)
    since = lab.cluster.list(CONFIG_MAP).resource_version
    for number in range(12):
        lab.cluster.create(manifest(CONFIG_MAP, f"c{number}"))
    with pytest.raises(GoneError):
        _watch(lab, since)


def test_watch_hears_what_others_do_meanwhile(lab: Simulation) -> None:
    since = lab.cluster.list(CONFIG_MAP, Scope(SPACE)).resource_version
    events = lab.cluster.watch(CONFIG_MAP, Scope(SPACE), since, timeout_s=5)
    lab.cluster.create(manifest(CONFIG_MAP, "one"))
    started = time.monotonic()
    assert next(events).object["metadata"]["name"] == "one"
    assert time.monotonic() - started < 2


@pytest.mark.parametrize(
    ("spec", "allowed"),
    [
        ({"minAvailable": 1}, 1),
        ({"minAvailable": "100%"}, 0),
        ({"maxUnavailable": "50%"}, 1),
        ({"maxUnavailable": 0}, 0),
    ],
    ids=["at least one", "all", "half", "none"],
)
def test_budget_counts_what_may_go(lab: Simulation, spec: dict[str, Any], allowed: int) -> None:
    for name in ("one", "two"):
        body = pod(name)
        body["metadata"]["labels"] = {"app": "serve"}
        lab.cluster.create(body)
    lab.wait(5)
    spec = {**spec, "selector": {"matchLabels": {"app": "serve"}}}
    lab.cluster.create(manifest(POD_DISRUPTION_BUDGET, "keep", spec=spec))
    status = lab.cluster.read(POD_DISRUPTION_BUDGET, "keep", SPACE)["status"]
    assert (status["currentHealthy"], status["disruptionsAllowed"]) == (2, allowed)
    if not allowed:
        with pytest.raises(BlockedError, match="would violate the pod's disruption budget"):
            lab.cluster.evict("one", SPACE)
        return
    lab.cluster.evict("one", SPACE)
    with pytest.raises(BlockedError):
        lab.cluster.evict("two", SPACE)


def test_pod_that_does_not_run_may_always_go(lab: Simulation) -> None:
    body = pod("waits", limits={GPU: 99})
    body["metadata"]["labels"] = {"app": "serve"}
    lab.cluster.create(body)
    selector = {"matchExpressions": [{"key": "app", "operator": "Exists"}]}
    spec = {"minAvailable": 1, "selector": selector}
    lab.cluster.create(manifest(POD_DISRUPTION_BUDGET, "keep", spec=spec))
    lab.cluster.evict("waits", SPACE)
    assert not lab.exists(POD, "waits")


def test_object_keeps_its_hidden_half_to_itself(lab: Simulation) -> None:
    body = {**manifest(CONFIG_MAP, "one"), "simulated": {"owners": {}}}
    assert "simulated" not in lab.cluster.create(body)
    assert all("simulated" not in item for item in lab.cluster.list(POD).items)
    with pytest.raises(NotFoundError):
        lab.cluster.read_log("nowhere", SPACE)
