"""The Pods of tenants in the lab, with owners as they are in real clusters; a few of them wait."""

import uuid
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from gpu.adapters.simulated.world import stamp

_HOUR = 3600.0
_KINDS = {"Job": "batch/v1", "ReplicaSet": "apps/v1", "StatefulSet": "apps/v1"}


@dataclass(frozen=True, slots=True)
class Place:
    """What a node has for tenants: its product label, and resource names by MIG family."""

    product: str
    resources: Mapping[str, str]


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


@dataclass(frozen=True, slots=True)
class WaitingPod:
    """A Pod that no node takes, for a reason that people run into."""

    namespace: str
    name: str
    owner: str
    hours: float
    resources: Mapping[str, str]
    selector: Mapping[str, str] = field(default_factory=dict)


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
WAITING_PODS = (
    WaitingPod(
        "team-bio",
        "md-ensemble-0",
        "StatefulSet",
        6.0,
        {"nvidia.com/gpu": "8"},
        {"nvidia.com/gpu.product": "NVIDIA-H100-80GB-HBM3"},
    ),
    WaitingPod("team-vision", "ocr-batch-5", "Job", 0.7, {"nvidia.com/mig-1g.12gb": "1"}),
    WaitingPod(
        "team-audio",
        "voice-clone-dev",
        "",
        1.6,
        {"nvidia.com/gpu": "1"},
        {"nvidia.com/gpu.product": "NVIDIA-A100-PCIE-40GB"},
    ),
)
NAMESPACES = tuple(sorted({pod.namespace for pod in TENANT_PODS}))


def tenant_bodies(places: Mapping[str, Place], now: float) -> Iterator[dict[str, Any]]:
    """Yield all that tenants have in the lab; `places` are what the nodes have, by name."""
    pods = [_running(pod, places[pod.node], now) for pod in TENANT_PODS]
    pods += [_waiting(pod, now) for pod in WAITING_PODS]
    yield from _jobs(pods)
    yield from pods
    yield _budget(now)


def _running(pod: TenantPod, place: Place, now: float) -> dict[str, Any]:
    amounts = {place.resources[pod.family]: "1"}
    body = _pod(pod, amounts, now)
    body["metadata"]["labels"] = {"app": pod.app or pod.name.split("-")[0]}
    body["spec"] |= {
        "nodeName": pod.node,
        "nodeSelector": {"nvidia.com/gpu.product": place.product},
    }
    body["simulated"]["was_scheduled"] = True
    return body


def _waiting(pod: WaitingPod, now: float) -> dict[str, Any]:
    body = _pod(pod, pod.resources, now)
    if pod.selector:
        body["spec"]["nodeSelector"] = dict(pod.selector)
    return body


def _pod(pod: TenantPod | WaitingPod, resources: Mapping[str, str], now: float) -> dict[str, Any]:
    is_once = pod.owner in {"", "Job"}
    amounts = {**resources, "cpu": "1", "memory": "4Gi"}
    container = {
        "name": "main",
        "image": "registry.example/team/workload:1",
        "command": ["python", "main.py"],
        "resources": {"limits": dict(amounts), "requests": dict(amounts)},
    }
    meta: dict[str, Any] = {
        "name": pod.name,
        "namespace": pod.namespace,
        "labels": {"app": pod.name.split("-")[0]},
        "creationTimestamp": stamp(now - pod.hours * _HOUR),
    }
    if pod.owner:
        meta["ownerReferences"] = [_owner(pod)]
    spec: dict[str, Any] = {
        "restartPolicy": "Never" if is_once else "Always",
        "containers": [container],
    }
    if is_once:
        spec["volumes"] = [{"name": "scratch", "emptyDir": {}}]
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": meta,
        "spec": spec,
        "status": {"phase": "Pending"},
        "simulated": {"respawns": pod.owner in {"ReplicaSet", "StatefulSet"}},
    }


def _owner(pod: TenantPod | WaitingPod) -> dict[str, Any]:
    name = pod.name.rpartition("-")[0]
    uid = uuid.uuid5(uuid.NAMESPACE_DNS, f"{name}.{pod.namespace}.lab.slicedesk.test")
    return {
        "apiVersion": _KINDS[pod.owner],
        "kind": pod.owner,
        "name": name,
        "uid": str(uid),
        "controller": True,
    }


def _jobs(pods: list[dict[str, Any]]) -> Iterator[dict[str, Any]]:
    """Yield the Jobs that own Pods, and tie the Pods to them."""
    owned: dict[str, list[dict[str, Any]]] = {}
    for pod in pods:
        for owner in pod["metadata"].get("ownerReferences") or ():
            if owner["kind"] == "Job":
                owned.setdefault(owner["uid"], []).append(pod)
                pod["simulated"]["job"] = owner["uid"]
    for uid, mine in owned.items():
        meta, spec = mine[0]["metadata"], dict(mine[0]["spec"])
        spec.pop("nodeName", None)
        yield {
            "apiVersion": "batch/v1",
            "kind": "Job",
            "metadata": {
                "name": meta["ownerReferences"][0]["name"],
                "namespace": meta["namespace"],
                "uid": uid,
                "creationTimestamp": min(p["metadata"]["creationTimestamp"] for p in mine),
            },
            "spec": {
                "backoffLimit": 6,
                "completions": len(mine),
                "parallelism": len(mine),
                "template": {"metadata": {"labels": dict(meta["labels"])}, "spec": spec},
            },
            "simulated": {"made": len(mine)},
        }


def _budget(now: float) -> dict[str, Any]:
    """Return the disruption budget that keeps one of the lab's services up."""
    return {
        "apiVersion": "policy/v1",
        "kind": "PodDisruptionBudget",
        "metadata": {
            "name": "tts",
            "namespace": "team-audio",
            "creationTimestamp": stamp(now - 300 * _HOUR),
        },
        "spec": {"minAvailable": 1, "selector": {"matchLabels": {"app": "tts"}}},
    }
