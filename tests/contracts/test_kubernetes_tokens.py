"""Tokens and the endpoint: what the Kubernetes adapter asks for and what it reads."""

from datetime import UTC, datetime

import pytest
from kubernetes.client import Configuration
from pytest_httpserver import HTTPServer

from gpu.adapters.kubernetes import KubernetesCluster
from gpu.ports import Cluster, Endpoint, UnreachableError

TOKEN = "s3cret-t0ken"  # noqa: S105


@pytest.fixture(scope="session")
def httpserver_listen_address() -> tuple[str, int]:
    return ("127.0.0.1", 0)


@pytest.fixture
def server(httpserver: HTTPServer) -> HTTPServer:
    return httpserver


@pytest.fixture
def cluster(server: HTTPServer) -> KubernetesCluster:
    return KubernetesCluster(lambda: Configuration(host=f"http://127.0.0.1:{server.port}"))


def test_token_is_asked_for_and_read(server: HTTPServer, cluster: Cluster) -> None:
    path = "/api/v1/namespaces/team/serviceaccounts/member/token"
    granted = {"status": {"token": TOKEN, "expirationTimestamp": "2026-12-01T10:00:00Z"}}
    server.expect_request(path, method="POST").respond_with_json(granted, status=201)
    token = cluster.request_token("member", "team", lifetime_s=3600)
    assert (token.text, token.ends_at) == (TOKEN, datetime(2026, 12, 1, 10, tzinfo=UTC))
    [(request, _)] = server.log
    assert request.get_json()["spec"] == {"expirationSeconds": 3600}


def test_token_answer_without_a_token_is_told(server: HTTPServer, cluster: Cluster) -> None:
    path = "/api/v1/namespaces/team/serviceaccounts/member/token"
    server.expect_request(path, method="POST").respond_with_json({"status": {}}, status=201)
    with pytest.raises(UnreachableError, match="holds none"):
        cluster.request_token("member", "team", lifetime_s=3600)


def test_endpoint_is_ours(server: HTTPServer, cluster: Cluster) -> None:
    assert cluster.endpoint() == Endpoint(f"http://127.0.0.1:{server.port}")
