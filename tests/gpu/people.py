"""The people of the access tests: alice leads, bob asks, charlie looks, mallory is a stranger."""

from dataclasses import dataclass

from django.test import Client

from tenants.models import Membership, Tenant, User
from tests import factories


@dataclass(frozen=True, slots=True)
class People:
    """One tenant with its lead and a researcher, a manager, an admin, and somebody of another."""

    vision: Tenant
    other: Tenant
    alice: User
    bob: User
    charlie: User
    mallory: User
    grace: User


def make_people() -> People:
    """Put the people in place."""
    vision, other = factories.make_tenant("vision"), factories.make_tenant("nlp")
    return People(
        vision=vision,
        other=other,
        alice=factories.join(vision, factories.make_user("alice"), role=Membership.Role.LEAD),
        bob=factories.join(vision, factories.make_user("bob")),
        charlie=factories.make_user("charlie", role=User.Role.MANAGER),
        mallory=factories.join(other, factories.make_user("mallory")),
        grace=factories.make_user("grace", role=User.Role.ADMIN),
    )


def signed_in(user: User) -> Client:
    """Return a browser in which somebody is signed in."""
    client = Client()
    client.force_login(user)
    return client
