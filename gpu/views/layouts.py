"""The layout editor: put a layout together, see what it means, confirm, start the operation."""

from dataclasses import dataclass
from datetime import datetime
from typing import Any, override

from django import forms
from django.contrib import messages
from django.http import Http404, HttpResponse
from django.shortcuts import redirect
from django.urls import reverse
from django.utils import timezone
from django.utils.translation import gettext_lazy as _
from django.views.decorators.http import require_http_methods, require_safe

from gpu.models import Operation
from gpu.planning.tables import GpuTable
from gpu.selectors.executors import executor_for
from gpu.selectors.freezes import freezes_on
from gpu.selectors.gpus import MapGpu, gpu_seen
from gpu.selectors.operations import open_operation_id
from gpu.services.errors import ServiceError
from gpu.services.operations import Change, start_operation
from gpu.views.freezes import time_input
from gpu.views.layout_editor import build_editor
from gpu.views.layout_glyph import wished_row
from gpu.views.layout_preview import Preview, preview_on_node, recuts_whole
from gpu.views.layout_wish import (
    Wish,
    WishError,
    present_layout,
    problem_by_counts,
    read_wish,
)
from gpu.views.pages import live_token, render_page, requires
from gpu.views.wording import usual_words
from portal.http import PortalRequest
from tenants.permissions import Capability

_FRAGMENTS = ("layout-editor", "layout-preview")


@dataclass(frozen=True, slots=True)
class Desk:
    """A GPU on the editor's desk: how it is, what is wanted, and what is wrong with the wish."""

    row: MapGpu
    table: GpuTable
    present: Wish
    wish: Wish
    problem: str
    is_unlocked: bool
    preview: Preview


class ConfirmForm(forms.Form):
    """How the change is to be made, and the admin's word that its victims were read."""

    layout = forms.CharField(required=False, widget=forms.HiddenInput)
    seen_layout = forms.CharField(required=False, widget=forms.HiddenInput)
    seen_pods = forms.CharField(required=False, widget=forms.HiddenInput)
    pods_in_the_way = forms.ChoiceField(
        label=_("Pods in the way"),
        choices=Operation.PodsInTheWay,
        initial=Operation.PodsInTheWay.WAIT,
        required=False,
        widget=forms.RadioSelect,
    )
    reason = forms.CharField(
        label=_("Reason"),
        max_length=500,
        widget=forms.Textarea(attrs={"rows": 2}),
        help_text=_("Kept in the audit trail and shown on the operation's page."),
        error_messages={"required": _("Say why, so that others can tell later.")},
    )
    wait_hours = forms.IntegerField(
        label=_("Wait at most (hours)"),
        required=False,
        initial=24,
        min_value=1,
        max_value=168,
        help_text=_("If a Pod still runs then, the node is given back and nothing was changed."),
    )
    start_at = forms.DateTimeField(
        label=_("Start at"),
        required=False,
        widget=time_input(),
        help_text=_(
            "Empty means now. Until then nothing is held; if the GPU has changed by then, the"
            " change does not start."
        ),
    )
    node_name = forms.CharField(required=False, label=_("Name of the node"))

    def __init__(self, *args: Any, node: str, preview: Preview, **kwargs: Any) -> None:  # noqa: ANN401  # handed on
        super().__init__(*args, **kwargs)
        self._node = node
        self._preview = preview

    def clean_start_at(self) -> datetime | None:
        """Refuse a time that has passed."""
        start_at: datetime | None = self.cleaned_data["start_at"]
        if start_at is not None and start_at <= timezone.now():
            raise forms.ValidationError(
                _("This time has passed; choose a later one, or leave it empty to start now.")
            )
        return start_at

    @override
    def clean(self) -> None:
        how = self.cleaned_data.get("pods_in_the_way") or Operation.PodsInTheWay.WAIT
        self.cleaned_data["pods_in_the_way"] = how
        evicts = how == Operation.PodsInTheWay.EVICT and self._preview.pods
        if evicts and self.cleaned_data.get("node_name") != self._node:
            self.add_error(
                "node_name",
                _("Type the node's name, %(node)s, to evict Pods of others.")
                % {"node": self._node},
            )


@require_safe
@requires(Capability.CHANGE_GPUS)
def layout_edit(request: PortalRequest, gpu_id: int) -> HttpResponse:
    """Show the editor with its preview; the address keeps the layout, so a click is a link."""
    desk = _desk_or_404(request, gpu_id)
    status = 422 if desk.problem else 200
    return render_page(
        request,
        "gpu/layout_edit.html",
        _editor_context(request, desk),
        fragments=_FRAGMENTS,
        status=status,
    )


@require_safe
@requires(Capability.CHANGE_GPUS)
def layout_preview(request: PortalRequest, gpu_id: int) -> HttpResponse:
    """Show the preview alone; for htmx, which asks again when something on the node changes."""
    desk = _desk_or_404(request, gpu_id)
    return render_page(
        request, "gpu/layout_edit.html#layout-preview", _editor_context(request, desk)
    )


