"""Requests and the layout editor on nodes that a mig-manager changes."""

import re
from dataclasses import replace
from pathlib import Path

import pytest
from django.test import Client

from gpu.adapters.simulated import SimulatedCluster
from gpu.adapters.simulated.operator_parts import give_mig_manager
from gpu.manifests import DEPLOY_PREFIX
from gpu.models import Allocation, Gpu, Operation, SliceRequest
from gpu.planning.demands import FitWhen
from gpu.planning.fitting import fit
from gpu.planning.geometry import Instance
from gpu.planning.landings import landings, likely_landing, profiles_of
from gpu.ports import POD
from gpu.services import requests
from gpu.views.layout_wish import Wish, problem_by_counts
from tests import factories
from tests.gpu.lab import make_lab, take_over, work
from tests.gpu.people import make_people, signed_in
from tests.planning.builders import A100, cluster, isolated, mig_gpu, node, whole_gpu

NODE_NAME = "gpu-h100-01"


@pytest.fixture
def lab(tmp_path: Path, db: None) -> SimulatedCluster:
    found = make_lab(tmp_path, nodes=[NODE_NAME])
    give_mig_manager(found, NODE_NAME)
    found.list(POD)
    take_over(found)
    return found


def test_request_is_met_through_mig_manager_where_counts_land(lab: SimulatedCluster) -> None:
    tenant = factories.make_tenant("genomics", memory_gib=2000, sevenths=200)
    ada = factories.join(tenant, factories.make_user("ada"))
    lead = factories.join(tenant, factories.make_user("lead"), role="lead")
    asked = factories.submit(tenant, ada, memory_mib=70_000)
    approved = requests.approve_request(asked.pk, actor=lead)
    done = work(approved, lab)
    operation = Operation.objects.get()
    assert (operation.executor, operation.state) == ("mig-manager", "done")
    assert done.state == SliceRequest.State.READY
    [place] = Allocation.objects.get().placements
    cut = Gpu.objects.get(uuid=place["gpu"]).instances.get(profile=place["profile"])
    assert cut.start == place["start"]


def test_gpu_in_use_is_not_planned_for_a_change_but_gives_what_is_free() -> None:
    gpu = replace(mig_gpu("a", "1g.5gb@0!,1g.5gb@1"), is_recut_whole=True)
    assert fit(cluster(node("n1", gpu)), isolated(1)).when is FitWhen.NOW
    assert fit(cluster(node("n1", gpu)), isolated(9)).when is not FitWhen.AFTER_CHANGE
    idle = replace(mig_gpu("a", "1g.5gb@1"), is_recut_whole=True)
    assert fit(cluster(node("n1", idle)), isolated(9)).when is FitWhen.AFTER_CHANGE


def test_mode_is_not_planned_to_change_while_instances_of_the_node_are_in_use() -> None:
    whole = replace(whole_gpu("a"), is_recut_whole=True)
    busy = replace(mig_gpu("b", "7g.40gb@0!"), is_recut_whole=True)
    assert fit(cluster(node("n1", whole, busy)), isolated(9)).when is not FitWhen.AFTER_CHANGE
    assert fit(cluster(node("n1", whole)), isolated(9)).when is FitWhen.AFTER_CHANGE


@pytest.mark.parametrize(
    ("pairs", "likely"),
    [
        ([("1g.5gb", 5)], [("1g.5gb", 0)]),
        ([("3g.20gb", 4), ("3g.20gb", 0)], [("3g.20gb", 0), ("3g.20gb", 4)]),
        (
            [("3g.20gb", 4), ("2g.10gb", 0), ("1g.5gb", 2), ("1g.5gb", 3)],
            [("1g.5gb", 0), ("1g.5gb", 1), ("2g.10gb", 2), ("3g.20gb", 4)],
        ),
        ([], []),
    ],
)
def test_counts_land_where_the_driver_has_room_first(
    pairs: list[tuple[str, int]], likely: list[tuple[str, int]]
) -> None:
    assert likely_landing(A100, pairs) == frozenset(likely)
    assert frozenset(likely) in landings(A100, profiles_of(pairs))


def test_counts_that_fit_in_no_order_land_nowhere() -> None:
    assert likely_landing(A100, [("7g.40gb", 0), ("1g.5gb", 0)]) is None
    assert landings(A100, ("1g.5gb", "7g.40gb")) == frozenset()


def test_wish_that_counts_cannot_make_names_the_one_that_they_make() -> None:
    wish = Wish(is_mig_on=True, layout=(Instance("1g.5gb", 5),))
    assert "1g.5gb@0" in problem_by_counts(wish, A100)
    assert problem_by_counts(Wish(is_mig_on=False), A100) == ""


@pytest.fixture
def admin(db: None) -> Client:
    return signed_in(make_people().grace)


def _node_with_manager() -> Gpu:
    row = factories.make_node()
    row.labels = {**row.labels, f"{DEPLOY_PREFIX}mig-manager": "true"}
    row.save(update_fields=["labels"])
    return Gpu.objects.get(node=row)


def test_editor_says_that_all_of_the_gpu_is_made_anew(admin: Client) -> None:
    gpu = _node_with_manager()
    held = factories.cut(gpu, "1g.5gb", 0)
    factories.make_pod(gpu.node, "train", resource=held.resource_name, devices=[held.mig_uuid])
    text = _page(admin, f"/gpus/{gpu.pk}/layout/?layout=1g.5gb@0,3g.20gb@4")
    assert "destroys all instances of this GPU" in text
    assert "1 Pod is in the way" in text
    assert "nvidia-smi" not in text
    assert "Stays untouched" not in text


def test_editor_refuses_a_place_that_counts_cannot_name(admin: Client) -> None:
    gpu = _node_with_manager()
    response = admin.get(f"/gpus/{gpu.pk}/layout/?layout=1g.5gb@5")
    assert response.status_code == 422
    assert "told counts, not places" in response.content.decode()


def test_confirmed_layout_opens_an_operation_for_mig_manager(admin: Client) -> None:
    gpu = _node_with_manager()
    text = _page(admin, f"/gpus/{gpu.pk}/layout/confirm/?layout=7g.40gb@0")
    given = {
        name: (re.search(rf'name="{name}"(?: value="([^"]*)")?', text) or [""])[1] or ""
        for name in ("layout", "seen_layout", "seen_pods")
    }
    answer = admin.post(f"/gpus/{gpu.pk}/layout/apply/", {**given, "reason": "the queue wants it"})
    assert answer.status_code == 302
    assert Operation.objects.get().executor == Operation.Executor.MIG_MANAGER


def _page(client: Client, path: str) -> str:
    response = client.get(path)
    assert response.status_code == 200
    return response.content.decode()
