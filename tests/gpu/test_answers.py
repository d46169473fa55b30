"""What the page says about a wish: when, as what, at what cost, and what instead."""

from datetime import UTC, datetime

import pytest
from django.utils import translation

from gpu.models import Gpu, GpuModel, Offering
from gpu.planning.demands import Demand, Ending, FitReason, Isolation, Kind, Reason
from gpu.planning.fitting import fit
from gpu.planning.geometry import Instance
from gpu.planning.snapshot import Beside, ClusterSnapshot
from gpu.selectors.offerings import Ask, active_offerings, availability, offered
from gpu.selectors.snapshot import cluster_snapshot
from gpu.views.amounts import compute_words, gib, gib_text, kind_words, sevenths
from gpu.views.answers import Answer, Market, answer_of
from gpu.views.reasons import reason_words, reasons_words
from tenants.models import Tenant
from tests import factories

A100_80 = "NVIDIA-A100-SXM4-80GB"
NAMES = {factories.A100: "A100-SXM4-40GB", A100_80: "A100-SXM4-80GB", "NVIDIA-L40S": "L40S"}
GIB = 1024


@pytest.fixture
def isolated(db: None) -> Offering:
    return factories.make_offering("isolated")


@pytest.fixture
def tenant(db: None) -> Tenant:
    return factories.make_tenant()


def answer(ask: Ask, *, tenant: Tenant | None = None, endings: tuple[Ending, ...] = ()) -> Answer:
    snapshot = cluster_snapshot()
    demand = Demand(Isolation(ask.offering.isolation), memory_mib=ask.memory_mib, count=ask.count)
    if ask.gpu_model:
        demand = Demand(
            demand.isolation,
            memory_mib=ask.memory_mib,
            count=ask.count,
            products=frozenset({ask.gpu_model.product}),
        )
    market = Market(offered(snapshot, active_offerings()), NAMES)
    return answer_of(fit(snapshot, demand, endings=endings), ask, market, tenant=tenant)


def test_a_free_instance_is_had_now_and_named_with_its_real_memory(
    isolated: Offering, tenant: Tenant
) -> None:
    node = factories.make_node(product=A100_80)
    factories.cut(node.gpus.get(), "1g.10gb", 0)

    found = answer(Ask(isolated, 9 * GIB), tenant=tenant)

    assert (found.code, found.tone) == ("now", "good")
    assert found.gets == "1g.10gb on A100-SXM4-80GB: 9.5 GiB, 1 of 7 parts of the compute."
    assert found.reasons == ()
    assert found.needs_approval
    assert found.quota is not None
    assert (found.quota.memory.before, found.quota.memory.after) == (0, 9728)


def test_a_blank_gpu_is_cut_first_and_nobody_is_disturbed(isolated: Offering) -> None:
    factories.make_node("gpu-a", product=A100_80)

    found = answer(Ask(isolated, 9 * GIB, count=2))

    assert found.code == "after_change"
    assert found.gets == (
        "2 \N{MULTIPLICATION SIGN} 1g.10gb on A100-SXM4-80GB: 9.5 GiB and 1 of 7 parts of the"
        " compute each."
    )
    assert found.change.startswith("1 GPU on gpu-a is cut for it first.")
    assert "go on running" in found.change


def test_what_ends_soon_gives_a_time_and_how_sure_it_is(isolated: Offering) -> None:
    gpu = factories.make_node(product=A100_80).gpus.get()
    factories.cut(gpu, "7g.80gb", 0)
    pool = factories.make_pool(gpu.model, "nvidia.com/mig-7g.80gb", capacity=1)
    pool.granted = 1
    pool.save()
    at = datetime(2030, 1, 2, 14, 30, tzinfo=UTC)
    end = Ending(at, gpu.uuid, Instance("7g.80gb", 0), beside=Beside(64_000, 2**19, 2**20))

    found = answer(Ask(isolated, 9 * GIB), endings=(end,))

    assert (found.code, found.at, found.confidence) == ("later", at, "high confidence")
    assert found.reasons == ("1 A100-SXM4-80GB GPU is in use.",)


