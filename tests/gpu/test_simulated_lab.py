"""The lab of the demo: what stands in it, what runs on it, and that it is quick."""

import os
import re
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from django.conf import settings

from gpu.adapters.simulated import SimulatedCluster, build_lab
from gpu.adapters.simulated.installation import LabNode, hardware_of
from gpu.adapters.simulated.lab import NODES
from gpu.adapters.simulated.plugin import WHOLE, feature_labels
from gpu.adapters.simulated.plugin_config import NOT_SHARED, PluginConfig
from gpu.adapters.simulated.programs import nvidia_smi_command
from gpu.adapters.smi import run
from gpu.executors.probing import read_probe
from gpu.executors.scripts import probe_script
from gpu.objects import NodeObject, PodObject
from gpu.planning.catalogue import find_table
from gpu.planning.observed import ObservedNode
from gpu.planning.resources import differences, node_resources
from gpu.ports import EVENT, JOB, NODE, POD, POD_DISRUPTION_BUDGET, Scope
from tests.gpu.simulation import SPACE, Simulation

FIXTURES = Path(__file__).parents[1] / "fixtures" / "h200"
FREE_H200 = 2


@pytest.fixture
def lab(tmp_path: Path) -> Simulation:
    return Simulation.build(tmp_path, pace=0.0)


def _observed(lab: Simulation, node: str) -> ObservedNode:
    lab.run_on_host(f"probe-{node}", probe_script(settings.NVIDIA_SMI), node=node)
    return read_probe(lab.cluster.read_log(f"probe-{node}", SPACE))


def _smi(lab: Simulation, *words: str) -> str:
    code, text = run.answer(list(words), str(lab.cluster.files.of("gpu-h200-01")), None)
    assert code == 0
    return text


def _fixture(heading: str) -> str:
    text = (FIXTURES / "smi_mig.txt").read_text()
    start = text.index(f"+ nvidia-smi mig {heading}\n")
    lines = text[start:].splitlines()[1:]
    end = next(n for n, line in enumerate(lines) if not re.match(r"[|+]-|\||GPU", line))
    return "\n".join(lines[:end]) + "\n"


def test_lab_has_nodes_of_many_models(lab: Simulation) -> None:
    nodes = [NodeObject.from_manifest(item) for item in lab.cluster.list(NODE).items]
    assert sum(int(node.labels["nvidia.com/gpu.count"]) for node in nodes) == 44
    assert {node.labels["nvidia.com/gpu.product"] for node in nodes} == {
        "NVIDIA-A100-SXM4-40GB",
        "NVIDIA-A100-SXM4-80GB",
        "NVIDIA-A30",
        "NVIDIA-H100-80GB-HBM3",
        "NVIDIA-H200",
        "NVIDIA-L40S-SHARED",
        "NVIDIA-RTX-PRO-6000-Blackwell-Server-Edition",
    }
    for node in nodes:
        assert node.is_ready
        assert node.is_schedulable
        assert node.cpu_milli >= 64_000
        assert node.memory_bytes >= 500 * 2**30
        assert node.storage_bytes > node.memory_bytes


@pytest.mark.parametrize("node", NODES, ids=lambda node: node.name)
def test_probe_reads_what_was_installed(lab: Simulation, node: LabNode) -> None:
    observed = _observed(lab, node.name)
    assert [gpu.is_mig_enabled for gpu in observed.gpus] == [
        layout is not None for layout in node.layouts
    ]
    for gpu, layout in zip(observed.gpus, node.layouts, strict=True):
        cuts = [(name.split(".")[0], start) for name, start in gpu.layout]
        assert cuts == sorted(layout or (), key=lambda cut: cut[1])
        assert all(instance.mig_uuid for instance in gpu.instances)
        assert (gpu.table is None) == (node.gpu == "NVIDIA L40S")
    setups = [gpu.setup(replicas=4 if node.config else 1) for gpu in observed.gpus]
    offered = dict(lab.node(node.name).allocatable)
    assert differences(node_resources(setups), offered) == {}


@pytest.mark.parametrize("name", ["NVIDIA A100-SXM4-40GB", "NVIDIA A30", "NVIDIA H100 80GB HBM3"])
def test_driver_tables_are_the_catalogues(lab: Simulation, name: str) -> None:
    node = next(node for node in NODES if node.gpu == name)
    table = next(gpu.table for gpu in _observed(lab, node.name).gpus if gpu.table)
    known = find_table(name)
    assert {(p.name, p.gi_profile_id, p.placements) for p in table.profiles} == {
        (p.name, p.gi_profile_id, p.placements) for p in known.profiles
    }


def test_h200_prints_the_tables_that_a_real_one_printed(lab: Simulation) -> None:
    for heading in ("-lgip", "-lgipp"):
        expected = _fixture(heading).replace("|   0  MIG", f"|   {FREE_H200}  MIG")
        expected = expected.replace("GPU  0 Profile", f"GPU  {FREE_H200} Profile")
        assert _smi(lab, "mig", "-i", str(FREE_H200), heading) == expected


def test_h200_answers_queries_as_a_real_one_did(lab: Simulation) -> None:
    real = (FIXTURES / "smi_query.csv").read_text().splitlines()
    columns = [name.split(" [")[0] for name in real[0].split(", ")]
    asked = [name for name in columns if name in {"name", "memory.total", "driver_version"}]
    assert asked
    said = _smi(lab, f"--query-gpu={','.join(asked)}", "--format=csv", "-i", str(FREE_H200))
    values = dict(zip(columns, real[1].split(", "), strict=True))
    assert said.splitlines()[1].split(", ") == [values[name] for name in asked]


