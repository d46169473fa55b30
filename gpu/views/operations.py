"""Operations: the list, one with its timeline and evidence, and its undo."""

from django import forms
from django.contrib import messages
from django.http import HttpResponse
from django.shortcuts import get_object_or_404, redirect
from django.utils import timezone
from django.utils.translation import gettext_lazy as _
from django.views.decorators.http import require_http_methods, require_safe

from gpu.models import Operation
from gpu.selectors import operations as selectors
from gpu.selectors.freezes import freezes_on
from gpu.selectors.gpus import gpu_seen
from gpu.selectors.operations import OperationFilter
from gpu.services import operations as services
from gpu.services.errors import ServiceError
from gpu.views.layout_preview import Preview, preview_on_node
from gpu.views.layout_wish import stored_wish
from gpu.views.pages import live_token, page_of, render_page, requires
from gpu.views.recovery import recovery_of
from gpu.views.sharing import sharing_undo_preview
from gpu.views.timelines import OperationRow, OperationStory
from gpu.views.wording import usual_words
from portal.http import PortalRequest
from tenants.permissions import Capability

_READERS = (Capability.SEE_CLUSTER, Capability.SEE_OVERVIEW)


class OperationFilterForm(forms.Form):
    """Which operations to show."""

    state = forms.ChoiceField(
        label=_("State"),
        required=False,
        choices=[
            ("", _("all")),
            (selectors.UNDER_WAY, _("under way")),
            (Operation.State.DONE, _("done")),
            (selectors.FAILED, _("failed or rolled back")),
        ],
    )
    node = forms.CharField(label=_("Node"), required=False, max_length=253)
    by = forms.CharField(label=_("Started by"), required=False, max_length=150)

    @property
    def wanted(self) -> OperationFilter:
        """Return the filter; what was not understood does not filter."""
        self.is_valid()
        return OperationFilter(**{key: text for key, text in self.cleaned_data.items() if text})


@require_safe
@requires(*_READERS)
def operation_list(request: PortalRequest) -> HttpResponse:
    """List operations, newest first."""
    form = OperationFilterForm(request.GET)
    page = page_of(request, selectors.operations_for_list(form.wanted))
    now = timezone.now()
    context = {
        "form": form,
        "page": page,
        "rows": [OperationRow.of(operation, now=now) for operation in page],
        "freezes": freezes_on(None, now),
        "may_change": request.user.may(Capability.CHANGE_GPUS),
        "is_filtered": any(request.GET.get(name) for name in form.fields),
        "live_token": live_token(request, "operations"),
    }
    return render_page(request, "gpu/operation_list.html", context, fragments=("operation-table",))


@require_safe
@requires(*_READERS)
def operation_detail(request: PortalRequest, operation_id: int) -> HttpResponse:
    """Show how one operation goes, or went."""
    operation = get_object_or_404(selectors.operations_for_detail(), pk=operation_id)
    context = {
        "operation": operation,
        "story": OperationStory.of(operation, now=timezone.now()),
        "recovery": recovery_of(operation),
        "row": None if operation.gpu_id is None else gpu_seen(operation.gpu_id),
        "may_undo": request.user.may(Capability.CHANGE_GPUS) and _can_be_undone(operation),
        "may_call_off": request.user.may(Capability.CHANGE_GPUS)
        and operation.state in services.CAN_BE_CALLED_OFF,
        "live_token": live_token(request, f"operation-{operation_id}"),
    }
    return render_page(
        request, "gpu/operation_detail.html", context, fragments=("operation-story",)
    )


@require_http_methods(["GET", "HEAD", "POST"])
@requires(Capability.CHANGE_GPUS)
def operation_undo(request: PortalRequest, operation_id: int) -> HttpResponse:
    """Ask whether to put the GPU back, and do it."""
    operation = get_object_or_404(selectors.operations_for_detail(), pk=operation_id)
    problem: ServiceError | None = None
    if request.method == "POST":
        try:
            undo = services.undo_operation(operation_id, actor=request.user)
        except ServiceError as error:
            problem = error
        else:
            messages.success(request, _("The undo has been started."))
            return redirect("gpu:operation-detail", undo.pk)
    context = {
        "operation": operation,
        "story": OperationStory.of(operation, now=timezone.now()),
        "problem": problem,
        "gpu": operation.gpu,
        "preview": _undo_preview(operation),
        "sharing_preview": sharing_undo_preview(operation),
        "node": operation.node,
        "usual_duration": usual_words(),
    }
    return render_page(request, "gpu/operation_undo.html", context, status=409 if problem else 200)


def _undo_preview(operation: Operation) -> Preview | None:
    """Return what going back would do; None where there is nothing to go back to."""
    row = None if operation.gpu_id is None else gpu_seen(operation.gpu_id)
    if row is None or row.table is None or operation.previous is None:
        return None
    return preview_on_node(row, row.table, stored_wish(operation.previous))


def _can_be_undone(operation: Operation) -> bool:
    """Say whether this is the newest change of its GPU that is done, and no undo of it is open."""
    return (
        operation.state == Operation.State.DONE
        and operation.previous is not None
        and all(undo.is_finished for undo in operation.undone_by.all())
        and selectors.newest_done_id(operation.node, operation.gpu) == operation.pk
    )
