"""What the simulated cluster does by itself, by a clock of the test's own."""

from pathlib import Path

import pytest

from gpu.objects import PodObject
from gpu.ports import EVENT, JOB, NODE, POD, RESOURCE_QUOTA, Scope, UnreachableError
from tests.gpu.simulation import (
    GPU,
    NODE_NAME,
    PLUGIN,
    SPACE,
    START,
    Simulation,
    job,
    manifest,
    pod,
)

MIG = "nvidia.com/mig-1g.18gb"


@pytest.fixture
def lab(tmp_path: Path) -> Simulation:
    return Simulation.build(tmp_path)


def test_delays_can_be_watched(lab: Simulation) -> None:
    lab.cluster.create(job("look", "chroot /host nvidia-smi -L"))
    [seen] = lab.pods()
    assert (seen.phase, seen.message) == ("Pending", "ContainerCreating")
    with pytest.raises(UnreachableError, match="ContainerCreating"):
        lab.cluster.read_log(seen.name, SPACE)
    lab.wait(0.9)
    assert lab.pods()[0].phase == "Running"
    assert not lab.job("look").is_complete
    lab.wait(0.7)
    assert lab.job("look").is_complete
    assert lab.said("look") == ["CompletionsReached", "SuccessfulCreate"]
    assert lab.said(seen.name) == ["Scheduled", "Started"]


def test_pace_scales_delays(tmp_path: Path) -> None:
    lab = Simulation.build(tmp_path, pace=10.0)
    lab.cluster.create(pod("train"))
    lab.wait(7)
    assert lab.pod("train").phase == "Pending"
    lab.wait(2)
    assert lab.pod("train").phase == "Running"


def test_what_was_due_while_nobody_looked_happens_at_its_time(lab: Simulation) -> None:
    body = pod("short")
    body["metadata"]["annotations"] = {"slicedesk.io/simulated-runtime-seconds": "60"}
    lab.cluster.create(body)
    lab.wait(3600)
    status = lab.cluster.read(POD, "short", SPACE)["status"]
    [container] = status["containerStatuses"]
    ended = PodObject.from_manifest({**body, "status": status})
    assert ended.phase == "Succeeded"
    finished = container["state"]["terminated"]["finishedAt"]
    assert finished == "2027-01-15T08:01:00Z"  # START, the start's delay, and a minute
    assert START == 1_800_000_000.0


def test_scheduler_says_why_a_pod_waits(lab: Simulation) -> None:
    lab.cluster.create(pod("odd", node="", limits={"nvidia.com/mig-9g.1gb": 1}))
    sentence = (
        "0/8 nodes are available: 8 Insufficient nvidia.com/mig-9g.1gb. preemption: 0/8 nodes are"
        " available: 8 Preemption is not helpful for scheduling."
    )
    assert lab.pod("odd").message == sentence
    [event] = lab.cluster.list(EVENT, Scope(SPACE, "", "involvedObject.name=odd")).items
    assert (event["reason"], event["message"], event["count"]) == ("FailedScheduling", sentence, 1)
    assert event["involvedObject"]["uid"] == lab.pod("odd").uid


def test_scheduler_counts_each_reason(lab: Simulation) -> None:
    lab.cluster.patch(NODE, NODE_NAME, {"spec": {"unschedulable": True}})
    taint = {"key": "maintenance", "value": "disk", "effect": "NoSchedule"}
    lab.cluster.patch(NODE, "gpu-a30-01", {"spec": {"taints": [taint]}})
    soft = {"key": "busy", "effect": "PreferNoSchedule"}
    lab.cluster.patch(NODE, "gpu-rtx-01", {"spec": {"taints": [soft]}})
    lab.cluster.create(pod("huge", node="", limits={"memory": "99Ti", GPU: 20}))
    assert lab.pod("huge").message.startswith(
        "0/8 nodes are available: 1 node(s) had untolerated taint {maintenance: disk},"
        " 1 node(s) were unschedulable, 6 Insufficient memory, 6 Insufficient nvidia.com/gpu."
    )


