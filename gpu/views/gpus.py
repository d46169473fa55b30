"""GPUs: the map of the cluster, and one GPU with all that is known of it."""

from collections import Counter
from dataclasses import asdict, dataclass, fields
from datetime import datetime
from itertools import groupby
from typing import Any

from django import forms
from django.contrib import messages
from django.http import Http404, HttpResponse
from django.shortcuts import get_object_or_404, redirect
from django.utils import timezone
from django.utils.translation import gettext_lazy as _
from django.views.decorators.http import require_POST, require_safe

from gpu.models import Gpu, Node
from gpu.planning.tables import GpuTable
from gpu.selectors.gpus import GpuMap, GpuState, MapFilter, MapGpu, gpu_map, gpu_seen
from gpu.selectors.nodes import NodeState, Sight, state_of
from gpu.selectors.operations import OperationFilter, newest_done_id, operations_for_list
from gpu.services.drift import DriftCause, accept_layout, layout_now
from gpu.services.errors import ServiceError
from gpu.views.layout_wish import stored_wish
from gpu.views.nodes import STATE_WORDS
from gpu.views.pages import live_token, page_of, render_page, requires
from gpu.views.timelines import OperationRow
from gpu.views.wording import TIMES, gib_words, layout_words
from portal import health
from portal.http import PortalRequest
from tenants.permissions import Capability

_READERS = (Capability.SEE_CLUSTER, Capability.SEE_OVERVIEW)
_FILTERS = tuple(field.name for field in fields(MapFilter))
_NODES_PER_PAGE = 50
_HISTORY = 10

GPU_STATE_WORDS = {
    GpuState.ROOM: _("with room"),
    GpuState.IN_USE: _("in use"),
    GpuState.IDLE: _("granted but idle"),
    GpuState.CHANGING: _("changing"),
    GpuState.OUT_OF_SERVICE: _("out of service"),
    GpuState.DRIFTED: _("not as ordered"),
    GpuState.UNKNOWN: _("holder unknown"),
    GpuState.NO_MIG: _("cannot do MIG"),
}


@dataclass(frozen=True, slots=True)
class StateLink:
    """A state with how many GPUs are in it; a link that filters by it."""

    state: GpuState
    words: str
    count: int
    is_chosen: bool


@dataclass(frozen=True, slots=True)
class NodeGroup:
    """A node's GPUs on the map."""

    node: Node
    state: NodeState
    state_words: str
    gpus: tuple[MapGpu, ...]


@dataclass(frozen=True, slots=True)
class MapLine:
    """A GPU of the map in words, for the table."""

    gpu: Gpu
    states: str
    layout: str
    memory: str
    holders: str

    @classmethod
    def of(cls, row: MapGpu) -> "MapLine":
        """Put what the glyph shows into words."""
        gpu = row.seen.gpu
        return cls(
            gpu=gpu,
            states=_states(row),
            layout=_layout(row),
            memory=gib_words(gpu.memory_mib),
            holders=", ".join(_holders(row)),
        )


@dataclass(frozen=True, slots=True)
class ProfileFacts:
    """A row of a model's profile table."""

    name: str
    gi_profile_id: int | None
    memory: str
    compute: int
    most: int | None
    starts: str
    resource_name: str
    present: int


class MapFilterForm(forms.Form):
    """Which GPUs the map shows."""

    model = forms.ChoiceField(label=_("Model"), required=False)
    node = forms.CharField(label=_("Node"), required=False, max_length=253)
    tenant = forms.ChoiceField(label=_("Tenant"), required=False)
    fits = forms.ChoiceField(label=_("Room for"), required=False)
    state = forms.CharField(required=False, widget=forms.HiddenInput)
    view = forms.CharField(required=False, widget=forms.HiddenInput)

    def offer(self, found: GpuMap) -> None:
        """Offer what there is in the cluster."""
        anything = [("", _("all"))]
        choices = {
            "model": [(model.product, model.name) for model in found.models],
            "tenant": list(found.tenants),
            "fits": [(name, name) for name in found.profiles],
        }
        for name, pairs in choices.items():
            self.fields[name].widget.choices = [*anything, *pairs]


@require_safe
@requires(*_READERS)
def gpu_map_page(request: PortalRequest) -> HttpResponse:
    """Show every GPU as its memory slices and instances, by node."""
    wanted = _wanted(request)
    found = gpu_map(wanted)
    is_table = request.GET.get("view") == "table"
    form = MapFilterForm(initial=asdict(wanted) | {"view": "table" if is_table else ""})
    form.offer(found)
    groups = _groups(found)
    page = page_of(request, groups, size=_NODES_PER_PAGE)
    context = {
        "form": form,
        "found": found,
        "page": page,
        "state_links": _state_links(found, wanted.state),
        "is_filtered": wanted != MapFilter(),
        "is_table": is_table,
        "lines": [MapLine.of(row) for group in page for row in group.gpus] if is_table else [],
        "seen_at": _seen_at(found),
        "live_token": live_token(request, "gpus"),
    }
    return render_page(request, "gpu/gpu_map.html", context, fragments=("gpu-map",))


