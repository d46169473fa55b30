"""The Cluster contract's part about what runs: Pods, devices, Jobs, logs, quotas, evictions."""

import pytest

from gpu.objects import JobObject, PodObject
from gpu.ports import (
    JOB,
    POD,
    POD_DISRUPTION_BUDGET,
    RESOURCE_QUOTA,
    BlockedError,
    Manifest,
    NotFoundError,
    RefusedError,
    Scope,
    UnreachableError,
)
from tests.contracts.cluster_contract import GPU, Lab


class ClusterRunningContract:
    """What the scheduler, the kubelet and the controllers do to objects of ours."""

    def test_pod_runs_on_the_node_and_holds_its_device(self, lab: Lab) -> None:
        lab.cluster.create(_pod(lab, "train", gpus=1))
        lab.eventually(lambda: _read(lab, "train").is_ready)
        pod = _read(lab, "train")
        assert (pod.phase, pod.node, pod.resources) == ("Running", lab.node, {GPU: 1})
        [device] = (pod.devices or {})[GPU]
        assert device.startswith("GPU-")

    def test_log_is_what_the_pod_printed(self, lab: Lab) -> None:
        lab.cluster.create(_pod(lab, "look", gpus=1, script="nvidia-smi -L"))
        lab.eventually(lambda: _read(lab, "look").phase == "Succeeded")
        log = lab.cluster.read_log("look", lab.namespace)
        assert log.startswith("GPU 0: NVIDIA ")
        assert log.count("UUID: GPU-") == 1

    def test_finished_pod_holds_nothing(self, lab: Lab) -> None:
        lab.cluster.create(_pod(lab, "look", gpus=1, script="nvidia-smi -L"))
        lab.eventually(lambda: _read(lab, "look").is_finished)
        lab.cluster.create(_pod(lab, "next", gpus=1))
        lab.eventually(lambda: _read(lab, "next").is_ready)

    def test_pod_that_asks_too_much_waits_and_says_for_what(self, lab: Lab) -> None:
        lab.cluster.create(_pod(lab, "huge", gpus=1000))
        lab.eventually(lambda: f"Insufficient {GPU}" in _read(lab, "huge").message)
        assert (_read(lab, "huge").phase, _read(lab, "huge").node) == ("Pending", "")

    def test_pod_that_asks_for_an_unknown_resource_waits(self, lab: Lab) -> None:
        body = _pod(lab, "odd")
        body["spec"]["containers"][0]["resources"]["limits"]["nvidia.com/mig-9g.1gb"] = 1
        lab.cluster.create(body)
        lab.eventually(lambda: "Insufficient nvidia.com/mig-9g.1gb" in _read(lab, "odd").message)

    def test_log_of_a_pod_that_waits_comes_later(self, lab: Lab) -> None:
        lab.cluster.create(_pod(lab, "huge", gpus=1000))
        with pytest.raises(UnreachableError):
            lab.cluster.read_log("huge", lab.namespace)

    def test_log_of_nothing_is_not_found(self, lab: Lab) -> None:
        with pytest.raises(NotFoundError):
            lab.cluster.read_log("nowhere", lab.namespace)

    def test_quota_refuses_the_second_pod(self, lab: Lab) -> None:
        _limit(lab, 1)
        lab.cluster.create(_pod(lab, "first", gpus=1))
        lab.eventually(lambda: _used(lab) == "1")
        for dry_run in (True, False):
            with pytest.raises(RefusedError, match="exceeded quota"):
                lab.cluster.create(_pod(lab, "second", gpus=1), dry_run=dry_run)
        with pytest.raises(NotFoundError):
            lab.cluster.read(POD, "second", lab.namespace)

    def test_quota_counts_again_after_a_deletion(self, lab: Lab) -> None:
        _limit(lab, 1)
        lab.cluster.create(_pod(lab, "first", gpus=1))
        lab.eventually(lambda: _used(lab) == "1")
        lab.cluster.delete(POD, "first", lab.namespace, grace_s=0)
        lab.eventually(lambda: _used(lab) == "0")
        lab.cluster.create(_pod(lab, "second", gpus=1))

    def test_quota_of_zero_refuses_the_first_pod(self, lab: Lab) -> None:
        _limit(lab, 0)
        with pytest.raises(RefusedError, match="exceeded quota"):
            lab.cluster.create(_pod(lab, "first", gpus=1))
        lab.cluster.create(_pod(lab, "without"))

    def test_deleted_pod_goes(self, lab: Lab) -> None:
        lab.cluster.create(_pod(lab, "train"))
        lab.eventually(lambda: _read(lab, "train").is_ready)
        lab.cluster.delete(POD, "train", lab.namespace, grace_s=1)
        lab.eventually(lambda: _is_gone(lab, "train"))

    def test_job_completes_and_its_pod_keeps_the_log(self, lab: Lab) -> None:
        lab.cluster.create(_job(lab, "good", "chroot /host nvidia-smi -L"))
        lab.eventually(lambda: _read_job(lab, "good").is_complete)
        [pod] = lab.cluster.list(POD, Scope(lab.namespace, "job-name=good")).items
        assert PodObject.from_manifest(pod).owner_name == "good"
        log = lab.cluster.read_log(pod["metadata"]["name"], lab.namespace)
        assert log.startswith("GPU 0: NVIDIA ")

    def test_job_fails_once_and_keeps_the_log(self, lab: Lab) -> None:
        lab.cluster.create(_job(lab, "bad", "chroot /host nvidia-smi -i 99 -L"))
        lab.eventually(lambda: _read_job(lab, "bad").is_failed)
        [pod] = lab.cluster.list(POD, Scope(lab.namespace, "job-name=bad")).items
        log = lab.cluster.read_log(pod["metadata"]["name"], lab.namespace)
        assert log == "No devices were found\n"
        assert not _read_job(lab, "bad").is_complete

    def test_deleted_job_takes_its_pods_along(self, lab: Lab) -> None:
        lab.cluster.create(_job(lab, "good", "chroot /host nvidia-smi -L"))
        lab.eventually(lambda: _read_job(lab, "good").is_complete)
        lab.cluster.delete(JOB, "good", lab.namespace)
        scope = Scope(lab.namespace, "job-name=good")
        lab.eventually(lambda: lab.cluster.list(POD, scope).items == ())

    def test_evicted_pod_goes(self, lab: Lab) -> None:
        lab.cluster.create(_pod(lab, "train"))
        lab.eventually(lambda: _read(lab, "train").is_ready)
        lab.cluster.evict("train", lab.namespace)
        lab.eventually(lambda: _is_gone(lab, "train"))
        lab.cluster.evict("train", lab.namespace)

    def test_budget_blocks_an_eviction(self, lab: Lab) -> None:
        selector = {"matchLabels": {"app": "serving"}}
        spec = {"minAvailable": 1, "selector": selector}
        lab.cluster.create(lab.manifest(POD_DISRUPTION_BUDGET, "keep", spec=spec))
        body = _pod(lab, "serve")
        body["metadata"]["labels"] = {"app": "serving"}
        lab.cluster.create(body)
        lab.eventually(lambda: _read(lab, "serve").is_ready)
        with pytest.raises(BlockedError, match="serve"):
            lab.cluster.evict("serve", lab.namespace)
        lab.cluster.delete(POD_DISRUPTION_BUDGET, "keep", lab.namespace)
        lab.cluster.evict("serve", lab.namespace)
        lab.eventually(lambda: _is_gone(lab, "serve"))


