"""What each of our accounts, and a tenant's kubeconfig, may do: the API server's own answers."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import pytest
import yaml

from gpu.adapters.kubernetes import KubernetesCluster
from gpu.manifests import MEMBER_NAME, QUOTA_NAME
from gpu.ports import (
    CONFIG_MAP,
    LIMIT_RANGE,
    POD,
    RESOURCE_QUOTA,
    ROLE_BINDING,
    Cluster,
    Manifest,
    RefusedError,
    Scope,
)
from gpu.reconcilers.namespaces import sync_namespace
from gpu.views.kubeconfigs import kubeconfig
from tenants.models import Tenant
from tests.cluster.control_plane import ControlPlane
from tests.cluster.processes import wait_until
from tests.cluster.roles import install, remove, signed_in
from tests.factories import make_tenant

pytestmark = [pytest.mark.cluster, pytest.mark.django_db]

RBAC = "rbac.authorization.k8s.io"
OWN, OTHERS = "team-own", "team-others"
_REVIEWS = "/apis/authorization.k8s.io/v1/subjectaccessreviews"


@dataclass(frozen=True, slots=True)
class Act:
    """One thing that somebody might do, written `verb resource[.group][/subresource]`."""

    verb: str
    resource: str
    namespace: str = ""
    name: str = ""

    def attributes(self) -> dict[str, str]:
        """Return it as an access review asks it."""
        resource, _, subresource = self.resource.partition("/")
        resource, _, group = resource.partition(".")
        return {
            "verb": self.verb,
            "group": group,
            "resource": resource,
            "subresource": subresource,
            "namespace": self.namespace,
            "name": self.name,
        }


@pytest.fixture
def plane(control_plane: ControlPlane) -> ControlPlane:
    """The control plane with our roles in it."""
    install(control_plane)
    return control_plane


@pytest.fixture
def tenant(plane: ControlPlane) -> Iterator[Tenant]:
    """A tenant whose namespace the worker's account has written; another beside it."""
    worker = signed_in(plane, "slicedesk-worker")
    own, others = make_tenant("own"), make_tenant("others")
    assert (own.namespace, others.namespace) == (OWN, OTHERS)
    for each in (own, others):
        assert sync_namespace(each, cluster=worker) == ""
        account = f"/api/v1/namespaces/{each.namespace}/serviceaccounts"
        wait_until(
            lambda path=account: len(plane.api.get(path)["items"]) > 1,  # type: ignore[misc]
            "the default account",
            timeout_s=60,
        )
    yield own
    for each in (own, others):
        plane.api.delete(f"/api/v1/namespaces/{each.namespace}")
        path = f"/api/v1/namespaces/{each.namespace}"
        wait_until(lambda path=path: _is_gone(plane, path), "its end", timeout_s=60)  # type: ignore[misc]


@pytest.fixture
def member(plane: ControlPlane, tenant: Tenant) -> KubernetesCluster:
    """The cluster as a member of the tenant sees it with the kubeconfig from the portal."""
    web = signed_in(plane, "slicedesk-web")
    token = web.request_token(MEMBER_NAME, tenant.namespace, lifetime_s=3600)
    text = kubeconfig(tenant.namespace, web.endpoint(), token)
    assert yaml.safe_load(text)["clusters"][0]["cluster"]["certificate-authority-data"]
    path = plane.directory / "member.kubeconfig"
    path.write_text(text)
    return KubernetesCluster.from_kubeconfig(str(path))


def _is_gone(plane: ControlPlane, path: str) -> bool:
    names = {item["metadata"]["name"] for item in plane.api.get("/api/v1/namespaces")["items"]}
    return path.rpartition("/")[2] not in names


def may(plane: ControlPlane, user: str, act: Act) -> bool:
    """Ask the API server whether a service account (`namespace:name`) may do something."""
    namespace = user.partition(":")[0]
    spec = {
        "user": f"system:serviceaccount:{user}",
        "groups": ["system:serviceaccounts", f"system:serviceaccounts:{namespace}"],
        "resourceAttributes": act.attributes(),
    }
    answer = plane.api.post(_REVIEWS, {"spec": spec})
    return bool(answer["status"]["allowed"])