@dataclass(frozen=True, slots=True)
class Drift:
    """A layout that is not the one that was ordered."""

    ordered: str
    ordered_text: str
    seen: str
    cause: str

    @classmethod
    def of(cls, gpu: Gpu) -> "Drift | None":
        """Put the drift of a GPU into words; None for one that is as ordered."""
        if gpu.drift_since is None or gpu.desired_layout is None:
            return None
        return cls(
            layout_words(gpu.desired_layout),
            stored_wish(gpu.desired_layout).text,
            layout_words(layout_now(gpu)),
            str(DriftCause(gpu.drift_cause).label),
        )


@require_safe
@requires(*_READERS)
def gpu_detail(request: PortalRequest, gpu_id: int) -> HttpResponse:
    """Show what is on one GPU, and what was done to it."""
    row = gpu_seen(gpu_id)
    if row is None:
        raise Http404
    gpu, now = row.seen.gpu, timezone.now()
    history = operations_for_list(OperationFilter(gpu_id=gpu.pk))[:_HISTORY]
    context: dict[str, Any] = {
        "gpu": gpu,
        "row": row,
        "states": [GPU_STATE_WORDS[state] for state in GpuState if state in row.states],
        "memory": gib_words(gpu.memory_mib),
        "profiles": _profiles(row.table, row) if row.table else [],
        "history": [OperationRow.of(operation, now=now) for operation in history],
        "undoable_id": newest_done_id(gpu.node, gpu),
        "may_change": request.user.may(Capability.CHANGE_GPUS),
        "drift": Drift.of(gpu),
        "seen_at": gpu.node.observed_at,
        "live_token": live_token(request, f"gpu-{gpu.pk}", "gpus"),
    }
    return render_page(request, "gpu/gpu_detail.html", context, fragments=("gpu-facts",))


@require_POST
@requires(Capability.CHANGE_GPUS)
def gpu_accept(request: PortalRequest, gpu_id: int) -> HttpResponse:
    """Take what is on a GPU for what was ordered."""
    try:
        accept_layout(get_object_or_404(Gpu, pk=gpu_id).pk, actor=request.user)
    except ServiceError as error:
        messages.error(request, str(error.message))
    else:
        messages.success(request, _("What is on the GPU counts as ordered now."))
    return redirect("gpu:gpu-detail", gpu_id)


def _states(row: MapGpu) -> str:
    return ", ".join(str(GPU_STATE_WORDS[state]) for state in GpuState if state in row.states)


def _layout(row: MapGpu) -> str:
    gpu = row.seen.gpu
    if gpu.replicas > 1 and not gpu.is_mig_enabled:
        return f"{gpu.get_sharing_display()} {TIMES} {gpu.replicas}"
    if row.table is None:
        return str(_("whole GPU"))
    placed = [[item.instance.profile, item.instance.start] for item in row.seen.instances]
    return layout_words({"mig": gpu.is_mig_enabled, "instances": placed})


def _holders(row: MapGpu) -> list[str]:
    """Return who holds something of a GPU: tenants, and Pods that are no tenant's."""
    holds = row.seen.holds
    tenants = {hold.tenant.name for hold in holds if hold.tenant}
    foreign = {str(pod) for hold in holds if not hold.tenant for pod in hold.pods}
    return [*sorted(tenants), *sorted(foreign)]


def _wanted(request: PortalRequest) -> MapFilter:
    """Read the filter out of the address; an unknown state does not filter."""
    given = {name: request.GET.get(name, "").strip() for name in _FILTERS}
    if given["state"] not in set(GpuState):
        given["state"] = ""
    return MapFilter(**given)


def _groups(found: GpuMap) -> list[NodeGroup]:
    sight = Sight(timezone.now(), is_watched="watcher" not in health.broken_parts())
    groups = []
    for node, rows in groupby(found.gpus, key=lambda row: row.seen.gpu.node):
        gpus = tuple(rows)
        is_changing = gpus[0].seen.operation is not None
        state = state_of(node, is_changing=is_changing, sight=sight)
        groups.append(NodeGroup(node, state, str(STATE_WORDS[state]), gpus))
    return groups


def _state_links(found: GpuMap, chosen: str) -> list[StateLink]:
    return [
        StateLink(
            state, str(GPU_STATE_WORDS[state]), found.by_state[state], is_chosen=state == chosen
        )
        for state in GpuState
        if found.by_state.get(state) or state == chosen
    ]


def _seen_at(found: GpuMap) -> datetime | None:
    """Return when the newest news of any shown node came in."""
    times = [row.seen.gpu.node.observed_at for row in found.gpus]
    return max((time for time in times if time), default=None)


def _profiles(table: GpuTable, row: MapGpu) -> list[ProfileFacts]:
    there = Counter(item.instance.profile for item in row.seen.instances)
    return [
        ProfileFacts(
            name=profile.name,
            gi_profile_id=profile.gi_profile_id,
            memory=gib_words(profile.memory_mib),
            compute=profile.compute_slices,
            most=profile.max_instances,
            starts=", ".join(str(place.start) for place in profile.placements),
            resource_name=profile.resource_name,
            present=there[profile.name],
        )
        for profile in table.profiles
    ]
