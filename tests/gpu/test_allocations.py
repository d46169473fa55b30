"""Granting: never more than there is, never more than the quota, whatever happens at once."""

import contextlib
import threading
from concurrent.futures import ThreadPoolExecutor

import pytest
from django.db import IntegrityError, connection, transaction
from django.utils import timezone
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from gpu.models import Allocation, ResourcePool, SliceRequest
from gpu.services import allocations
from gpu.services.errors import NoRoomError, QuotaExceededError, WrongStateError
from tenants.models import Tenant
from tests import factories

RESOURCE = "nvidia.com/mig-1g.10gb"


@pytest.fixture
def pool(db: None) -> ResourcePool:
    return factories.make_pool(factories.make_model(), RESOURCE, capacity=2)


@pytest.fixture
def tenant(db: None) -> Tenant:
    return factories.make_tenant()


def _request(tenant: Tenant, count: int = 1) -> SliceRequest:
    number = SliceRequest.objects.count()
    user = factories.join(tenant, factories.make_user(f"user{number}-{count}"))
    return SliceRequest.objects.create(
        tenant=tenant,
        requester=user,
        offering=factories.make_offering(),
        memory_mib=9000,
        count=count,
        days=3,
        purpose="test",
    )


def _grant(slice_request: SliceRequest, pool: ResourcePool) -> Allocation:
    with transaction.atomic():
        return allocations.grant_now(slice_request, factories.grant_of(pool), now=timezone.now())


def test_grant_takes_from_pool_and_quota_and_release_gives_back(
    pool: ResourcePool, tenant: Tenant
) -> None:
    allocation = _grant(_request(tenant, count=2), pool)
    pool.refresh_from_db()
    tenant.refresh_from_db()
    assert (pool.granted, pool.free) == (2, 0)
    assert (tenant.memory_granted_mib, tenant.compute_granted) == (2 * 9856, 2000)
    with transaction.atomic():
        row = allocations.locked(allocation.pk)
        allocations.end_allocation(row, now=timezone.now(), actor=None)
    pool.refresh_from_db()
    tenant.refresh_from_db()
    assert (pool.granted, pool.free) == (0, 2)
    assert (tenant.memory_granted_mib, tenant.compute_granted) == (0, 0)
    with transaction.atomic(), pytest.raises(WrongStateError, match="ended"):
        allocations.end_allocation(
            allocations.locked(allocation.pk), now=timezone.now(), actor=None
        )


def test_grant_is_refused_when_the_pool_is_empty_and_nothing_is_charged(
    pool: ResourcePool, tenant: Tenant
) -> None:
    _grant(_request(tenant, count=2), pool)
    with pytest.raises(NoRoomError):
        _grant(_request(tenant), pool)
    tenant.refresh_from_db()
    assert tenant.compute_granted == 2000


@pytest.mark.parametrize(
    ("memory_gib", "sevenths", "word"), [(5, 70, "memory"), (400, 0, "compute")]
)
def test_grant_is_refused_above_the_tenant_quota(
    pool: ResourcePool, memory_gib: int, sevenths: int, word: str
) -> None:
    poor = factories.make_tenant("poor", memory_gib=memory_gib, sevenths=sevenths)
    with pytest.raises(QuotaExceededError, match=word):
        _grant(_request(poor), pool)
    pool.refresh_from_db()
    assert pool.granted == 0


def test_reservation_keeps_others_out_until_it_becomes_a_grant(tenant: Tenant, db: None) -> None:
    pool = factories.make_pool(factories.make_model(), RESOURCE, capacity=0)
    with transaction.atomic():
        mine = allocations.reserve(_request(tenant), factories.grant_of(pool))
    ResourcePool.objects.filter(pk=pool.pk).update(capacity=1)
    with pytest.raises(NoRoomError):
        _grant(_request(tenant, count=1), pool)
    with transaction.atomic():
        allocations.activate(allocations.locked(mine.pk), now=timezone.now())
    pool.refresh_from_db()
    assert (pool.granted, pool.reserved, pool.free) == (1, 0, 0)


def test_cancelled_reservation_leaves_no_trace(pool: ResourcePool, tenant: Tenant) -> None:
    with transaction.atomic():
        mine = allocations.reserve(_request(tenant), factories.grant_of(pool))
        allocations.cancel_reservation(allocations.locked(mine.pk))
    pool.refresh_from_db()
    tenant.refresh_from_db()
    assert (pool.reserved, pool.free, tenant.compute_granted) == (0, 2, 0)


def test_lost_devices_show_as_a_shortfall_not_as_an_error(
    pool: ResourcePool, tenant: Tenant
) -> None:
    _grant(_request(tenant, count=2), pool)
    with transaction.atomic():
        row = allocations.record_capacity(pool.model, RESOURCE, capacity=1, foreign=0)
    assert (row.shortfall, row.free) == (1, 0)


def test_database_itself_refuses_to_over_grant(pool: ResourcePool) -> None:
    with pytest.raises(IntegrityError, match="resource_pool_never_overgranted"):
        ResourcePool.objects.filter(pk=pool.pk).update(granted=3)


def test_database_itself_refuses_to_exceed_a_tenant_quota(tenant: Tenant) -> None:
    with pytest.raises(IntegrityError, match="tenant_compute_within_limit"):
        Tenant.objects.filter(pk=tenant.pk).update(compute_granted=70_001)


@pytest.mark.django_db(transaction=True)
def test_exactly_one_of_200_concurrent_grants_gets_the_last_device() -> None:
    pool = factories.make_pool(factories.make_model(), RESOURCE, capacity=1)
    tenant = factories.make_tenant(memory_gib=4000, sevenths=700)
    waiting = [_request(tenant) for _ in range(200)]
    gate = threading.Barrier(200)

    def try_one(slice_request: SliceRequest) -> bool:
        try:
            gate.wait()
            _grant(slice_request, pool)
        except NoRoomError:
            return False
        finally:
            connection.close()
        return True

    with ThreadPoolExecutor(200) as threads:
        outcomes = list(threads.map(try_one, waiting))
    pool.refresh_from_db()
    tenant.refresh_from_db()
    assert outcomes.count(True) == 1
    assert (pool.granted, Allocation.objects.count()) == (1, 1)
    assert tenant.compute_granted == 1000


class _UndoError(Exception):
    """Rolls one example back."""


@settings(
    deadline=None, max_examples=25, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(moves=st.lists(st.tuples(st.sampled_from(["grant", "end"]), st.integers(1, 3)), max_size=12))
def test_sums_always_agree_with_the_ledger(db: None, moves: list[tuple[str, int]]) -> None:
    with contextlib.suppress(_UndoError), transaction.atomic():
        pool = factories.make_pool(factories.make_model(), RESOURCE, capacity=4)
        tenant = factories.make_tenant("law", memory_gib=60, sevenths=5)
        for move, count in moves:
            try:
                if move == "grant":
                    _grant(_request(tenant, count), pool)
                elif active := Allocation.objects.filter(state="active").first():
                    row = allocations.locked(active.pk)
                    allocations.end_allocation(row, now=timezone.now(), actor=None)
            except (NoRoomError, QuotaExceededError):
                pass
            pool.refresh_from_db()
            tenant.refresh_from_db()
            held = Allocation.objects.filter(state="active")
            assert pool.granted == sum(row.count for row in held) <= 4
            assert tenant.compute_granted == sum(row.compute * row.count for row in held) <= 5000
        raise _UndoError
