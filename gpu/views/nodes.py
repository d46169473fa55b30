"""Nodes: the list, and one with what it offers against what it should."""

from dataclasses import dataclass

from django import forms
from django.http import HttpResponse
from django.shortcuts import get_object_or_404
from django.utils import timezone
from django.utils.translation import gettext_lazy as _
from django.views.decorators.http import require_safe

from gpu.models import GpuModel, Node
from gpu.selectors import nodes as selectors
from gpu.selectors.freezes import freezes_on
from gpu.selectors.gpus import gpus_of_node
from gpu.selectors.nodes import Disagreement, NodeState, ResourceRow, Sight
from gpu.selectors.occupancy import live_pods
from gpu.selectors.operations import OperationFilter, open_operation_id, operations_for_list
from gpu.selectors.sharing import sharing_of
from gpu.views.pages import live_token, page_of, render_page, requires
from gpu.views.timelines import OperationRow
from gpu.views.wording import sharing_words
from portal import health
from portal.http import PortalRequest
from tenants.permissions import Capability

_READERS = (Capability.SEE_CLUSTER, Capability.SEE_OVERVIEW)
_HISTORY = 5
_SHOWN_LABELS = ("nvidia.com/", "slicedesk.io/", "node.kubernetes.io/instance-type")

STATE_WORDS = {
    NodeState.READY: _("ready"),
    NodeState.CHANGING: _("changing"),
    NodeState.CORDONED: _("cordoned"),
    NodeState.NOT_READY: _("not ready"),
    NodeState.STALE: _("stale"),
}
DISAGREEMENT_WORDS = {
    Disagreement.CHANGING: _("A change is under way; the figures meet when it has ended."),
    Disagreement.NOT_REGISTERED: _(
        "The device plugin offers fewer devices than the driver shows; it lists them only when it"
        " starts, so restart its Pod on this node."
    ),
    Disagreement.STILL_OFFERED: _(
        "The device plugin still offers devices that the driver does not show any more; restart"
        " its Pod on this node before somebody is given one of them."
    ),
    Disagreement.CAPACITY_KEPT: _(
        "Capacity is larger than allocatable: devices are gone or unhealthy, and the kubelet"
        " keeps their number in capacity for a while."
    ),
    Disagreement.HELD_BUT_GONE: _(
        "Pods ask for more than the node can give; some of them hold devices that have gone."
    ),
    Disagreement.NOT_GRANTED: _("Held by Pods in namespaces that belong to no tenant:"),
    Disagreement.NOT_READ: _(
        "The GPUs of this node have not been read yet, so nothing is expected."
    ),
}


@dataclass(frozen=True, slots=True)
class NodeRow:
    """A node as the list shows it."""

    node: Node
    state: NodeState
    state_words: str
    models: str
    gpu_count: int
    pod_count: int


@dataclass(frozen=True, slots=True)
class ResourceLine:
    """A resource's figures with the sentences that explain them."""

    row: ResourceRow
    notes: tuple[str, ...]

    @property
    def is_uneven(self) -> bool:
        """Say whether something has to be explained."""
        return bool(self.notes)


class NodeFilterForm(forms.Form):
    """Which nodes to show."""

    name = forms.CharField(label=_("Name"), required=False, max_length=253)
    model = forms.ModelChoiceField(
        label=_("GPU model"),
        required=False,
        queryset=GpuModel.objects.order_by("product"),
        to_field_name="product",
        empty_label=_("all"),
    )


@require_safe
@requires(*_READERS)
def node_list(request: PortalRequest) -> HttpResponse:
    """List the nodes that have GPUs."""
    form = NodeFilterForm(request.GET)
    form.is_valid()
    model = form.cleaned_data.get("model")
    nodes = selectors.nodes_for_list(
        name=form.cleaned_data.get("name", ""), product=model.product if model else ""
    )
    page = page_of(request, nodes)
    sight = _sight()
    context = {
        "form": form,
        "page": page,
        "rows": [_row(node, sight) for node in page],
        "is_filtered": any(request.GET.get(name) for name in form.fields),
        "live_token": live_token(request, "nodes"),
    }
    return render_page(request, "gpu/node_list.html", context, fragments=("node-table",))


@require_safe
@requires(*_READERS)
def node_detail(request: PortalRequest, name: str) -> HttpResponse:
    """Show whether a node offers what it has."""
    node = get_object_or_404(Node, name=name)
    under_way = open_operation_id(node.pk)
    state = selectors.state_of(node, is_changing=under_way is not None, sight=_sight())
    now = timezone.now()
    history = operations_for_list(OperationFilter(node_id=node.pk))[:_HISTORY]
    context = {
        "node": node,
        "state": state,
        "state_words": STATE_WORDS[state],
        "under_way": under_way,
        "freezes": freezes_on(node.pk, now),
        "resources": [
            _line(row) for row in selectors.resources_of(node, is_changing=under_way is not None)
        ],
        "sharing_words": sharing_words(sharing_of(node).to_json()),
        "pools": selectors.pools_of(node),
        "gpus": gpus_of_node(node.pk),
        "pods": live_pods([node.pk]),
        "labels": sorted(_labels(node).items()),
        "history": [OperationRow.of(operation, now=now) for operation in history],
        "may_change": request.user.may(Capability.CHANGE_GPUS),
        "seen_at": node.observed_at,
        "live_token": live_token(request, f"node-{node.name}", "gpus"),
    }
    return render_page(
        request, "gpu/node_detail.html", context, fragments=("node-facts", "node-gpus")
    )


def _sight() -> Sight:
    return Sight(timezone.now(), is_watched="watcher" not in health.broken_parts())


def _row(node: Node, sight: Sight) -> NodeRow:
    gpus = node.present_gpus  # type: ignore[attr-defined]  # prefetched by the selector
    state = selectors.state_of(node, is_changing=node.is_changing, sight=sight)  # type: ignore[attr-defined]
    return NodeRow(
        node=node,
        state=state,
        state_words=str(STATE_WORDS[state]),
        models=", ".join(sorted({gpu.model.name for gpu in gpus})),
        gpu_count=len(gpus),
        pod_count=node.pod_count,  # type: ignore[attr-defined]  # annotated
    )


def _line(row: ResourceRow) -> ResourceLine:
    notes = []
    for disagreement in row.disagreements:
        words = str(DISAGREEMENT_WORDS[disagreement])
        if disagreement == Disagreement.NOT_GRANTED:
            words = f"{words} {', '.join(row.foreign)}"
        notes.append(words)
    return ResourceLine(row, tuple(notes))


def _labels(node: Node) -> dict[str, str]:
    return {key: value for key, value in node.labels.items() if key.startswith(_SHOWN_LABELS)}