def test_pod_that_waits_starts_when_there_is_room(lab: Simulation) -> None:
    for name in ("one", "two", "three"):
        lab.cluster.create(pod(name, limits={GPU: 1}))
    lab.wait(1)
    phases = {item.name: item.phase for item in lab.pods()}
    waiting = [name for name, phase in phases.items() if phase == "Pending"]
    assert len(waiting) == 2  # one of the node's two is a tenant's already
    lab.cluster.delete(POD, next(n for n in phases if n not in waiting), SPACE)
    lab.wait(1.1)
    lab.wait(1)
    assert sorted(item.phase for item in lab.pods()) == ["Pending", "Running"]


def test_pod_past_the_scheduler_that_does_not_fit_fails(lab: Simulation) -> None:
    body = pod("pushy", node="", limits={GPU: 5})
    body["spec"]["nodeName"] = NODE_NAME
    lab.cluster.create(body)
    lab.wait(1)
    assert lab.cluster.read(POD, "pushy", SPACE)["status"]["reason"] == f"OutOf{GPU}"
    assert "requested: 5, used: 1, capacity: 2" in lab.pod("pushy").message


def test_pod_scheduled_just_before_the_plugin_went_is_turned_away(lab: Simulation) -> None:
    lab.cluster.create(pod("early", limits={GPU: 1}))
    plugin = lab.plugin_pod()
    lab.cluster.delete(POD, plugin.name, plugin.namespace, grace_s=0)
    lab.wait(1)
    status = lab.cluster.read(POD, "early", SPACE)["status"]
    assert (status["phase"], status["reason"]) == ("Failed", "UnexpectedAdmissionError")
    assert status["message"] == (
        "Pod was rejected: Allocate failed due to requested number of devices unavailable for"
        " nvidia.com/gpu. Requested: 1, Available: 0, which is unexpected"
    )


def test_devices_are_distinct_and_shares_are_spread(lab: Simulation) -> None:
    node = "gpu-l40s-01"
    for number in range(3):
        lab.cluster.create(pod(f"share-{number}", node=node, limits={GPU: 1}))
    lab.wait(1)
    devices = [
        device
        for item in lab.cluster.list(POD, Scope(field_selector=f"spec.nodeName={node}")).items
        for device in (PodObject.from_manifest(item).devices or {}).get(GPU, ())
    ]
    assert len(devices) == len(set(devices)) == 8
    sharers = [device.split("::")[0] for device in devices]
    assert sorted(sharers.count(gpu) for gpu in set(sharers)) == [2, 2, 2, 2]


def test_pod_ends_at_its_deadline(lab: Simulation) -> None:
    body = pod("train")
    body["spec"]["activeDeadlineSeconds"] = 100
    lab.cluster.create(body)
    lab.wait(99)
    assert lab.pod("train").phase == "Running"
    lab.wait(2)
    assert lab.cluster.read(POD, "train", SPACE)["status"]["reason"] == "DeadlineExceeded"


def test_job_ends_at_its_deadline_and_is_forgotten_later(lab: Simulation) -> None:
    body = job("work", "sleep 1000", activeDeadlineSeconds=100, ttlSecondsAfterFinished=3600)
    lab.cluster.create(body)
    lab.wait(101)
    assert lab.job("work").message == "Job was active longer than specified deadline"
    lab.wait(2)
    assert lab.pods() == []
    lab.wait(3600)
    assert not lab.exists(JOB, "work")


def test_job_tries_again_up_to_its_limit(lab: Simulation) -> None:
    lab.cluster.create(job("bad", "exit 3", backoffLimit=1))
    lab.wait(2)
    assert [item.phase for item in lab.pods()] == ["Failed"]
    assert not lab.job("bad").is_failed
    lab.wait(10)
    lab.wait(2)
    assert [item.phase for item in lab.pods()] == ["Failed", "Failed"]
    assert lab.job("bad").message == "Job has reached the specified backoff limit"
    assert lab.cluster.read(JOB, "bad", SPACE)["status"]["failed"] == 2


def test_job_whose_only_pod_is_deleted_has_failed(lab: Simulation) -> None:
    lab.cluster.create(job("work", "sleep 1000"))
    lab.wait(2)
    lab.cluster.delete(POD, lab.pods()[0].name, SPACE)
    lab.wait(2)
    assert lab.job("work").is_failed


def test_parallel_job_completes_when_all_have(lab: Simulation) -> None:
    lab.cluster.create(job("many", "echo done", completions=3, parallelism=2))
    assert len(lab.pods()) == 2
    lab.wait(2)
    lab.wait(2)
    assert lab.job("many").is_complete
    assert [item.phase for item in lab.pods()] == ["Succeeded"] * 3