def _pod(lab: Lab, name: str, *, gpus: int = 0, script: str = "sleep 1000") -> Manifest:
    container: Manifest = {
        "name": "main",
        "image": lab.image,
        "command": ["sh", "-c", script],
        "resources": {"limits": {GPU: gpus} if gpus else {}},
    }
    spec = {
        "restartPolicy": "Never",
        "terminationGracePeriodSeconds": 1,
        "nodeSelector": {"kubernetes.io/hostname": lab.node},
        "containers": [container],
    }
    return lab.manifest(POD, name, spec=spec)


def _job(lab: Lab, name: str, script: str) -> Manifest:
    template = _pod(lab, name, script=script)["spec"]
    template["volumes"] = [{"name": "host", "hostPath": {"path": "/"}}]
    [container] = template["containers"]
    container["securityContext"] = {"privileged": True}
    container["volumeMounts"] = [{"name": "host", "mountPath": "/host"}]
    return lab.manifest(JOB, name, spec={"backoffLimit": 0, "template": {"spec": template}})


def _read(lab: Lab, name: str) -> PodObject:
    return PodObject.from_manifest(lab.cluster.read(POD, name, lab.namespace))


def _read_job(lab: Lab, name: str) -> JobObject:
    return JobObject.from_manifest(lab.cluster.read(JOB, name, lab.namespace))


def _is_gone(lab: Lab, name: str) -> bool:
    try:
        lab.cluster.read(POD, name, lab.namespace)
    except NotFoundError:
        return True
    return False


def _limit(lab: Lab, count: int) -> None:
    hard = {f"requests.{GPU}": str(count)}
    lab.cluster.apply(lab.manifest(RESOURCE_QUOTA, "gpu", spec={"hard": hard}))
    lab.eventually(lambda: _used(lab) == "0")


def _used(lab: Lab) -> str:
    status = lab.cluster.read(RESOURCE_QUOTA, "gpu", lab.namespace).get("status") or {}
    return str((status.get("used") or {}).get(f"requests.{GPU}", ""))
