"""Change freezes: the list, setting one, and lifting it."""

from datetime import timedelta

from django import forms
from django.contrib import messages
from django.http import Http404, HttpResponse
from django.shortcuts import redirect
from django.utils import timezone
from django.utils.translation import gettext_lazy as _
from django.views.decorators.http import require_http_methods

from gpu.models import ChangeFreeze, Node
from gpu.selectors.freezes import freezes_for_list
from gpu.services import freezes as services
from gpu.services.errors import ServiceError
from gpu.views.pages import page_of, render_page, requires
from portal.http import PortalRequest
from tenants.permissions import Capability


def time_input() -> forms.DateTimeInput:
    """Return an input of the browser's own for a day and a time."""
    return forms.DateTimeInput(attrs={"type": "datetime-local"}, format="%Y-%m-%dT%H:%M")


class FreezeForm(forms.Form):
    """Where no change may start, until when, and why."""

    node = forms.ModelChoiceField(
        label=_("Where"),
        required=False,
        queryset=Node.objects.filter(is_present=True).order_by("name"),
        empty_label=_("all nodes"),
    )
    ends_at = forms.DateTimeField(
        label=_("Until"),
        widget=time_input(),
        error_messages={
            "required": _("Say until when; it can be lifted before."),
            "invalid": _("This is no date with a time, such as 2030-05-31 18:00."),
        },
    )
    reason = forms.CharField(
        label=_("Reason"),
        max_length=200,
        help_text=_("Shown to everybody who wants to change a GPU, so that they know."),
        error_messages={"required": _("Say why, so that others can plan.")},
    )


@require_http_methods(["GET", "HEAD", "POST"])
@requires(Capability.CHANGE_GPUS)
def freeze_list(request: PortalRequest) -> HttpResponse:
    """Show when no change may start, and let an admin say so."""
    now = timezone.now()
    form = FreezeForm(
        initial={
            "ends_at": timezone.localtime(now + timedelta(days=1)),
            "node": request.GET.get("node", ""),
        }
    )
    status = 200
    if request.method == "POST":
        form = FreezeForm(request.POST)
        if form.is_valid() and _set(form, request):
            messages.success(request, _("No new change starts there now."))
            return redirect("gpu:freeze-list")
        status = 422
    page = page_of(request, freezes_for_list(now))
    context = {"form": form, "page": page, "rows": list(page), "now": now}
    return render_page(request, "gpu/freeze_list.html", context, status=status)


@require_http_methods(["POST"])
@requires(Capability.CHANGE_GPUS)
def freeze_lift(request: PortalRequest, freeze_id: int) -> HttpResponse:
    """End a freeze before its time."""
    try:
        services.lift(freeze_id, actor=request.user)
    except ChangeFreeze.DoesNotExist as error:
        raise Http404 from error
    except ServiceError as error:
        messages.error(request, str(error.message))
    else:
        messages.success(request, _("The freeze has been lifted; changes may start again."))
    return redirect("gpu:freeze-list")


def _set(form: FreezeForm, request: PortalRequest) -> bool:
    given = form.cleaned_data
    try:
        services.freeze(
            given["node"],
            reason=given["reason"],
            ends_at=given["ends_at"],
            actor=request.user,
        )
    except ServiceError as error:
        form.add_error(error.field or None, str(error.message))
        return False
    return True