MEMBERS_WORK = [
    *(Act(verb, "pods", OWN) for verb in ("get", "list", "watch", "create", "delete")),
    *(Act(verb, "jobs.batch", OWN) for verb in ("get", "list", "create", "delete")),
    *(Act(verb, "configmaps", OWN) for verb in ("get", "list", "create", "patch", "delete")),
    Act("get", "pods/log", OWN),
    Act("create", "pods/exec", OWN),
    Act("create", "pods/portforward", OWN),
    Act("list", "events", OWN),
]
NO_MEMBERS_WORK = [
    *(
        Act(verb, resource, OWN)
        for resource in ("resourcequotas", "limitranges", f"rolebindings.{RBAC}", f"roles.{RBAC}")
        for verb in ("create", "update", "patch", "delete")
    ),
    *(Act(verb, "secrets", OWN) for verb in ("get", "list", "create")),
    *(Act("create", f"serviceaccounts{part}", OWN) for part in ("", "/token")),
    *(Act(verb, "pods", OTHERS) for verb in ("get", "list", "create", "delete")),
    *(Act("create", f"pods/{part}", OTHERS) for part in ("exec", "portforward", "eviction")),
    *(Act("list", "pods", space) for space in ("", "kube-system", "slicedesk-system")),
    *(Act(verb, "nodes") for verb in ("get", "list", "patch")),
    Act("patch", "namespaces", OWN, OWN),
    Act("delete", "namespaces", OWN, OWN),
    Act("bind", f"clusterroles.{RBAC}", "", "cluster-admin"),
]
OURS = {
    "slicedesk-watcher": (
        [Act(verb, kind) for kind in ("nodes", "pods") for verb in ("list", "watch")],
        [
            Act("patch", "nodes"),
            Act("create", "pods", OWN),
            Act("delete", "pods", OWN),
            Act("list", "secrets"),
            Act("create", "serviceaccounts/token", OWN, MEMBER_NAME),
        ],
    ),
    "slicedesk-web": (
        [Act("create", "serviceaccounts/token", OWN, MEMBER_NAME)],
        [
            Act("create", "serviceaccounts/token", "kube-system", "node-controller"),
            Act("create", "serviceaccounts/token", "slicedesk", "slicedesk-worker"),
            Act("create", "pods", OWN),
            Act("list", "pods", OWN),
            Act("list", "nodes"),
            Act("patch", "resourcequotas", OWN),
            Act("get", "secrets", OWN),
        ],
    ),
    "slicedesk-worker": (
        [
            Act("patch", "nodes"),
            Act("list", "pods"),
            Act("create", "pods/eviction", OWN),
            Act("create", "jobs.batch", "slicedesk-system"),
            Act("get", "pods/log", "slicedesk-system"),
            Act("delete", "pods", "nvidia-device-plugin"),
            *(Act("patch", kind, OWN) for kind in ("resourcequotas", "limitranges")),
            Act("patch", f"rolebindings.{RBAC}", OWN),
            Act("bind", f"clusterroles.{RBAC}", "", MEMBER_NAME),
        ],
        [
            Act("bind", f"clusterroles.{RBAC}", "", "cluster-admin"),
            Act("create", f"clusterrolebindings.{RBAC}"),
            Act("escalate", f"clusterroles.{RBAC}"),
            Act("create", "jobs.batch", OWN),
            Act("get", "pods/log", OWN),
            Act("create", "pods/exec", OWN),
            Act("delete", "pods", OWN),
            Act("delete", "nodes"),
            Act("delete", "namespaces", OWN, OWN),
            Act("list", "secrets"),
            Act("create", "serviceaccounts/token", OWN, MEMBER_NAME),
        ],
    ),
}


@pytest.mark.parametrize("account", OURS)
def test_our_account_may_do_its_work_and_no_more(plane: ControlPlane, account: str) -> None:
    allowed, refused = OURS[account]
    user = f"slicedesk:{account}"
    assert [act for act in allowed if not may(plane, user, act)] == []
    assert [act for act in refused if may(plane, user, act)] == []


PLUGIN, PLUGIN_CONFIGS = "nvidia-device-plugin", "nvidia-device-plugin-configs"
OPERATOR, MIG_CONFIGS = "gpu-operator", "slicedesk-mig-parted"
NO_EXECUTORS_WORK = [
    Act("patch", "configmaps", PLUGIN, "another"),
    Act("patch", "configmaps", OPERATOR, "default-mig-parted-config"),
    *(Act("delete", "configmaps", space) for space in (PLUGIN, OPERATOR)),
    *(Act("list", "configmaps", space) for space in (PLUGIN, OPERATOR)),
    Act("get", "configmaps", "kube-system", "anything"),
]
EXECUTORS = {
    "executor-device-plugin.yaml": [
        Act("list", "nodes"),
        *(Act(verb, "configmaps", PLUGIN, PLUGIN_CONFIGS) for verb in ("get", "patch")),
        Act("create", "configmaps", PLUGIN),
    ],
    "executor-mig-manager.yaml": [
        *(Act(verb, "configmaps", OPERATOR, MIG_CONFIGS) for verb in ("get", "patch")),
        Act("create", "configmaps", OPERATOR),
        *(Act(verb, "pods", OPERATOR) for verb in ("patch", "delete")),
        Act("get", "pods/log", OPERATOR),
    ],
}


