"""How the Kubernetes adapter finds its cluster: kubeconfig, context, or the Pod that it runs in."""

import json
from pathlib import Path

import pytest
from kubernetes.config import incluster_config
from pytest_django import Settings

from gpu.adapters.kubernetes import KubernetesCluster
from gpu.adapters.kubernetes.connection import load_configuration
from gpu.ports import ClusterError

TOKEN = "s3cret-t0ken"  # noqa: S105


def kubeconfig(tmp_path: Path, **servers: str) -> Path:
    """Write a kubeconfig with a context for each server; the first is the current one."""
    path = tmp_path / "kubeconfig"
    content = {
        "apiVersion": "v1",
        "kind": "Config",
        "current-context": next(iter(servers)),
        "contexts": [{"name": n, "context": {"cluster": n, "user": "me"}} for n in servers],
        "users": [{"name": "me", "user": {"token": TOKEN}}],
        "clusters": [{"name": n, "cluster": {"server": url}} for n, url in servers.items()],
    }
    path.write_text(json.dumps(content))
    return path


def test_context_chooses_the_server(tmp_path: Path) -> None:
    path = str(kubeconfig(tmp_path, here="https://here.test", there="https://there.test"))
    assert load_configuration(path).host == "https://here.test"
    assert load_configuration(path, "there").host == "https://there.test"


def test_settings_name_the_kubeconfig(tmp_path: Path, settings: Settings) -> None:
    settings.KUBECONFIG = str(kubeconfig(tmp_path, here="http://127.0.0.1:1"))
    settings.KUBE_CONTEXT = "abroad"
    with pytest.raises(ClusterError, match="abroad"):
        KubernetesCluster.from_settings().version()


def test_pod_uses_its_service_account(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, text in (("token", TOKEN), ("ca.crt", "-----BEGIN CERTIFICATE-----")):
        (tmp_path / name).write_text(text)
    monkeypatch.setattr(incluster_config, "SERVICE_TOKEN_FILENAME", str(tmp_path / "token"))
    monkeypatch.setattr(incluster_config, "SERVICE_CERT_FILENAME", str(tmp_path / "ca.crt"))
    monkeypatch.setenv("KUBERNETES_SERVICE_HOST", "10.96.0.1")
    monkeypatch.setenv("KUBERNETES_SERVICE_PORT", "443")
    found = load_configuration()
    assert found.host == "https://10.96.0.1:443"
    assert str(found.auth_settings()["BearerToken"]["value"]).lower() == f"bearer {TOKEN}"


def test_pod_without_a_service_account_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KUBERNETES_SERVICE_HOST", "10.96.0.1")
    monkeypatch.delenv("KUBERNETES_SERVICE_PORT", raising=False)
    with pytest.raises(ClusterError, match="Cannot use the Pod's service account"):
        load_configuration()


BAD_KUBECONFIGS = {
    "no context": ("{}", "Cannot use the kubeconfig"),
    "no YAML": (f"token: [{TOKEN}", "it is not valid"),
    "no mapping": (f"- {TOKEN}", "Cannot use the kubeconfig"),
}


@pytest.mark.parametrize("case", BAD_KUBECONFIGS.values(), ids=BAD_KUBECONFIGS.keys())
def test_bad_kubeconfig_is_told_without_its_content(tmp_path: Path, case: tuple[str, str]) -> None:
    text, words = case
    path = tmp_path / "kubeconfig"
    path.write_text(text)
    with pytest.raises(ClusterError, match=words) as refusal:
        KubernetesCluster.from_kubeconfig(str(path)).version()
    assert TOKEN not in str(refusal.value)


def test_missing_kubeconfig_is_named(tmp_path: Path) -> None:
    with pytest.raises(ClusterError, match=r"KUBECONFIG names .*/nowhere, which is not a file"):
        KubernetesCluster.from_kubeconfig(str(tmp_path / "nowhere")).version()


def test_unknown_context_is_named(tmp_path: Path) -> None:
    path = tmp_path / "kubeconfig"
    path.write_text("apiVersion: v1\nkind: Config\ncontexts: []\nusers: []\nclusters: []\n")
    with pytest.raises(ClusterError, match="abroad"):
        KubernetesCluster.from_kubeconfig(str(path), "abroad").version()
