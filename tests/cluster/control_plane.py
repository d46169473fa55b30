"""Starts and stops etcd, kube-apiserver, kube-controller-manager and kube-scheduler on loopback."""

import json
import os
import secrets
import subprocess
from pathlib import Path
from typing import Self

from tests.cluster.api import Api
from tests.cluster.build import Programs
from tests.cluster.processes import ClusterStartError, free_ports, start, stop, wait_until

SERVICE_NETWORK = "10.96.0.0/16"
_READY_TIMEOUT_S = 90
_MOST_NODES = 9
_AUDIT_POLICY = {
    "apiVersion": "audit.k8s.io/v1",
    "kind": "Policy",
    "omitStages": ["RequestReceived"],
    "rules": [
        {"level": "Metadata", "userGroups": ["system:serviceaccounts:slicedesk"]},
        {"level": "None"},
    ],
}


class ControlPlane:
    """A cluster without nodes; `kubeconfig` names a cluster admin."""

    def __init__(self, programs: Programs, directory: Path) -> None:
        self.programs = programs
        self.directory = directory
        self.kubeconfig = directory / "kubeconfig"
        self.audit_log = directory / "audit.log"
        self.port, self._etcd_port, self._peer_port = free_ports(3)
        self.api = Api(
            f"https://127.0.0.1:{self.port}",
            secrets.token_hex(16),
            directory / "certs/apiserver.crt",
        )
        self._processes: dict[str, subprocess.Popen[bytes]] = {}

    def __enter__(self) -> Self:
        try:
            self.start()
        except BaseException:
            self.stop()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def start(self) -> None:
        """Start everything and wait until the API server is ready."""
        self._write_files()
        self._run("etcd", *self._etcd_flags())
        self.start_api_server()
        common = ["--kubeconfig", str(self.kubeconfig), "--leader-elect=false", "--secure-port=0"]
        self._run(
            "kube-controller-manager",
            *common,
            "--service-account-private-key-file=" + str(self.directory / "sa.key"),
            "--root-ca-file=" + str(self.api.certificate),
            "--use-service-account-credentials=false",
            "--node-monitor-grace-period=1h",  # Node objects without a kubelet stay Ready
        )
        self._run("kube-scheduler", *common)
        wait_until(self._has_default_account, "the default service account", timeout_s=30)

    def stop(self) -> None:
        """Stop everything; all but etcd is stateless and needs no polite end."""
        for name in reversed(list(self._processes)):
            stop(self._processes.pop(name), kill=True)

    def restart_api_server(self) -> None:
        """Kill the API server and start it again on the same port with the same data."""
        self.kill_api_server()
        self.start_api_server()

    def kill_api_server(self) -> None:
        """Kill the API server, as a crash does; open connections and watches break."""
        stop(self._processes.pop("kube-apiserver"), kill=True)

    def pid(self, name: str) -> int:
        """Return the process id of a part, to stop it for a while."""
        return self._processes[name].pid

    def check(self) -> None:
        """Raise `ClusterStartError` when a part has stopped."""
        for name, process in self._processes.items():
            if process.poll() is not None:
                msg = f"{name} stopped; its log is {self.directory / name}.log"
                raise ClusterStartError(msg)

    def start_api_server(self) -> None:
        """Start the API server alone and wait until it is ready."""
        # The API server reaches a kubelet by its node's name, which only this process can resolve.
        prefix: list[str] = []
        if os.geteuid() == 0:
            script = 'mount --bind "$1" /etc/hosts && shift && exec "$@"'
            prefix = ["unshare", "--mount", "--propagation", "private", "sh", "-c", script, "sh"]
            prefix.append(str(self.directory / "hosts"))
        self._run("kube-apiserver", *self._api_server_flags(), prefix=prefix)
        wait_until(self._is_ready, "the API server's /readyz", timeout_s=_READY_TIMEOUT_S)

    def _run(self, name: str, *flags: str, prefix: list[str] | None = None) -> None:
        command = [*(prefix or []), str(self.programs.control_plane), name, *flags]
        self._processes[name] = start(command, log=self.directory / f"{name}.log")

    def _is_ready(self) -> bool:
        self.check()
        return self.api.certificate.exists() and self.api.is_ready()

    def _has_default_account(self) -> bool:
        self.check()
        accounts = self.api.get("/api/v1/namespaces/default/serviceaccounts")["items"]
        return any(account["metadata"]["name"] == "default" for account in accounts)

    def _write_files(self) -> None:
        directory = self.directory
        if not (directory / "sa.key").exists():
            subprocess.run(  # noqa: S603
                [self.programs.control_plane, "rsa-key", directory / "sa.key"],
                check=True,
                timeout=30,
            )
        tokens = directory / "tokens.csv"
        tokens.touch(mode=0o600)
        tokens.write_text(f'{self.api.token},admin,admin,"system:masters"\n')
        nodes = "".join(f"127.0.0.1 node-{number}\n" for number in range(1, _MOST_NODES + 1))
        (directory / "hosts").write_text(Path("/etc/hosts").read_text() + nodes)
        (directory / "audit.json").write_text(json.dumps(_AUDIT_POLICY))
        self.kubeconfig.touch(mode=0o600)
        self.kubeconfig.write_text(json.dumps(self.kubeconfig_for(self.api.token)))

    def kubeconfig_for(self, token: str, *, name: str = "lab") -> dict[str, object]:
        """Return a kubeconfig for this server and a bearer token."""
        cluster = {"server": self.api.server, "certificate-authority": str(self.api.certificate)}
        return {
            "apiVersion": "v1",
            "kind": "Config",
            "current-context": name,
            "contexts": [{"name": name, "context": {"cluster": name, "user": name}}],
            "users": [{"name": name, "user": {"token": token}}],
            "clusters": [{"name": name, "cluster": cluster}],
        }

    def _etcd_flags(self) -> list[str]:
        client, peer = f"http://127.0.0.1:{self._etcd_port}", f"http://127.0.0.1:{self._peer_port}"
        return [
            f"--data-dir={self.directory / 'etcd'}",
            "--unsafe-no-fsync",
            "--log-level=warn",
            f"--listen-client-urls={client}",
            f"--advertise-client-urls={client}",
            f"--listen-peer-urls={peer}",
        ]

    def _api_server_flags(self) -> list[str]:
        directory = self.directory
        return [
            f"--etcd-servers=http://127.0.0.1:{self._etcd_port}",
            f"--secure-port={self.port}",
            "--bind-address=127.0.0.1",
            f"--cert-dir={directory / 'certs'}",
            f"--token-auth-file={directory / 'tokens.csv'}",
            "--authorization-mode=Node,RBAC",
            "--allow-privileged=true",
            "--kubelet-preferred-address-types=Hostname",
            f"--service-cluster-ip-range={SERVICE_NETWORK}",
            "--service-account-issuer=https://slicedesk.test",
            f"--service-account-key-file={directory / 'sa.key'}",
            f"--service-account-signing-key-file={directory / 'sa.key'}",
            f"--audit-policy-file={directory / 'audit.json'}",
            f"--audit-log-path={self.audit_log}",
        ]
