"""Changing how a node's GPUs are shared: say how, see what it means, confirm, start it."""

import json
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlencode

from django.contrib import messages
from django.http import HttpResponse, QueryDict
from django.shortcuts import get_object_or_404, redirect
from django.urls import reverse
from django.utils.translation import gettext_lazy as _
from django.views.decorators.http import require_http_methods, require_safe

from gpu.models import Gpu, Node, Operation
from gpu.planning.node_sharing import NodeSharing
from gpu.selectors.operations import open_operation_id
from gpu.selectors.sharing import sharing_of
from gpu.services.errors import ServiceError
from gpu.services.operations import Change, start_operation
from gpu.views.pages import render_page, requires
from gpu.views.sharing_form import SharingConfirmForm, SharingForm, field_name
from gpu.views.sharing_preview import (
    SharingPreview,
    build_preview,
    present_gpus_of,
    share_lines,
)
from gpu.views.wording import sharing_words, usual_words
from portal.http import PortalRequest
from tenants.permissions import Capability


@dataclass(frozen=True, slots=True)
class _Desk:
    """A node on the admin's desk, and how it is shared now."""

    node: Node
    gpus: list[Gpu]
    present: NodeSharing

    @classmethod
    def of(cls, name: str) -> "_Desk":
        node = get_object_or_404(Node, name=name, is_present=True)
        return cls(node, present_gpus_of(node), sharing_of(node))

    def form(self, data: QueryDict | None = None) -> SharingForm:
        initial: dict[str, Any] = {"strategy": str(self.present.strategy)}
        lines = tuple(share_lines(self.gpus, self.present))
        initial |= {field_name(line.resource): line.shares for line in lines}
        return SharingForm(data, lines=lines, initial=initial)


@require_safe
@requires(Capability.CHANGE_GPUS)
def sharing_edit(request: PortalRequest, name: str) -> HttpResponse:
    """Ask how the node's GPUs are to be shared."""
    desk = _Desk.of(name)
    form = desk.form(request.GET if "strategy" in request.GET else None)
    return _edit_page(request, desk, form)


@require_safe
@requires(Capability.CHANGE_GPUS)
def sharing_confirm(request: PortalRequest, name: str) -> HttpResponse:
    """Say what it means, name everything that it touches, and ask for the admin's word."""
    desk = _Desk.of(name)
    form = desk.form(request.GET)
    if not form.is_valid():
        return _edit_page(request, desk, form, status=422)
    preview = build_preview(desk.node, desk.gpus, form.sharing)
    if preview.is_empty:
        return _edit_page(request, desk, form, is_same=True)
    confirm = SharingConfirmForm(initial=_seen(desk, preview), node=desk.node.name, preview=preview)
    return _confirm_page(request, desk, preview, confirm)


@require_http_methods(["POST"])
@requires(Capability.CHANGE_GPUS)
def sharing_apply(request: PortalRequest, name: str) -> HttpResponse:
    """Start the operation, unless the node or its Pods changed since the confirmation."""
    desk = _Desk.of(name)
    wanted = desk.form(request.POST)
    if not wanted.is_valid():
        return _edit_page(request, desk, wanted, status=422)
    preview = build_preview(desk.node, desk.gpus, wanted.sharing)
    form = SharingConfirmForm(request.POST, node=desk.node.name, preview=preview)
    if not form.is_valid():
        return _confirm_page(request, desk, preview, form, status=422)
    now = _seen(desk, preview)
    if any(form.cleaned_data[key] != now[key] for key in now):
        fresh = SharingConfirmForm(
            initial={**form.cleaned_data, **now}, node=desk.node.name, preview=preview
        )
        problem = str(_("The node or its Pods changed while you looked; read this again."))
        return _confirm_page(request, desk, preview, fresh, status=409, problem=problem)
    change = Change(
        gpu=None,
        node=desk.node,
        executor=Operation.Executor.DEVICE_PLUGIN,
        desired={"sharing": wanted.sharing.to_json()},
        pods_in_the_way=form.cleaned_data["pods_in_the_way"],
        named_pods=preview.named_pods,
        reason=form.cleaned_data["reason"],
    )
    try:
        operation = start_operation(change, actor=request.user)
    except ServiceError as error:
        problem = str(error.message)
        return _confirm_page(request, desk, preview, form, status=409, problem=problem)
    messages.success(request, _("The operation has been started."))
    return redirect("gpu:operation-detail", operation.pk)


def sharing_undo_preview(operation: Operation) -> SharingPreview | None:
    """Return what going back to the former sharing would do; None where there is nothing."""
    if operation.gpu_id is not None or operation.previous is None:
        return None
    node = Node.objects.get(pk=operation.node_id)
    former = NodeSharing.from_json(operation.previous["sharing"])
    return build_preview(node, present_gpus_of(node), former)


def _edit_page(
    request: PortalRequest,
    desk: _Desk,
    form: SharingForm,
    *,
    status: int = 200,
    is_same: bool = False,
) -> HttpResponse:
    context = {
        "node": desk.node,
        "form": form,
        "present_words": sharing_words(desk.present.to_json()),
        "is_same": is_same,
        "under_way": open_operation_id(desk.node.pk),
    }
    return render_page(request, "gpu/sharing_edit.html", context, status=status)


def _confirm_page(  # noqa: PLR0913  # keyword-only where it counts
    request: PortalRequest,
    desk: _Desk,
    preview: SharingPreview,
    form: SharingConfirmForm,
    *,
    status: int = 200,
    problem: str = "",
) -> HttpResponse:
    wanted = preview.wanted
    chosen = {"strategy": str(wanted.strategy)}
    chosen |= {field_name(key): str(count) for key, count in wanted.replicas.items()}
    edit = reverse("gpu:sharing-edit", args=[desk.node.name])
    context = {
        "node": desk.node,
        "preview": preview,
        "form": form,
        "chosen": chosen,
        "back_url": f"{edit}?{urlencode(chosen)}",
        "present_words": sharing_words(preview.present.to_json()),
        "wanted_words": sharing_words(wanted.to_json()),
        "problem": problem,
        "under_way": open_operation_id(desk.node.pk),
        "usual_duration": usual_words(),
    }
    return render_page(request, "gpu/sharing_confirm.html", context, status=status)


def _seen(desk: _Desk, preview: SharingPreview) -> dict[str, str]:
    """Return what the admin is shown, so that a later answer can be held against it."""
    return {
        "seen_sharing": json.dumps(desk.present.to_json(), sort_keys=True),
        "seen_pods": ",".join(preview.named_pods),
    }
