"""Requests: who may ask, decide, withdraw and give back; and what bad input is told."""

from typing import Any

import pytest
from django.utils import timezone

from gpu.models import Offering, SliceRequest
from gpu.services import allocations, requests
from gpu.services.errors import NotAllowedError, ServiceError, WrongStateError
from portal.audit.models import AuditEvent
from tenants.models import Membership, Tenant, User
from tests import factories

pytestmark = pytest.mark.django_db

State = SliceRequest.State


@pytest.fixture
def tenant() -> Tenant:
    return factories.make_tenant()


@pytest.fixture
def alice(tenant: Tenant) -> User:
    return factories.join(tenant, factories.make_user("alice"), role=Membership.Role.LEAD)


@pytest.fixture
def bob(tenant: Tenant) -> User:
    return factories.join(tenant, factories.make_user("bob"))


@pytest.fixture
def mallory() -> User:
    return factories.join(factories.make_tenant("other"), factories.make_user("mallory"))


def test_submitted_request_waits_for_approval_and_is_audited(tenant: Tenant, bob: User) -> None:
    slice_request = factories.submit(tenant, bob)
    assert slice_request.state == State.WAITING_FOR_APPROVAL
    event = AuditEvent.objects.get()
    assert (event.verb, event.actor) == ("request.submitted", bob)


def test_request_without_need_of_approval_goes_straight_into_the_queue(
    tenant: Tenant, bob: User
) -> None:
    factories.make_offering(needs_approval=False)
    assert factories.submit(tenant, bob).state == State.WAITING_FOR_ROOM


@pytest.mark.parametrize(
    ("changes", "field", "words"),
    [
        ({"count": 0}, "count", "1 to 8"),
        ({"count": 9}, "count", "1 to 8"),
        ({"days": 0}, "days", "1 to 14"),
        ({"days": 15}, "days", "1 to 14"),
        ({"memory_mib": 0}, "memory", "how much"),
    ],
)
def test_bad_wish_names_the_field_and_the_way_out(
    tenant: Tenant, bob: User, changes: dict[str, int], field: str, words: str
) -> None:
    with pytest.raises(ServiceError, match=words) as caught:
        factories.submit(tenant, bob, **changes)
    assert caught.value.field == field
    assert not SliceRequest.objects.exists()


def _wish(tenant: Tenant, **changes: Any) -> requests.Wish:  # noqa: ANN401  # any field
    values: dict[str, Any] = {
        "tenant": tenant,
        "offering": factories.make_offering(),
        "memory_mib": 5000,
        "count": 1,
        "days": 1,
        "purpose": "A purpose",
    }
    return requests.Wish(**{**values, **changes})


def test_wish_without_a_purpose_is_refused(tenant: Tenant, bob: User) -> None:
    with pytest.raises(ServiceError, match="what the slice is for"):
        requests.submit_request(_wish(tenant, purpose="  "), actor=bob)


def test_offering_that_is_no_longer_offered_is_refused(tenant: Tenant, bob: User) -> None:
    offering = factories.make_offering()
    Offering.objects.update(is_active=False)
    offering.refresh_from_db()
    with pytest.raises(ServiceError, match="not offered any more"):
        requests.submit_request(_wish(tenant, offering=offering), actor=bob)


def test_stranger_may_not_ask_in_a_tenants_name(tenant: Tenant, mallory: User) -> None:
    with pytest.raises(NotAllowedError, match="not a member"):
        factories.submit(tenant, mallory)


def test_person_with_too_many_open_requests_is_told_to_withdraw_one(
    tenant: Tenant, bob: User
) -> None:
    for _number in range(20):
        factories.submit(tenant, bob)
    with pytest.raises(ServiceError, match="withdraw one"):
        factories.submit(tenant, bob)


def test_lead_decides_once(tenant: Tenant, alice: User, bob: User) -> None:
    slice_request = factories.submit(tenant, bob)
    approved = requests.approve_request(slice_request.pk, actor=alice, reason="fine")
    assert (approved.state, approved.decided_by) == (State.WAITING_FOR_ROOM, alice)
    with pytest.raises(WrongStateError, match="waiting for room already"):
        requests.decline_request(slice_request.pk, actor=alice, reason="no")


@pytest.mark.parametrize("who", ["bob", "mallory"])
def test_others_may_not_decide(tenant: Tenant, bob: User, mallory: User, who: str) -> None:
    slice_request = factories.submit(tenant, bob)
    with pytest.raises(NotAllowedError):
        requests.approve_request(slice_request.pk, actor=User.objects.get(username=who))


def test_decline_needs_a_reason_that_the_requester_reads(
    tenant: Tenant, alice: User, bob: User
) -> None:
    slice_request = factories.submit(tenant, bob)
    with pytest.raises(ServiceError, match="Say why") as caught:
        requests.decline_request(slice_request.pk, actor=alice, reason=" ")
    assert caught.value.field == "reason"
    declined = requests.decline_request(slice_request.pk, actor=alice, reason="too long")
    assert (declined.state, declined.decision_reason) == (State.DECLINED, "too long")


def test_requester_alone_withdraws_and_only_before_something_is_made(
    tenant: Tenant, alice: User, bob: User
) -> None:
    slice_request = factories.submit(tenant, bob)
    with pytest.raises(NotAllowedError, match="person who asked"):
        requests.withdraw_request(slice_request.pk, actor=alice)
    assert requests.withdraw_request(slice_request.pk, actor=bob).state == State.WITHDRAWN
    with pytest.raises(WrongStateError, match="cannot be withdrawn"):
        requests.withdraw_request(slice_request.pk, actor=bob)


def test_slice_is_given_back_by_holder_or_lead_but_not_by_a_stranger(
    tenant: Tenant, alice: User, bob: User, mallory: User
) -> None:
    pool = factories.make_pool(factories.make_model(), "nvidia.com/mig-1g.10gb", capacity=1)
    slice_request = factories.submit(tenant, bob)
    with pytest.raises(WrongStateError, match="only a ready one"):
        requests.release_slice(slice_request.pk, actor=bob)
    allocations.grant_now(slice_request, factories.grant_of(pool), now=timezone.now())
    SliceRequest.objects.update(state=State.READY)
    with pytest.raises(NotAllowedError):
        requests.release_slice(slice_request.pk, actor=mallory)
    assert requests.release_slice(slice_request.pk, actor=alice).state == State.ENDED
    pool.refresh_from_db()
    assert pool.granted == 0