def test_more_memory_than_any_slice_has_is_never_and_something_else_is_offered(
    isolated: Offering,
) -> None:
    factories.make_offering("whole")
    gpu = factories.make_node(product=A100_80).gpus.get()
    Gpu.objects.filter(pk=gpu.pk).update(is_mig_enabled=False)

    found = answer(Ask(isolated, 79 * GIB + 512))

    assert found.code == "never"
    assert found.is_hopeless
    assert found.reasons == ("No slice of A100-SXM4-80GB holds that much memory.",)
    fills = [fill.fields for fill in found.offers]
    assert {"isolation": "isolated", "memory": "79", "count": "1", "gpu_model": ""} in fills
    assert {"isolation": "whole", "memory": "79.5", "count": "1", "gpu_model": ""} in fills


def test_nothing_is_offered_that_is_not_an_offering(isolated: Offering) -> None:
    gpu = factories.make_node(product=A100_80).gpus.get()
    Gpu.objects.filter(pk=gpu.pk).update(is_mig_enabled=False)

    found = answer(Ask(isolated, 79 * GIB + 512))

    assert {fill.fields["isolation"] for fill in found.offers} == {"isolated"}


def test_nothing_is_offered_on_models_that_an_offering_excludes(isolated: Offering) -> None:
    whole = factories.make_offering("whole")
    whole.gpu_models.add(factories.make_model())
    gpu = factories.make_node(product=A100_80).gpus.get()
    Gpu.objects.filter(pk=gpu.pk).update(is_mig_enabled=False)

    found = answer(Ask(isolated, 79 * GIB + 512))

    assert "whole" not in {fill.fields["isolation"] for fill in found.offers}


def test_twenty_gib_hints_at_the_slice_that_is_called_twenty(isolated: Offering) -> None:
    factories.make_node(product=A100_80)

    found = answer(Ask(isolated, 20 * GIB))

    assert found.gets.startswith("3g.40gb")
    assert found.near is not None
    assert found.near.fields["memory"] == "19.5"
    assert found.near.label == "Ask for 19.5 GiB"


def test_an_exact_size_hints_at_nothing(isolated: Offering) -> None:
    factories.make_node(product=A100_80)
    assert answer(Ask(isolated, 19968)).near is None


def test_a_share_tells_of_its_neighbours(db: None) -> None:
    shared = factories.make_offering("shared", needs_approval=False)
    node = factories.make_node(product=A100_80)
    node.gpus.update(is_mig_enabled=False, sharing="time-slicing", replicas=4)

    found = answer(Ask(shared, 10 * GIB))

    assert found.code == "now"
    assert found.gets == (
        "share of one A100-SXM4-80GB, 1 of 4: 20 GiB, 1.75 of 7 parts of the compute."
    )
    assert "up to 3 neighbours" in found.neighbours
    assert not found.needs_approval


def test_more_than_the_whole_quota_is_hopeless_and_a_full_one_is_not(isolated: Offering) -> None:
    node = factories.make_node(product=A100_80)
    factories.cut(node.gpus.get(), "1g.10gb", 0)
    poor = factories.make_tenant("poor", memory_gib=5)
    full = factories.make_tenant("full", memory_gib=10)
    full.memory_granted_mib = full.memory_limit_mib

    too_much = answer(Ask(isolated, 9 * GIB), tenant=poor)
    waits = answer(Ask(isolated, 9 * GIB), tenant=full)

    assert too_much.is_hopeless
    assert too_much.quota_problem.startswith("This is more than the whole quota of Poor.")
    assert not waits.is_hopeless
    assert waits.quota is not None
    assert waits.quota.is_exceeded