@pytest.mark.parametrize("file", EXECUTORS)
def test_executor_brings_its_rights_along_and_takes_them_away(
    plane: ControlPlane, file: str
) -> None:
    user, wanted = "slicedesk:slicedesk-worker", EXECUTORS[file]
    assert [act for act in wanted if may(plane, user, act)] == []
    install(plane, file)
    try:
        wait_until(lambda: all(may(plane, user, act) for act in wanted), "them", timeout_s=30)
        refused = [*OURS["slicedesk-worker"][1], *NO_EXECUTORS_WORK]
        assert [act for act in refused if may(plane, user, act)] == []
    finally:
        remove(plane, file)
    wait_until(lambda: not any(may(plane, user, act) for act in wanted), "none", timeout_s=30)


def test_member_may_work_in_the_own_namespace_alone(plane: ControlPlane, tenant: Tenant) -> None:
    user = f"{tenant.namespace}:{MEMBER_NAME}"
    assert [act for act in MEMBERS_WORK if not may(plane, user, act)] == []
    assert [act for act in NO_MEMBERS_WORK if may(plane, user, act)] == []


def test_pods_own_account_in_a_tenants_namespace_may_do_nothing(
    plane: ControlPlane, tenant: Tenant
) -> None:
    user = f"{tenant.namespace}:default"
    assert [act for act in (*MEMBERS_WORK, *NO_MEMBERS_WORK) if may(plane, user, act)] == []


def test_kubeconfig_works_for_what_it_is_for(member: Cluster) -> None:
    body = {"apiVersion": "v1", "kind": "ConfigMap", "data": {"colour": "red"}}
    member.create({**body, "metadata": {"name": "mine", "namespace": OWN}})
    assert member.read(CONFIG_MAP, "mine", OWN)["data"] == {"colour": "red"}
    member.create(pod("plain"))
    assert member.read(POD, "plain", OWN)["spec"]["containers"]


def test_kubeconfig_reaches_nothing_else(member: Cluster) -> None:
    with pytest.raises(RefusedError, match="cannot list resource"):
        member.list(POD, Scope(OTHERS))
    with pytest.raises(RefusedError, match="cannot create resource"):
        member.create(pod("there", namespace=OTHERS))
    hard = {"spec": {"hard": {"requests.nvidia.com/gpu": "100"}}}
    with pytest.raises(RefusedError, match="cannot patch resource"):
        member.patch(RESOURCE_QUOTA, QUOTA_NAME, hard, OWN)
    with pytest.raises(RefusedError, match="cannot delete resource"):
        member.delete(RESOURCE_QUOTA, QUOTA_NAME, OWN)
    with pytest.raises(RefusedError, match="cannot delete resource"):
        member.delete(LIMIT_RANGE, QUOTA_NAME, OWN)
    with pytest.raises(RefusedError, match="cannot patch resource"):
        member.patch(ROLE_BINDING, MEMBER_NAME, {"metadata": {"labels": {"a": "b"}}}, OWN)


UNSAFE: dict[str, dict[str, Any]] = {
    "privileged": {"securityContext": {"privileged": True}},
    "capability": {"securityContext": {"capabilities": {"add": ["SYS_ADMIN"]}}},
}


@pytest.mark.parametrize("what", UNSAFE)
def test_member_starts_no_pod_that_could_leave_its_container(member: Cluster, what: str) -> None:
    with pytest.raises(RefusedError, match="PodSecurity"):
        member.create(pod(what, **UNSAFE[what]))


def test_member_sees_no_file_of_the_host(member: Cluster) -> None:
    body = pod("host")
    body["spec"]["volumes"] = [{"name": "host", "hostPath": {"path": "/"}}]
    with pytest.raises(RefusedError, match="PodSecurity"):
        member.create(body)
    body = pod("host")
    body["spec"] |= {"hostPID": True}
    with pytest.raises(RefusedError, match="PodSecurity"):
        member.create(body)


def pod(name: str, *, namespace: str = OWN, **container: Any) -> Manifest:  # noqa: ANN401
    """Return a Pod without GPUs that asks for nothing: a quota of 0 CPU lets it pass."""
    nothing = {"cpu": "0", "memory": "0", "ephemeral-storage": "0"}
    main = {"name": "main", "image": "nowhere.test/none:1", **container}
    main["resources"] = {"requests": nothing, "limits": nothing}
    meta = {"name": name, "namespace": namespace}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": meta, "spec": {"containers": [main]}}
