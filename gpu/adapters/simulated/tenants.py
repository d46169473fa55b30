"""The Pods of tenants that run in the lab, with owners as they are in real clusters."""

import copy
from dataclasses import dataclass
from typing import Any

from gpu.adapters.simulated.world import stamp

_HOUR = 3600.0


@dataclass(frozen=True, slots=True)
class TenantPod:
    """A Pod on a node: of a MIG family such as `3g`, or with none of a whole GPU or a share."""

    namespace: str
    name: str
    node: str
    family: str
    owner: str
    hours: float
    app: str = ""


TENANT_PODS = (
    TenantPod("team-vision", "train-seg-7f", "gpu-a100-01", "3g", "Job", 19.0),
    TenantPod("team-vision", "eval-2", "gpu-a100-01", "2g", "", 2.2),
    TenantPod("team-vision", "annotate-5c9d7-x2x8p", "gpu-a100-01", "1g", "ReplicaSet", 130.0),
    TenantPod("team-vision", "annotate-5c9d7-k4m2q", "gpu-a100-01", "1g", "ReplicaSet", 130.0),
    TenantPod("team-nlp", "notebook-noor-0", "gpu-a100-01", "1g", "StatefulSet", 52.0),
    TenantPod("team-nlp", "tokenize-b41", "gpu-a100-01", "4g", "Job", 7.5),
    TenantPod("team-bio", "fold-batch-0931", "gpu-a100-02", "", "Job", 31.0),
    TenantPod("team-bio", "fold-batch-0932", "gpu-a100-02", "", "Job", 30.5),
    TenantPod("team-bio", "msa-cache-0", "gpu-a100-02", "1g", "StatefulSet", 400.0),
    TenantPod("team-vision", "train-depth-a3", "gpu-a100-02", "3g", "Job", 5.0),
    TenantPod("team-audio", "asr-eval-14", "gpu-a100-02", "2g", "Job", 1.1),
    TenantPod("team-audio", "vocoder-dev", "gpu-a100-02", "1g", "", 74.0),
    TenantPod("team-nlp", "finetune-13b-r2", "gpu-a100-03", "4g", "Job", 44.0),
    TenantPod("team-nlp", "rag-index-6d8f9-mm2vd", "gpu-a100-03", "2g", "ReplicaSet", 210.0),
    TenantPod("team-nlp", "pretrain-stage2-0", "gpu-h100-01", "", "StatefulSet", 96.0),
    TenantPod("team-nlp", "pretrain-stage2-1", "gpu-h100-01", "", "StatefulSet", 96.0),
    TenantPod("team-vision", "render-nerf-4", "gpu-h100-01", "3g", "Job", 12.0),
    TenantPod("team-bio", "docking-77", "gpu-h100-01", "1g", "Job", 3.4),
    TenantPod("team-bio", "docking-78", "gpu-h100-01", "1g", "Job", 3.4),
    TenantPod("team-nlp", "longcontext-eval", "gpu-h200-01", "3g", "", 8.0),
    TenantPod("team-bio", "cryoem-refine-2", "gpu-h200-01", "", "Job", 27.0),
    TenantPod("team-audio", "denoise-train-9", "gpu-a30-01", "2g", "Job", 16.0),
    TenantPod("team-audio", "tts-demo-7b4c8-zq9wn", "gpu-a30-01", "1g", "ReplicaSet", 300.0, "tts"),
    TenantPod("team-vision", "labeler-ui-0", "gpu-l40s-01", "", "StatefulSet", 500.0),
    TenantPod("team-nlp", "chat-dev-f9c6b-2k7tr", "gpu-l40s-01", "", "ReplicaSet", 60.0),
    TenantPod("team-audio", "notebook-tomo-0", "gpu-l40s-01", "", "StatefulSet", 21.0),
    TenantPod("team-bio", "viz-ligand", "gpu-l40s-01", "", "", 4.0),
    TenantPod("team-vision", "notebook-ada-0", "gpu-l40s-01", "", "StatefulSet", 33.0),
    TenantPod("team-vision", "diffusion-lora-3", "gpu-rtx-01", "2g", "Job", 9.0),
    TenantPod("monitoring", "gpu-burn-check", "gpu-rtx-01", "1g", "", 0.4),
)


def pod_body(pod: TenantPod, now: float, resource: str) -> dict[str, Any]:
    """Return the Pod as its namespace has it, bound to its node."""
    labels = {"app": pod.app or pod.name.split("-")[0]}
    meta: dict[str, Any] = {
        "name": pod.name,
        "namespace": pod.namespace,
        "labels": labels,
        "creationTimestamp": stamp(now - pod.hours * _HOUR),
    }
    if pod.owner:
        owner = {"apiVersion": "v1", "kind": pod.owner, "name": _owner_name(pod), "uid": pod.name}
        meta["ownerReferences"] = [{**owner, "controller": True}]
    amounts = {resource: "1", "cpu": "2", "memory": "8Gi"}
    container = {
        "name": "main",
        "image": "registry.example/team/workload:1",
        "command": ["python", "main.py"],
        "resources": {"limits": dict(amounts), "requests": dict(amounts)},
    }
    spec: dict[str, Any] = {
        "nodeName": pod.node,
        "restartPolicy": "Never" if pod.owner in {"", "Job"} else "Always",
        "containers": [container],
    }
    if pod.owner in {"", "Job"}:
        spec["volumes"] = [{"name": "scratch", "emptyDir": {}}]
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": meta,
        "spec": spec,
        "status": {"phase": "Pending"},
        "simulated": {
            "start_at": now,
            "respawns": pod.owner in {"ReplicaSet", "StatefulSet", "Job"},
        },
    }


def budget(now: float) -> dict[str, Any]:
    """Return the disruption budget that keeps one of the lab's services up."""
    return {
        "apiVersion": "policy/v1",
        "kind": "PodDisruptionBudget",
        "metadata": {
            "name": "tts",
            "namespace": "team-audio",
            "creationTimestamp": stamp(now - 300 * _HOUR),
        },
        "spec": copy.deepcopy({"minAvailable": 1, "selector": {"matchLabels": {"app": "tts"}}}),
    }


def _owner_name(pod: TenantPod) -> str:
    return pod.name.rpartition("-")[0]