def test_container_that_crashes_is_started_again_with_patience(lab: Simulation) -> None:
    lab.cluster.create(pod("flaky", script="echo run; exit 1", policy="OnFailure"))
    lab.wait(2)
    seen = lab.pod("flaky")
    assert (seen.phase, seen.restart_count, seen.is_ready) == ("Running", 1, False)
    assert lab.cluster.read_log("flaky", SPACE) == "run\n"
    assert "BackOff" in lab.said("flaky")
    lab.wait(10)
    lab.wait(1)
    assert lab.pod("flaky").restart_count == 2
    lab.wait(10)
    assert lab.pod("flaky").restart_count == 2


@pytest.mark.parametrize(
    ("script", "phase", "after_s"),
    [
        ("sleep 50", "Succeeded", 51),
        ("exit 1; sleep 50", "Succeeded", 52),
        ("exit 1 && sleep 50", "Failed", 2),
        ("echo hello", "Succeeded", 2),
    ],
    ids=["only sleeps", "sleeps anyway", "sleeps if well", "does not sleep"],
)
def test_sleep_at_the_end_is_as_long_as_it_says(
    tmp_path: Path, script: str, phase: str, after_s: float
) -> None:
    lab = Simulation.build(tmp_path)
    lab.cluster.create(pod("p", script=script.replace("exit 1", "false")))
    lab.wait(1)
    lab.wait(after_s - 2)
    assert lab.pod("p").phase == "Running" or after_s == 2
    lab.wait(2)
    assert lab.pod("p").phase == phase


def test_container_for_ever_runs_for_ever(lab: Simulation) -> None:
    lab.cluster.create(pod("serve", script="nvidia-smi -L; sleep infinity"))
    lab.wait(1)
    lab.wait(1e7)
    assert lab.pod("serve").phase == "Running"


