"""What the cluster does by itself: controllers, scheduler, kubelets and plugins, as time passes.

Nothing runs in the background. Whoever calls the lab first lets everything happen that is due by
the clock; what is due later is kept with the objects, so that no process has to stay alive.
"""

import copy
from dataclasses import dataclass, field
from datetime import UTC, datetime

from gpu.adapters.simulated import kubelet, plugin, statuses
from gpu.adapters.simulated.admission import FINAL_PHASES, namespace_usage, quantity
from gpu.adapters.simulated.kubelet import NoDeviceError, Script
from gpu.adapters.simulated.plugin import NodeFiles
from gpu.adapters.simulated.scheduling import choose_node, pod_requests, used_on_nodes
from gpu.adapters.simulated.store import Transaction, hidden
from gpu.ports import DAEMON_SET, JOB, NODE, POD, RESOURCE_QUOTA, Manifest

NEVER = float("inf")

POD_START_S = 0.8
SCRIPT_S = 0.6
PLUGIN_REGISTERS_S = 2.0
LABELS_LATE_S = 15.0
RESPAWN_S = 1.0


def stamp(seconds: float) -> str:
    """Return a time as Kubernetes writes it."""
    return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


@dataclass(slots=True)
class World:
    """One look at everything within one transaction; `scripts` are to be run after it."""

    tx: Transaction
    files: NodeFiles
    now: float
    pace: float
    scripts: list[Script] = field(default_factory=list)
    _pods: list[Manifest] = field(default_factory=list)
    _nodes: list[Manifest] = field(default_factory=list)

    def step(self) -> bool:
        """Let happen what is due; return whether anything changed and more may follow at once."""
        self._pods, self._nodes = self.tx.select(POD), self.tx.select(NODE)
        before = [copy.deepcopy(self._pods), copy.deepcopy(self._nodes)]
        self._delete_pods()
        self._run_jobs()
        self._run_daemon_sets()
        self._schedule()
        self._start_pods()
        self._end_pods()
        self._register_devices()
        self._set_taints()
        self._write_quotas()
        self._hold_devices()
        after = [self.tx.select(POD), self.tx.select(NODE)]
        return before != after

    def next_due(self) -> float:
        """Return when the next thing happens by itself."""
        times = [NEVER]
        for body in (*self.tx.select(POD), *self.tx.select(NODE)):
            times += [value for key, value in hidden(body).items() if key.endswith("_at") and value]
        return min(time for time in times if time > self.now) if times else NEVER

    def fault(self, node: str, name: str) -> bool:
        """Say whether a fault is switched on for a node."""
        return name in (self.tx.fact("faults") or {}).get(node, [])

    def _after(self, seconds: float) -> float:
        return self.now + seconds * self.pace

    def _put(self, body: Manifest) -> None:
        self.tx.put(body)

    def _delete_pods(self) -> None:
        for pod in list(self._pods):
            due = hidden(pod).get("delete_at")
            if due is None or due > self.now:
                continue
            self.tx.remove(pod)
            self._pods.remove(pod)
            self._forget_plugin(pod)
            if hidden(pod).get("respawns"):
                self._pods.append(self._respawn(pod))

    def _respawn(self, pod: Manifest) -> Manifest:
        fresh = copy.deepcopy(pod)
        stem, _dash, _suffix = pod["metadata"]["name"].rpartition("-")
        number = hidden(pod).get("generation", 0) + 1
        fresh["metadata"] = {
            "name": f"{stem}-r{number}",
            "namespace": pod["metadata"]["namespace"],
            "labels": pod["metadata"].get("labels") or {},
            "ownerReferences": pod["metadata"].get("ownerReferences") or [],
            "creationTimestamp": stamp(self.now),
        }
        fresh["spec"].pop("nodeName", None)
        fresh["status"] = {"phase": "Pending"}
        fresh["simulated"] = {"respawns": True, "generation": number}
        return self.tx.put(fresh)

    def _run_jobs(self) -> None:
        for job in self.tx.select(JOB):
            uid = job["metadata"]["uid"]
            mine = [pod for pod in self._pods if hidden(pod).get("job") == uid]
            if not mine and not job.get("status", {}).get("conditions"):
                self._pods.append(self._job_pod(job))
                continue
            phases = {pod["status"]["phase"] for pod in mine}
            if phases & FINAL_PHASES and not job.get("status", {}).get("conditions"):
                self._finish_job(job, is_complete="Succeeded" in phases)

    def _job_pod(self, job: Manifest) -> Manifest:
        meta, template = job["metadata"], copy.deepcopy(job["spec"]["template"])
        labels = {**(template.get("metadata") or {}).get("labels", {}), "job-name": meta["name"]}
        owner = {
            "apiVersion": "batch/v1",
            "kind": "Job",
            "name": meta["name"],
            "uid": meta["uid"],
            "controller": True,
        }
        return self.tx.put(
            {
                "apiVersion": "v1",
                "kind": "Pod",
                "metadata": {
                    "name": f"{meta['name'][:50]}-{meta['uid'][:5]}",
                    "namespace": meta["namespace"],
                    "labels": labels,
                    "ownerReferences": [owner],
                    "creationTimestamp": stamp(self.now),
                },
                "spec": template["spec"],
                "status": {"phase": "Pending"},
                "simulated": {"job": meta["uid"]},
            }
        )

    def _finish_job(self, job: Manifest, *, is_complete: bool) -> None:
        condition = {"type": "Complete" if is_complete else "Failed", "status": "True"}
        if not is_complete:
            condition |= {
                "reason": "BackoffLimitExceeded",
                "message": "Job has reached the specified backoff limit",
            }
        job["status"] = {"conditions": [condition], "completionTime": stamp(self.now)}
        self._put(job)

    def _run_daemon_sets(self) -> None:
        for daemon_set in self.tx.select(DAEMON_SET):
            meta = daemon_set["metadata"]
            for node in self._nodes:
                name = f"{meta['name']}-{node['metadata']['name']}"
                if any(
                    pod["spec"].get("nodeName") == node["metadata"]["name"]
                    and hidden(pod).get("daemon_set") == meta["uid"]
                    for pod in self._pods
                ):
                    continue
                self._pods.append(self._daemon_pod(daemon_set, node, name))

    def _daemon_pod(self, daemon_set: Manifest, node: Manifest, stem: str) -> Manifest:
        meta, template = daemon_set["metadata"], daemon_set["spec"]["template"]
        number = hidden(daemon_set).get("made", 0) + 1
        hidden(daemon_set)["made"] = number
        self._put(daemon_set)
        owner = {
            "apiVersion": "apps/v1",
            "kind": "DaemonSet",
            "name": meta["name"],
            "uid": meta["uid"],
            "controller": True,
        }
        return self.tx.put(
            {
                "apiVersion": "v1",
                "kind": "Pod",
                "metadata": {
                    "name": f"{stem}-{number:03d}",
                    "namespace": meta["namespace"],
                    "labels": dict(template["metadata"]["labels"]),
                    "ownerReferences": [owner],
                    "creationTimestamp": stamp(self.now),
                },
                "spec": {
                    **copy.deepcopy(template["spec"]),
                    "nodeName": node["metadata"]["name"],
                    "tolerations": [{"operator": "Exists"}],
                },
                "status": {"phase": "Pending"},
                "simulated": {
                    "daemon_set": meta["uid"],
                    "start_at": self._after(POD_START_S),
                },
            }
        )

    def _schedule(self) -> None:
        waiting = [pod for pod in self._pods if not pod["spec"].get("nodeName")]
        if not waiting:
            return
        used = used_on_nodes(self._pods)
        for pod in waiting:
            name, sentence = choose_node(pod, self._nodes, used)
            if name is None:
                statuses.set_condition(pod, "PodScheduled", "False", "Unschedulable", sentence)
            else:
                pod["spec"]["nodeName"] = name
                statuses.set_condition(pod, "PodScheduled", "True", "", "")
                hidden(pod)["start_at"] = self._after(POD_START_S)
                used.setdefault(name, pod_requests(pod).__class__()).update(pod_requests(pod))
            self._put(pod)

    def _start_pods(self) -> None:
        for pod in self._pods:
            due = hidden(pod).get("start_at")
            if pod["status"]["phase"] != "Pending" or due is None or due > self.now:
                continue
            node = pod["spec"]["nodeName"]
            if self.fault(node, "job_never_starts") and hidden(pod).get("job"):
                continue
            if self.fault(node, "plugin_crash_loop") and hidden(pod).get("daemon_set"):
                statuses.set_waiting(pod, "CrashLoopBackOff")
                self._put(pod)
                continue
            self._start(pod, node)

    def _start(self, pod: Manifest, node: str) -> None:
        try:
            devices = kubelet.give_devices(pod, self._registered(node), self._on(node, pod))
        except NoDeviceError as error:
            pod["status"] |= {
                "phase": "Failed",
                "reason": "UnexpectedAdmissionError",
                "message": str(error),
            }
            self._put(pod)
            return
        secret = hidden(pod)
        secret.pop("start_at", None)
        secret["devices"] = devices
        pod["status"] |= {"phase": "Running", "startTime": stamp(self.now)}
        statuses.set_condition(pod, "Ready", "True", "", "")
        statuses.set_running(pod, devices, stamp(self.now))
        if secret.get("daemon_set"):
            self._plugin_started(node)
        elif kubelet.script_of(pod) is not None:
            secret["script"] = "wanted"
        elif (seconds := kubelet.runs_for_s(pod)) is not None:
            secret["finish_at"] = self._after(seconds)
            secret["exit_code"] = 0
        self._put(pod)

    def _end_pods(self) -> None:
        for pod in self._pods:
            secret = hidden(pod)
            if pod["status"]["phase"] == "Running" and secret.get("script") == "wanted":
                self.scripts.append(
                    Script(
                        uid=pod["metadata"]["uid"],
                        text=kubelet.script_of(pod) or "",
                        gpus=self.files.of(pod["spec"]["nodeName"]),
                        visible=kubelet.visible_devices(pod),
                    )
                )
            due = secret.get("finish_at")
            if pod["status"]["phase"] == "Running" and due is not None and due <= self.now:
                secret.pop("finish_at")
                statuses.set_ended(pod, secret.get("exit_code", 0), stamp(self.now))
                self._put(pod)

    def _plugin_started(self, name: str) -> None:
        node = self._node(name)
        hidden(node)["register_at"] = self._after(PLUGIN_REGISTERS_S)
        self._put(node)

    def _forget_plugin(self, pod: Manifest) -> None:
        if not hidden(pod).get("daemon_set"):
            return
        node = self._node(pod["spec"]["nodeName"])
        hidden(node).pop("register_at", None)
        statuses.offer(node, {})
        self._put(node)

    def _register_devices(self) -> None:
        for node in self._nodes:
            secret, name = hidden(node), node["metadata"]["name"]
            due = secret.get("register_at")
            if (
                due is not None
                and due <= self.now
                and not self.fault(name, "plugin_never_registers")
            ):
                secret.pop("register_at")
                devices = plugin.listed_devices(self.files.state(name), secret.get("replicas", 1))
                statuses.offer(node, {} if self.fault(name, "gpu_lost") else devices)
                secret["labels_at"] = self._after(LABELS_LATE_S)
                self._put(node)
            due = secret.get("labels_at")
            if due is not None and due <= self.now:
                secret.pop("labels_at")
                self._relabel(node)
                self._put(node)

    def _relabel(self, node: Manifest) -> None:
        state = self.files.state(node["metadata"]["name"])
        fresh = plugin.feature_labels(state, hidden(node).get("replicas", 1))
        old = node["metadata"].get("labels") or {}
        kept = {key: value for key, value in old.items() if not key.startswith("nvidia.com/")}
        node["metadata"]["labels"] = kept | fresh

    def _set_taints(self) -> None:
        for node in self._nodes:
            key = "node.kubernetes.io/unschedulable"
            others = [t for t in node["spec"].get("taints") or [] if t["key"] != key]
            ours = (
                [{"key": key, "effect": "NoSchedule"}] if node["spec"].get("unschedulable") else []
            )
            if (node["spec"].get("taints") or []) != others + ours:
                node["spec"]["taints"] = others + ours
                self._put(node)
            ready = "Unknown" if self.fault(node["metadata"]["name"], "node_not_ready") else "True"
            if statuses.set_condition(node, "Ready", ready, "KubeletReady", ""):
                self._put(node)

    def _write_quotas(self) -> None:
        for quota in self.tx.select(RESOURCE_QUOTA):
            hard = quota["spec"]["hard"]
            used = namespace_usage(self.tx, quota["metadata"]["namespace"], hard)
            status = {
                "hard": dict(hard),
                "used": {key: quantity(key, used[key]) for key in hard},
            }
            if quota.get("status") != status:
                quota["status"] = status
                self._put(quota)

    def _hold_devices(self) -> None:
        held: dict[str, dict[str, str]] = {node["metadata"]["name"]: {} for node in self._nodes}
        for pod in self._pods:
            if pod["status"]["phase"] != "Running" or kubelet.script_of(pod) is not None:
                continue
            for ids in hidden(pod).get("devices", {}).values():
                for device in ids:
                    held[pod["spec"]["nodeName"]][device.split("::")[0]] = pod["metadata"]["name"]
        before = self.tx.fact("held") or {}
        for node, devices in held.items():
            if before.get(node) != devices:
                self.files.set_held(node, devices)
        if before != held:
            self.tx.set_fact("held", held)

    def _registered(self, node: str) -> dict[str, list[str]]:
        found: dict[str, list[str]] = hidden(self._node(node)).get("registered", {})
        return found

    def _on(self, node: str, besides: Manifest) -> list[Manifest]:
        return [
            pod for pod in self._pods if pod["spec"].get("nodeName") == node and pod is not besides
        ]

    def _node(self, name: str) -> Manifest:
        return next(node for node in self._nodes if node["metadata"]["name"] == name)
