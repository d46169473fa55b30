"""The GPU Operator's mig-manager as it runs on a simulated node, with its habits.

It acts when the label's value has *changed* since it last read it; it remembers one value, not a
queue, and forgets it with its Pod. It neither cordons nor drains, and its state label says
`success` before the device plugin has seen anything.
"""

from typing import Any

import yaml

from gpu.adapters.simulated import mig_parted
from gpu.adapters.simulated.mig_parted import ApplyError, Entries
from gpu.adapters.simulated.store import hidden
from gpu.adapters.simulated.world import World, owned_by, stamp
from gpu.ports import CONFIG_MAP, Manifest

CONFIG_LABEL = "nvidia.com/mig.config"
STATE_LABEL = "nvidia.com/mig.config.state"
DEPLOY_PREFIX = "nvidia.com/gpu.deploy."
MANAGED = f"{DEPLOY_PREFIX}mig-manager"
PAUSED = "paused-for-mig-change"
MANAGER_LABELS = {"app": "nvidia-mig-manager"}
CONFIG_KEY = "config.yaml"
NOTICES_S = 0.25
APPLIES_S = 4.5
GIVES_UP_S = 300.0
FILE_LATE_S = 60.0
_PAUSED_ONES = frozenset(
    f"{DEPLOY_PREFIX}{name}"
    for name in (
        "device-plugin",
        "gpu-feature-discovery",
        "dcgm-exporter",
        "dcgm",
        "nvsm",
        "client",
    )
)


def run_mig_managers(world: World) -> None:
    """Let the mig-manager of every node that has one do what is due."""
    for pod in world.pods:
        labels = pod["metadata"].get("labels") or {}
        is_up = pod["status"]["phase"] == "Running" and "deletionTimestamp" not in pod["metadata"]
        if not MANAGER_LABELS.items() <= labels.items() or not is_up:
            continue
        node = world.node(pod["spec"].get("nodeName", ""))
        if node is not None and not world.is_silent(node["metadata"]["name"]):
            _Manager(world, pod, node).run()