@pytest.mark.parametrize(
    ("fixture", "config"),
    [
        ("gfd_none.txt", NOT_SHARED),
        ("gfd_ts.txt", PluginConfig("time-slicing", {WHOLE: 4})),
        ("gfd_ren.txt", PluginConfig("time-slicing", {WHOLE: 4}, is_renamed=True)),
    ],
    ids=["whole", "shared", "renamed"],
)
def test_labels_are_those_of_gpu_feature_discovery(fixture: str, config: PluginConfig) -> None:
    lines = (FIXTURES / fixture).read_text().splitlines()
    real = dict(line.split("=", 1) for line in lines)
    node = LabNode("one", "NVIDIA H200", (None,), 8, 64)
    labels = feature_labels(hardware_of(node), config)
    # A node of the lab has MIG strategy mixed, and the label by which the plugin finds it.
    more = {"nvidia.com/mig.strategy": "mixed", "nvidia.com/gpu.present": "true"}
    assert labels == real | more


def test_mig_labels_are_complete(lab: Simulation) -> None:
    labels = lab.node("gpu-a100-01").labels
    prefix = "nvidia.com/mig-3g.20gb."
    found = {key.removeprefix(prefix): labels[key] for key in labels if key.startswith(prefix)}
    assert found == {
        "count": "3",
        "engines.copy": "3",
        "engines.decoder": "2",
        "engines.encoder": "0",
        "engines.jpeg": "0",
        "engines.ofa": "0",
        "memory": "19968",
        "multiprocessors": "42",
        "product": "NVIDIA-A100-SXM4-40GB-MIG-3g.20gb",
        "replicas": "1",
        "sharing-strategy": "none",
        "slices.ci": "3",
        "slices.gi": "3",
    }


def test_tenants_pods_run_on_their_devices(lab: Simulation) -> None:
    pods = [PodObject.from_manifest(item) for item in lab.cluster.list(POD).items]
    tenants = [pod for pod in pods if pod.namespace.startswith("team-")]
    running = [pod for pod in tenants if pod.phase == "Running"]
    assert len(running) == 29
    held = [device for pod in running for ids in (pod.devices or {}).values() for device in ids]
    assert len(held) == len(set(held)) == 29
    assert {pod.owner_kind for pod in running} == {"Job", "ReplicaSet", "StatefulSet", ""}
    assert {pod.namespace for pod in running} == {
        "team-vision",
        "team-nlp",
        "team-bio",
        "team-audio",
    }
    created = [pod.created_at for pod in running]
    assert len(set(created)) > 20


def test_a_few_pods_wait_each_for_its_own_reason(lab: Simulation) -> None:
    pods = [PodObject.from_manifest(item) for item in lab.cluster.list(POD).items]
    waiting = {pod.name: pod.message for pod in pods if pod.phase == "Pending"}
    assert set(waiting) == {"md-ensemble-0", "ocr-batch-5", "voice-clone-dev"}
    assert "8 Insufficient nvidia.com/mig-1g.12gb" in waiting["ocr-batch-5"]
    assert "1 Insufficient nvidia.com/gpu, 7 node(s) didn't match" in waiting["md-ensemble-0"]
    assert "8 node(s) didn't match Pod's node affinity/selector" in waiting["voice-clone-dev"]
    events = lab.cluster.list(EVENT, Scope(field_selector="reason=FailedScheduling")).items
    assert {event["involvedObject"]["name"] for event in events} == set(waiting)


def test_budget_and_jobs_of_tenants(lab: Simulation) -> None:
    budget = lab.cluster.read(POD_DISRUPTION_BUDGET, "tts", "team-audio")
    assert budget["status"]["disruptionsAllowed"] == 0
    jobs = {item["metadata"]["name"]: item for item in lab.cluster.list(JOB).items}
    assert jobs["docking"]["status"]["active"] == 2
    assert all(not item["status"].get("conditions") for item in jobs.values())


def test_lab_is_the_same_every_time(tmp_path: Path) -> None:
    labs = [Simulation.build(tmp_path / name).cluster for name in ("one", "two")]
    for node in NODES:
        states = [cluster.files.state(node.name) for cluster in labs]
        assert states[0] == states[1]
    uuids = [gpu["uuid"] for node in NODES for gpu in hardware_of(node)["gpus"]]
    assert len(uuids) == len(set(uuids)) == 44


def test_building_again_changes_nothing(lab: Simulation) -> None:
    before = lab.cluster.list(POD)
    assert not build_lab(lab.cluster)
    again = SimulatedCluster(lab.cluster.store.path, clock=lab.clock)
    assert not build_lab(again)
    assert again.list(POD) == before


def _best_s(do: Callable[[], object]) -> float:
    times = []
    for _time in range(30):
        started = time.perf_counter()
        do()
        times.append(time.perf_counter() - started)
    return min(times)


def test_lists_are_quick(lab: Simulation) -> None:
    assert _best_s(lambda: lab.cluster.list(POD)) < 0.020
    assert _best_s(lambda: lab.cluster.list(NODE)) < 0.020


def test_nvidia_smi_starts_quickly(lab: Simulation) -> None:
    folder = lab.cluster.files.of("gpu-a100-01")
    environment = {"SIMULATED_GPUS": str(folder), "PATH": os.defpath}

    def call() -> None:
        command = [*nvidia_smi_command(sys.executable), "-L"]
        subprocess.run(command, env=environment, stdout=subprocess.DEVNULL, check=True)  # noqa: S603

    assert _best_s(call) < 0.040