@require_safe
@requires(Capability.CHANGE_GPUS)
def layout_confirm(request: PortalRequest, gpu_id: int) -> HttpResponse:
    """Name everything that the change touches and ask for the admin's word."""
    desk = _desk_or_404(request, gpu_id)
    if desk.problem or desk.preview.is_empty:
        return redirect(f"{_edit_url(gpu_id)}?layout={desk.wish.text}")
    form = ConfirmForm(initial=_seen(desk), node=_node_name(desk), preview=desk.preview)
    return _confirm_page(request, desk, form)


@require_http_methods(["POST"])
@requires(Capability.CHANGE_GPUS)
def layout_apply(request: PortalRequest, gpu_id: int) -> HttpResponse:
    """Start the operation, unless the GPU or its holders changed since the confirmation."""
    desk = _desk_or_404(request, gpu_id)
    form = ConfirmForm(request.POST, node=_node_name(desk), preview=desk.preview)
    if not form.is_valid() or desk.problem:
        return _confirm_page(request, desk, form, status=422)
    now = _seen(desk)
    if any(form.cleaned_data[key] != now[key] for key in ("seen_layout", "seen_pods")):
        fresh = ConfirmForm(
            initial={**form.cleaned_data, **now}, node=_node_name(desk), preview=desk.preview
        )
        sentence = _("The GPU or its holders changed while you looked; read this again.")
        return _confirm_page(request, desk, fresh, status=409, problem=str(sentence))
    change = Change(
        gpu=desk.row.seen.gpu,
        desired=desk.wish.as_json(),
        executor=executor_for(desk.row.seen.gpu.node),
        pods_in_the_way=form.cleaned_data["pods_in_the_way"],
        named_pods=desk.preview.named_pods,
        reason=form.cleaned_data["reason"],
        start_at=form.cleaned_data["start_at"],
        wait_hours=form.cleaned_data["wait_hours"],
        expected=desk.present.as_json(),
    )
    try:
        operation = start_operation(change, actor=request.user)
    except ServiceError as error:
        return _confirm_page(request, desk, form, status=409, problem=str(error.message))
    if operation.start_at is None:
        messages.success(request, _("The operation has been started."))
    else:
        messages.success(request, _("The operation is planned; it can be called off until then."))
    return redirect("gpu:operation-detail", operation.pk)


def _desk_or_404(request: PortalRequest, gpu_id: int) -> Desk:
    """Read the GPU and the wish; a wish that cannot be is shown as a problem beside the present."""
    row = gpu_seen(gpu_id)
    if row is None or row.table is None or not row.table.is_published:
        raise Http404
    given = request.POST if request.method == "POST" else request.GET
    present = present_layout(row.seen.gpu)
    wish, problem = present, ""
    if "layout" in given:
        try:
            wish = read_wish(given["layout"], row.table)
        except WishError as error:
            problem = str(error)
    if not problem and wish != present and recuts_whole(row.seen.gpu):
        problem = problem_by_counts(wish, row.table)
    is_unlocked = given.get("unlock") == "1"
    preview = preview_on_node(row, row.table, wish)
    return Desk(row, row.table, present, wish, problem, is_unlocked, preview)


def _editor_context(request: PortalRequest, desk: Desk) -> dict[str, Any]:
    gpu = desk.row.seen.gpu
    return {
        "gpu": gpu,
        "freezes": freezes_on(gpu.node_id, timezone.now()),
        "may_change": True,
        "row": desk.row,
        "wanted_row": wished_row(desk.row, desk.table, desk.wish),
        "wish": desk.wish,
        "present": desk.present,
        "problem": desk.problem,
        "is_unlocked": desk.is_unlocked,
        "editor": build_editor(desk.row.seen, desk.table, desk.wish, is_unlocked=desk.is_unlocked),
        "preview": desk.preview,
        "under_way": open_operation_id(gpu.node_id),
        "usual_duration": usual_words(),
        "live_token": live_token(request, f"gpu-{gpu.pk}", f"node-{gpu.node.name}"),
    }


def _confirm_page(
    request: PortalRequest,
    desk: Desk,
    form: ConfirmForm,
    *,
    status: int = 200,
    problem: str = "",
) -> HttpResponse:
    context = {
        "gpu": desk.row.seen.gpu,
        "row": desk.row,
        "wanted_row": wished_row(desk.row, desk.table, desk.wish),
        "wish": desk.wish,
        "present": desk.present,
        "preview": desk.preview,
        "form": form,
        "problem": problem or desk.problem,
        "under_way": open_operation_id(desk.row.seen.gpu.node_id),
        "freezes": freezes_on(desk.row.seen.gpu.node_id, timezone.now()),
        "usual_duration": usual_words(),
    }
    return render_page(request, "gpu/layout_confirm.html", context, status=status)


def _seen(desk: Desk) -> dict[str, str]:
    """Return what the admin is shown, so that a later answer can be held against it."""
    return {
        "layout": desk.wish.text,
        "seen_layout": desk.present.text,
        "seen_pods": ",".join(desk.preview.named_pods),
    }


def _node_name(desk: Desk) -> str:
    return desk.row.seen.gpu.node.name


def _edit_url(gpu_id: int) -> str:
    return reverse("gpu:layout-edit", args=[gpu_id])
