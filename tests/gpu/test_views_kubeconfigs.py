"""Kubeconfigs: for members of a tenant with a ready slice, made when asked for, kept nowhere."""

import base64
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from django.test import Client
from pytest_django import Settings

from gpu import gateways
from gpu.adapters.simulated import SimulatedCluster, build_lab
from gpu.models import SliceRequest
from gpu.ports import ROLE_BINDING, SERVICE_ACCOUNT
from gpu.reconcilers.namespaces import sync_namespace
from gpu.services import requests
from portal.audit.models import AuditEvent
from tests import factories
from tests.gpu.people import People, make_people, signed_in
from tests.gpu.test_views_requests import ready

AUTHORITY = "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n"


@pytest.fixture
def people(db: None) -> People:
    return make_people()


@pytest.fixture
def lab(tmp_path: Path, settings: Settings) -> Iterator[SimulatedCluster]:
    settings.SIMULATED_LAB = tmp_path / "lab.sqlite3"
    gateways.cluster.cache_clear()
    cluster = gateways.cluster()
    assert isinstance(cluster, SimulatedCluster)
    build_lab(cluster)
    yield cluster
    gateways.cluster.cache_clear()


@pytest.fixture
def row(people: People, lab: SimulatedCluster) -> SliceRequest:
    """Bob's ready slice, its namespace written to the cluster."""
    found = ready(people)
    assert sync_namespace(people.vision, cluster=lab) == ""
    return found


def url(row: SliceRequest) -> str:
    return f"/requests/{row.pk}/kubeconfig/"


def download(client: Client, row: SliceRequest) -> dict[str, Any]:
    answer = client.post(url(row))
    assert answer.status_code == 200
    assert answer["Content-Type"].startswith("application/yaml")
    assert answer["Content-Disposition"] == (
        f'attachment; filename="kubeconfig-{row.tenant.namespace}.yaml"'
    )
    assert "no-store" in answer["Cache-Control"]
    body: dict[str, Any] = yaml.safe_load(answer.content)
    return body


@pytest.mark.parametrize("name", ["bob", "alice"])
def test_member_gets_a_kubeconfig_and_leaves_a_trail(
    people: People, row: SliceRequest, name: str
) -> None:
    body = download(signed_in(getattr(people, name)), row)
    [context] = body["contexts"]
    assert context["context"]["namespace"] == people.vision.namespace
    assert body["current-context"] == context["name"]
    [user] = body["users"]
    token = user["user"]["token"]
    event = AuditEvent.objects.get(verb="kubeconfig.issued")
    assert (event.actor_label, event.detail["namespace"]) == (name, people.vision.namespace)
    assert event.detail["ends_at"]
    assert token not in str(AuditEvent.objects.values_list())


def test_each_download_has_a_token_of_its_own(people: People, row: SliceRequest) -> None:
    client = signed_in(people.bob)
    tokens = {download(client, row)["users"][0]["user"]["token"] for _ in range(2)}
    assert len(tokens) == 2


def test_address_and_authority_are_as_set(
    people: People, row: SliceRequest, settings: Settings, tmp_path: Path
) -> None:
    authority = tmp_path / "ca.pem"
    authority.write_text(AUTHORITY)
    settings.KUBECONFIG_SERVER = "https://kubernetes.example.test:6443"
    settings.KUBECONFIG_CA_FILE = str(authority)
    [cluster] = download(signed_in(people.bob), row)["clusters"]
    assert cluster["cluster"] == {
        "server": "https://kubernetes.example.test:6443",
        "certificate-authority-data": base64.b64encode(AUTHORITY.encode()).decode(),
    }


def test_address_is_the_portals_own_where_none_is_set(people: People, row: SliceRequest) -> None:
    [cluster] = download(signed_in(people.bob), row)["clusters"]
    assert cluster["cluster"] == {"server": "https://simulated-lab.invalid:6443"}


def test_missing_authority_is_told_to_nobody_but_the_log(
    people: People, row: SliceRequest, settings: Settings
) -> None:
    settings.KUBECONFIG_CA_FILE = "/nowhere/ca.pem"
    answer = signed_in(people.bob).post(url(row), follow=True)
    text = answer.content.decode()
    assert "does not answer just now" in text
    assert "/nowhere" not in text


@pytest.mark.parametrize(("name", "status"), [("mallory", 404), ("charlie", 403), ("grace", 403)])
def test_who_is_no_member_gets_none(
    people: People, row: SliceRequest, name: str, status: int
) -> None:
    assert signed_in(getattr(people, name)).post(url(row)).status_code == status
    assert not AuditEvent.objects.filter(verb="kubeconfig.issued").exists()


def test_asking_by_a_link_does_nothing(people: People, row: SliceRequest) -> None:
    assert signed_in(people.bob).get(url(row)).status_code == 405
    assert not AuditEvent.objects.filter(verb="kubeconfig.issued").exists()


def test_slice_that_is_not_ready_or_has_ended_gives_none(
    people: People, row: SliceRequest, lab: SimulatedCluster
) -> None:
    waiting = factories.submit(people.vision, people.bob)
    assert signed_in(people.bob).post(url(waiting)).status_code == 404
    requests.release_slice(row.pk, actor=people.bob, reason="done")
    assert signed_in(people.bob).post(url(row)).status_code == 404


def test_namespace_that_is_not_there_yet_is_said(people: People, lab: SimulatedCluster) -> None:
    early = ready(people)
    answer = signed_in(people.bob).post(url(early), follow=True)
    assert "still being prepared" in answer.content.decode()
    assert not AuditEvent.objects.filter(verb="kubeconfig.issued").exists()


def test_silent_cluster_is_said(people: People, row: SliceRequest, lab: SimulatedCluster) -> None:
    lab.set_fault("*", "api_unreachable", on=True)
    answer = signed_in(people.bob).post(url(row), follow=True)
    assert "does not answer just now" in answer.content.decode()


def test_page_offers_it_to_members_alone_and_says_for_how_long(
    people: People, row: SliceRequest, settings: Settings
) -> None:
    settings.KUBECONFIG_HOURS = 8
    page = signed_in(people.bob).get(f"/requests/{row.pk}/").content.decode()
    assert "Download kubeconfig" in page
    assert f"works for 8 hours, in namespace {people.vision.namespace} alone" in page
    for other in (people.charlie, people.grace):
        page = signed_in(other).get(f"/requests/{row.pk}/").content.decode()
        assert "Download kubeconfig" not in page


def test_namespace_has_an_account_for_its_members(row: SliceRequest, lab: SimulatedCluster) -> None:
    namespace = row.tenant.namespace
    account = lab.read(SERVICE_ACCOUNT, "slicedesk-member", namespace)
    assert account["automountServiceAccountToken"] is False
    binding = lab.read(ROLE_BINDING, "slicedesk-member", namespace)
    assert binding["roleRef"]["name"] == "slicedesk-member"
    [subject] = binding["subjects"]
    assert (subject["name"], subject["namespace"]) == ("slicedesk-member", namespace)
