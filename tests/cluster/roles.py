"""What deploy/ brings into a cluster: its accounts and roles, and the cluster as each sees it."""

from pathlib import Path
from typing import Any

import yaml

from gpu.adapters.kubernetes import KubernetesCluster
from tests.cluster.audit import Permission, granted
from tests.cluster.control_plane import ControlPlane

_DEPLOY = Path(__file__).parents[2] / "deploy"
_RBAC = "/apis/rbac.authorization.k8s.io/v1"
_ADMISSION = "/apis/admissionregistration.k8s.io/v1"
_PATHS = {
    "Namespace": "/api/v1/namespaces",
    "ServiceAccount": "/api/v1/namespaces/{}/serviceaccounts",
    "ClusterRole": f"{_RBAC}/clusterroles",
    "ClusterRoleBinding": f"{_RBAC}/clusterrolebindings",
    "Role": f"{_RBAC}/namespaces/{{}}/roles",
    "RoleBinding": f"{_RBAC}/namespaces/{{}}/rolebindings",
    "ValidatingAdmissionPolicy": f"{_ADMISSION}/validatingadmissionpolicies",
    "ValidatingAdmissionPolicyBinding": f"{_ADMISSION}/validatingadmissionpolicybindings",
}
_NVIDIAS = [
    {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}}
    for name in ("nvidia-device-plugin", "gpu-operator")
]


def documents(file: str = "clusterrole.yaml") -> list[dict[str, Any]]:
    """Return the objects of a file in deploy/."""
    return [found for found in yaml.safe_load_all((_DEPLOY / file).read_text()) if found]


def install(plane: ControlPlane, file: str = "clusterrole.yaml") -> None:
    """Apply a file of deploy/ as cluster admin."""
    for document in (*_NVIDIAS, *documents(file)):
        plane.api.apply(_path(document), document)


def remove(plane: ControlPlane, file: str) -> None:
    """Take the objects of a file of deploy/ away again."""
    for document in documents(file):
        plane.api.delete(_path(document))


def grants(account: str) -> set[Permission]:
    """Return what the roles named like an account grant."""
    return granted(
        found
        for found in documents()
        if found["kind"].endswith("Role") and found["metadata"]["name"] == account
    )


def signed_in(plane: ControlPlane, account: str) -> KubernetesCluster:
    """Return the cluster as a service account of ours sees it."""
    path = f"/api/v1/namespaces/slicedesk/serviceaccounts/{account}/token"
    body = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {}}
    token = plane.api.post(path, body)["status"]["token"]
    kubeconfig = plane.directory / f"{account}.kubeconfig"
    kubeconfig.write_text(yaml.safe_dump(plane.kubeconfig_for(token)))
    return KubernetesCluster.from_kubeconfig(str(kubeconfig))


def _path(document: dict[str, Any]) -> str:
    meta = document["metadata"]
    return f"{_PATHS[document['kind']].format(meta.get('namespace', ''))}/{meta['name']}"