def test_a_chosen_model_is_kept_by_offers_and_left_by_the_one_that_says_so(
    isolated: Offering,
) -> None:
    factories.make_node("a", product=A100_80)
    node = factories.make_node("b")
    factories.cut(node.gpus.get(), "7g.40gb", 0)
    pool = factories.make_pool(factories.make_model(), "nvidia.com/mig-7g.40gb", capacity=1)
    pool.granted = 1
    pool.save()

    found = answer(Ask(isolated, 9 * GIB, gpu_model=GpuModel.objects.get(product=factories.A100)))

    assert found.code == "later"
    assert [fill.fields["gpu_model"] for fill in found.offers] == [""]


def test_availability_counts_what_is_free_and_what_could_be_cut(isolated: Offering) -> None:
    node = factories.make_node(gpus=2, product=A100_80)
    factories.cut(node.gpus.get(index=0), "1g.10gb", 0)
    factories.cut(node.gpus.get(index=0), "1g.10gb", 1)
    snapshot = cluster_snapshot()

    item = offered(snapshot, active_offerings())[0]
    found = {one.kind.profile: one for one in availability(snapshot, item)}

    small, large = found["1g.10gb"], found["7g.80gb"]
    assert (small.free_now, small.after_change, small.is_capped) == (2, 10, True)
    assert (large.free_now, large.after_change, large.is_capped) == (0, 2, False)


def test_an_offering_of_some_models_has_only_their_sizes(isolated: Offering) -> None:
    factories.make_node("a", product=A100_80)
    factories.make_node("b")
    isolated.gpu_models.add(factories.make_model())

    item = offered(cluster_snapshot(), active_offerings())[0]

    assert {kind.product for kind in item.kinds} == {factories.A100}


@pytest.mark.parametrize("code", FitReason, ids=lambda code: code.value)
def test_every_reason_has_a_sentence_for_one_and_for_many(code: FitReason) -> None:
    for gpus in (1, 5):
        said = reason_words(Reason(code, "NVIDIA-L40S", gpus), NAMES)
        assert said.endswith(".")
        assert "%" not in said
        assert "NVIDIA-" not in said


def test_equal_sentences_are_said_once() -> None:
    twice = [Reason(FitReason.NOT_SHARED, "NVIDIA-L40S", gpus) for gpus in (1, 2)]
    assert reasons_words(twice, NAMES) == ("No L40S is shared.",)


@pytest.mark.parametrize(
    ("mib", "said", "typed"),
    [
        (9728, "9.5 GiB", "9.5"),
        (4864, "4.75 GiB", "4.75"),
        (9856, "9.62 GiB", "9.62"),
        (81920, "80 GiB", "80"),
        (2_000_000, "1,953.12 GiB", "1953.12"),
    ],
)
def test_memory_is_never_said_to_be_more_than_it_is(mib: int, said: str, typed: str) -> None:
    assert gib(mib) == said
    assert gib_text(mib) == typed
    assert float(typed) * GIB <= mib


def test_a_comma_separates_decimals_where_people_write_one() -> None:
    with translation.override("de"):
        assert gib(9728) == "9,5 GiB"
        assert gib_text(9728) == "9.5"


def test_parts_of_the_compute_are_said_plainly() -> None:
    assert compute_words(1000) == "1 of 7 parts of the compute"
    assert compute_words(7000) == "all 7 of 7 parts of the compute"
    assert sevenths(1750) == "1.75"


def test_a_whole_gpu_is_called_so() -> None:
    assert kind_words(Kind("x", "nvidia.com/gpu", 46068, 7000), "L40S") == "whole L40S"


def test_an_empty_cluster_offers_nothing_and_fails_nowhere(isolated: Offering) -> None:
    assert offered(ClusterSnapshot(()), active_offerings())[0].sizes == ()
    found = answer(Ask(isolated, 9 * GIB))
    assert (found.code, found.reasons) == ("never", ("No GPU of the cluster has been read yet.",))
