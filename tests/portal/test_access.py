"""The access matrix: every address of the URLconf, asked by every actor.

An address without a row fails, and so does a row without an address: whoever adds a page says who
may see it.
"""

from collections.abc import Iterator
from datetime import timedelta

import pytest
from django.contrib.auth.models import AnonymousUser
from django.db import transaction
from django.http import HttpResponse
from django.test import Client
from django.urls import URLPattern, URLResolver, get_resolver, reverse
from django.utils import timezone

from gpu.models import Gpu, Operation
from gpu.services import allocations, freezes, placing, requests
from tenants.models import User
from tests import factories
from tests.gpu.people import People, make_people
from tests.portal.access import ACTORS, TABLE, WITHOUT_ROW, World

_SIGN_IN = "/sign-in/"
_SOFT_REFUSALS = {405, 409, 422}


def names(resolver: URLResolver, prefix: str = "") -> Iterator[str]:
    """Yield the full name of every address, or its route where it has no name."""
    for pattern in resolver.url_patterns:
        if isinstance(pattern, URLResolver):
            inner = f"{prefix}{pattern.namespace}:" if pattern.namespace else prefix
            yield from names(pattern, inner)
        elif isinstance(pattern, URLPattern):
            yield f"{prefix}{pattern.name or pattern.pattern}"


def known_names() -> set[str]:
    found = set(names(get_resolver()))
    return {name for name in found if not name.startswith("admin:")} - set(WITHOUT_ROW)


type Actors = dict[str, User | AnonymousUser]


@pytest.fixture
def people(db: None) -> People:
    return make_people()


@pytest.fixture
def actors(people: People) -> Actors:
    return {
        "anonymous": AnonymousUser(),
        **{name: getattr(people, name) for name in ACTORS if name != "anonymous"},
    }


@pytest.fixture
def world(people: People) -> World:
    """A request of bob's that waits for a decision, and a slice of his that is ready; a GPU."""
    waiting = factories.submit(people.vision, people.bob)
    ready = factories.submit(people.vision, people.bob)
    requests.approve_request(ready.pk, actor=people.alice, reason="")
    pool = factories.make_pool(factories.make_model(), "nvidia.com/mig-1g.10gb", capacity=4)
    with transaction.atomic():
        ready.refresh_from_db()
        allocations.grant_now(ready, factories.grant_of(pool), now=timezone.now())
        requests.set_state(ready, ready.State.BEING_MADE)
    placing.mark_ready(ready.pk)
    gpu = Gpu.objects.get(node=factories.make_node())
    operation = Operation.objects.create(
        node=gpu.node,
        gpu=gpu,
        desired={"mig": True, "instances": []},
        state=Operation.State.DONE,
        finished_at=timezone.now(),
    )
    return {
        "request": waiting.pk,
        "slice": ready.pk,
        "gpu": gpu.pk,
        "node": gpu.node.name,
        "operation": operation.pk,
        "freeze": freezes.freeze(
            None,
            reason="A deadline",
            ends_at=timezone.now() + timedelta(days=1),
            actor=people.grace,
        ).pk,
    }


def outcome(answer: HttpResponse) -> str:
    location = answer.headers.get("Location", "")
    if answer.status_code in {301, 302} and location.startswith(_SIGN_IN):
        return "in"
    if answer.status_code == 403:
        return "no"
    if answer.status_code == 404:
        return "--"
    if answer.status_code < 400 or answer.status_code in _SOFT_REFUSALS:
        return "ok"
    return str(answer.status_code)


def test_every_address_has_a_row_and_every_row_an_address() -> None:
    assert known_names() == set(TABLE)


@pytest.mark.parametrize("name", sorted(TABLE))
def test_each_actor_gets_what_the_table_says(
    name: str,
    actors: Actors,
    world: World,
    client: Client,
) -> None:
    address = TABLE[name]
    url = reverse(name, kwargs=dict(address.arguments(world)))

    found = {}
    for actor in ACTORS:
        client.logout()
        user = actors[actor]
        if isinstance(user, User):
            client.force_login(user)
        answer = getattr(client, address.method)(url, dict(address.data(world)))
        found[actor] = outcome(answer)

    assert found == dict(zip(ACTORS, address.outcomes, strict=True))


@pytest.mark.parametrize("actor", ACTORS)
def test_djangos_admin_is_for_staff_alone(actor: str, actors: Actors, client: Client) -> None:
    user = actors[actor]
    if isinstance(user, User):
        client.force_login(user)

    answer = client.get("/admin/", follow=True)

    staff = isinstance(user, User) and user.is_staff
    assert (answer.status_code == 200 and answer.request["PATH_INFO"] == "/admin/") is staff