class _Manager:
    """One look of one mig-manager; what it remembers lives in its Pod and dies with it."""

    def __init__(self, world: World, pod: Manifest, node: Manifest) -> None:
        self._world = world
        self._pod = pod
        self._node = node
        self._name: str = node["metadata"]["name"]
        self._secret = hidden(pod)

    def run(self) -> None:
        """Start, notice a changed label, go on with a change: whatever is due."""
        if "mig_started" not in self._secret:
            self._start()
        self._refresh_file()
        if "mig_gives_up_at" in self._secret:
            self._give_up_when_due()
        elif "mig_apply_at" in self._secret:
            if self._secret["mig_apply_at"] <= self._world.now:
                self._apply()
        elif "mig_notice_at" in self._secret:
            if self._secret["mig_notice_at"] <= self._world.now:
                self._begin()
        else:
            self._listen()

    @property
    def _labels(self) -> dict[str, str]:
        labels: dict[str, str] = self._node["metadata"].setdefault("labels", {})
        return labels

    @property
    def _value(self) -> str | None:
        return self._labels.get(CONFIG_LABEL)

    def _start(self) -> None:
        self._secret["mig_started"] = True
        self._secret["mig_file"] = self._read_config_map()
        self._secret["mig_annotations"] = self._pod["metadata"].get("annotations") or {}
        self._resume_clients()
        self._keep()

    def _listen(self) -> None:
        """Notice a value other than the one last read; a label taken away while idle is nothing."""
        value = self._value
        was_removed = self._secret.pop("mig_removed", False)
        if value is None and not was_removed:
            return
        if value == self._secret.get("mig_read"):
            return
        self._secret["mig_read"] = value or ""
        self._secret["mig_notice_at"] = self._world.after(NOTICES_S, self._name)
        self._keep()

    def _begin(self) -> None:
        self._secret.pop("mig_notice_at")
        value = self._secret["mig_read"]
        if self._world.has_fault(self._name, "mig_manager_deaf"):
            self._log("error connecting to the host's D-Bus: no such file or directory")
            self._end(None)
            return
        entries = self._entries(value)
        if entries is None:
            self._log(f"error validating config: selected mig-config not present: {value}")
            self._end("failed")
        elif mig_parted.is_applied(self._world.files.of(self._name), entries):
            self._secret["mig_succeeded"] = True
            self._end("success")
        else:
            self._labels[STATE_LABEL] = "pending"
            self._pause_clients()
            key, seconds = "mig_apply_at", APPLIES_S
            if self._world.has_fault(self._name, "mig_manager_client_stays"):
                key, seconds = "mig_gives_up_at", GIVES_UP_S
            self._secret[key] = self._world.after(seconds, self._name)
            self._keep()

    def _give_up_when_due(self) -> None:
        """Say so once and listen again: the state stays pending and the clients stay paused."""
        if self._secret["mig_gives_up_at"] > self._world.now:
            return
        self._secret.pop("mig_gives_up_at")
        self._log("error waiting for GPU clients to terminate: timed out")
        self._end(None)

    def _apply(self) -> None:
        self._secret.pop("mig_apply_at")
        value = self._secret["mig_read"]
        try:
            if not self._world.has_fault(self._name, "mig_manager_lies"):
                folder = self._world.files.of(self._name)
                mig_parted.apply(folder, value, self._entries(value) or [])
        except ApplyError as error:
            self._log(f"Error applying MIG configuration: {error}")
            # Once it has succeeded, a later failure forgets to resume the clients.
            if not self._secret.get("mig_succeeded"):
                self._resume_clients()
            self._end("failed")
            return
        self._secret["mig_succeeded"] = True
        self._resume_clients()
        self._end("success")

    def _end(self, state: str | None) -> None:
        """Write the state, and find out that the label was taken away meanwhile."""
        if state is not None:
            self._labels[STATE_LABEL] = state
        if self._value is None:
            self._secret["mig_removed"] = True
        self._keep()

    def _entries(self, value: str) -> Entries | None:
        """Return a configuration; the one that there is for an empty name, if it is alone."""
        try:
            found = yaml.safe_load(self._secret.get("mig_file") or "") or {}
        except yaml.YAMLError:
            return None
        configs: dict[str, Entries] = found.get("mig-configs") or {}
        if value == "" and len(configs) == 1:
            return next(iter(configs.values()))
        return configs.get(value)

    def _pause_clients(self) -> None:
        for key in _PAUSED_ONES & self._labels.keys():
            if self._labels[key] == "true":
                self._labels[key] = PAUSED

    def _resume_clients(self) -> None:
        for key in _PAUSED_ONES & self._labels.keys():
            if self._labels[key] == PAUSED:
                self._labels[key] = "true"

    def _refresh_file(self) -> None:
        """Let the kubelet bring a changed ConfigMap into the Pod: late, or when it is touched."""
        fresh = self._read_config_map()
        if fresh == self._secret.get("mig_file"):
            return
        annotations = self._pod["metadata"].get("annotations") or {}
        late = self._world.after(FILE_LATE_S, self._name)
        due = self._secret.setdefault("mig_file_at", late)
        if due <= self._world.now or annotations != self._secret.get("mig_annotations"):
            self._secret.pop("mig_file_at")
            self._secret |= {"mig_file": fresh, "mig_annotations": annotations}
        self._keep()

    def _read_config_map(self) -> str:
        name = config_map_name(self._pod)
        space = self._pod["metadata"]["namespace"]
        if name is None:
            return self._own_config_map(space)
        body = self._world.tx.get(CONFIG_MAP, name, space)
        return str(((body or {}).get("data") or {}).get(CONFIG_KEY, ""))

    def _own_config_map(self, space: str) -> str:
        """Return what it writes for itself when it is given no configuration file."""
        name = f"{self._name}-mig-config"
        body = self._world.tx.get(CONFIG_MAP, name, space)
        if body is None:
            body = _generated(name, self._pod, self._world.files.state(self._name))
            body["metadata"]["creationTimestamp"] = stamp(self._world.now)
            self._world.put(body)
        return str(body["data"][CONFIG_KEY])

    def _log(self, line: str) -> None:
        uid = self._pod["metadata"]["uid"]
        text = self._world.tx.log_of(uid)
        self._world.tx.set_log(uid, f'{text}time="{stamp(self._world.now)}" level=error {line}\n')

    def _keep(self) -> None:
        self._world.put(self._pod)
        self._world.put(self._node)


def config_map_name(pod: Manifest) -> str | None:
    """Return the ConfigMap that a mig-manager's Pod mounts; None when it is given no file."""
    for volume in pod["spec"].get("volumes") or ():
        if volume.get("name") == "mig-parted-config":
            return str(volume["configMap"]["name"])
    return None


def _generated(name: str, pod: Manifest, state: dict[str, Any]) -> Manifest:
    profiles = {p["name"]: p["max_instances"] for gpu in state["gpus"] for p in gpu["profiles"]}
    off = [{"devices": "all", "mig-enabled": False, "mig-devices": {}}]
    configs: dict[str, Any] = {
        "all-disabled": off,
        "all-enabled": [{"devices": "all", "mig-enabled": True, "mig-devices": {}}],
    }
    for profile, most in profiles.items():
        entry = {"devices": "all", "mig-enabled": True, "mig-devices": {profile: most}}
        configs[f"all-{profile}".replace("+", ".")] = [entry]
    text = yaml.safe_dump({"version": "v1", "mig-configs": configs}, sort_keys=False)
    meta = {
        "name": name,
        "namespace": pod["metadata"]["namespace"],
        "ownerReferences": owned_by(pod),
    }
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": meta, "data": {CONFIG_KEY: text}}