def test_script_sees_its_own_environment_and_nothing_of_ours(
    lab: Simulation, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DATABASE_URL", "postgres://secret")
    body = pod("look", script="env; pwd; ls -A")
    body["spec"]["containers"][0]["env"] = [{"name": "SEED", "value": "7"}]
    lab.cluster.create(body)
    lab.wait(1)
    log = lab.cluster.read_log("look", SPACE)
    assert "SEED=7" in log
    assert "DATABASE_URL" not in log
    assert log.splitlines()[-1].endswith("/home")


def test_container_that_asks_for_nothing_sees_nothing(lab: Simulation) -> None:
    body = pod("blind", script="nvidia-smi -L")
    body["spec"]["containers"][0]["env"] = [{"name": "NVIDIA_VISIBLE_DEVICES", "value": "all"}]
    lab.cluster.create(body)
    lab.wait(1)
    assert lab.cluster.read_log("blind", SPACE) == "No devices were found\n"


def test_plugin_lists_devices_only_when_it_starts(lab: Simulation) -> None:
    lab.run_on_host("cut", "chroot /host nvidia-smi mig -i 1 -cgi 19:0,19:1 -C")
    lab.wait(3)
    assert "Successfully created GPU instance" in lab.cluster.read_log("cut", SPACE)
    before = lab.node().allocatable[MIG]
    lab.wait(3600)
    assert lab.node().allocatable[MIG] == before == 2
    lab.restart_plugin()
    lab.wait(1.1)
    assert lab.node().allocatable[MIG] == 0
    assert lab.node().capacity[MIG] == 2
    lab.wait(3)
    assert lab.node().allocatable[MIG] == 4


def test_resource_that_has_gone_stays_in_capacity_for_five_minutes(lab: Simulation) -> None:
    lab.cluster.delete(POD, "longcontext-eval", "team-nlp", grace_s=0)
    destroy = "chroot /host nvidia-smi mig -i 0 -dci && chroot /host nvidia-smi mig -i 0 -dgi"
    lab.run_on_host("clear", destroy)
    lab.wait(3)
    lab.restart_plugin()
    lab.wait(5)
    assert (lab.node().allocatable[MIG], lab.node().capacity[MIG]) == (0, 2)
    lab.wait(300)
    assert (lab.node().allocatable[MIG], lab.node().capacity[MIG]) == (0, 0)


def test_labels_follow_within_a_minute_and_foreign_ones_stay(lab: Simulation) -> None:
    count = "nvidia.com/mig-1g.18gb.count"
    mine = {"nvidia.com/device-plugin.config": "default", "rack": "7"}
    lab.cluster.patch(NODE, NODE_NAME, {"metadata": {"labels": mine}})
    assert lab.node().labels[count] == "2"
    lab.run_on_host("cut", "chroot /host nvidia-smi mig -i 1 -cgi 19:0 -C")
    lab.wait(1)
    assert lab.node().labels[count] == "2"
    lab.wait(61)
    assert lab.node().labels[count] == "3"
    assert mine.items() <= lab.node().labels.items()


def test_device_that_a_program_holds_cannot_be_destroyed(lab: Simulation) -> None:
    lab.run_on_host("clear", "chroot /host nvidia-smi mig -i 0 -dci")
    lab.wait(3)
    assert "In use by another client" in lab.cluster.read_log("clear", SPACE)


def test_deleted_pod_takes_a_moment_and_is_made_anew(lab: Simulation) -> None:
    space, name = "team-vision", "annotate-5c9d7-x2x8p"
    lab.cluster.evict(name, space)
    assert lab.pod(name, space).is_deleting
    lab.wait(1.1)
    assert not lab.exists(POD, name, space)
    lab.wait(1)
    [fresh] = [
        item
        for item in lab.pods(space)
        if item.owner_name == "annotate-5c9d7" and item.name != "annotate-5c9d7-k4m2q"
    ]
    assert (fresh.phase, fresh.node[:-1]) == ("Running", "gpu-a100-0")


def test_stateful_pod_keeps_its_name_and_a_jobs_pod_does_not(lab: Simulation) -> None:
    old = lab.pod("notebook-noor-0", "team-nlp")
    lab.cluster.evict("notebook-noor-0", "team-nlp")
    lab.cluster.evict("tokenize-b41", "team-nlp")
    lab.wait(1.1)
    lab.wait(15)
    lab.wait(1)
    assert lab.pod("notebook-noor-0", "team-nlp").uid != old.uid
    [again] = [item for item in lab.pods("team-nlp") if item.owner_name == "tokenize"]
    assert (again.owner_kind, again.phase, again.name == "tokenize-b41") == (
        "Job",
        "Running",
        False,
    )


def test_pod_that_its_quota_forbids_comes_back_when_it_may(lab: Simulation) -> None:
    space = "team-vision"
    quota = manifest(RESOURCE_QUOTA, "team", spec={"hard": {"pods": "1"}})
    quota["metadata"]["namespace"] = space
    lab.cluster.apply(quota)
    lab.wait(1)
    lab.cluster.evict("labeler-ui-0", space)
    lab.wait(1.1)
    assert "FailedCreate" in lab.said("labeler-ui", space)
    lab.wait(30)
    assert not lab.exists(POD, "labeler-ui-0", space)
    lab.cluster.delete(RESOURCE_QUOTA, "team", space)
    lab.wait(11)
    lab.wait(1)
    assert lab.pod("labeler-ui-0", space).phase == "Running"


def test_events_are_forgotten_after_an_hour(lab: Simulation) -> None:
    lab.cluster.create(pod("train"))
    lab.wait(2)
    assert lab.said("train") == ["Scheduled", "Started"]
    lab.wait(4300)
    lab.cluster.create(pod("next"))
    assert lab.said("train") == []


def test_plugin_is_one_pod_on_every_gpu_node(lab: Simulation) -> None:
    lab.cluster.create(
        {"apiVersion": "v1", "kind": "Node", "metadata": {"name": "cpu-1"}, "spec": {}}
    )
    pods = lab.cluster.list(POD, Scope(label_selector=PLUGIN)).items
    assert sorted(item["spec"]["nodeName"] for item in pods) == sorted(
        name for name in (i["metadata"]["name"] for i in lab.cluster.list(NODE).items)
        if name != "cpu-1"
    )  # fmt: skip


def test_deleted_node_takes_its_pods_along(lab: Simulation) -> None:
    lab.cluster.delete(NODE, "gpu-a30-01")
    lab.wait(1)
    scope = Scope(field_selector="spec.nodeName=gpu-a30-01")
    assert lab.cluster.list(POD, scope).items == ()
