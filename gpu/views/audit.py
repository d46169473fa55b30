"""The audit trail: who did what, when, and why."""

import json
from dataclasses import dataclass
from typing import override

from django import forms
from django.http import HttpResponse
from django.urls import reverse
from django.utils.translation import gettext_lazy as _
from django.views.decorators.http import require_safe

from gpu.views.pages import page_of, render_page, requires
from portal.audit.models import AuditEvent
from portal.audit.selectors import AuditFilter, audit_events
from portal.http import PortalRequest
from tenants.permissions import Capability

VERBS = {
    "request.submitted": _("asked for a slice"),
    "request.approved": _("approved a request"),
    "request.declined": _("declined a request"),
    "request.withdrawn": _("withdrew a request"),
    "request.placed": _("found room for a request"),
    "request.ready": _("made a slice ready"),
    "allocation.granted": _("granted a slice"),
    "allocation.ended": _("ended a slice"),
    "kubeconfig.issued": _("took a kubeconfig"),
    "operation.opened": _("started an operation"),
    "operation.failed": _("a step of an operation failed"),
    "operation.done": _("finished an operation"),
    "operation.called_off": _("called an operation off"),
    "operation.rolled_back": _("rolled an operation back"),
    "operation.needs_operator": _("left an operation to an admin"),
    "freeze.set": _("let no change start for a time"),
    "freeze.lifted": _("lifted a change freeze"),
    "gpu.drifted": _("found a GPU not as ordered"),
    "gpu.drift_accepted": _("accepted a GPU as it is"),
    "gpu.out_of_service": _("took a GPU out of service"),
    "gpu.in_service": _("put a GPU back in service"),
    "tenant.created": _("created a tenant"),
    "tenant.member_set": _("set a member's role"),
    "tenant.quota_changed": _("changed a quota"),
}


@dataclass(frozen=True, slots=True)
class AuditRow:
    """One event as the list shows it; `url` is empty where the target has no page."""

    event: AuditEvent
    words: str
    url: str
    detail: str
    operation_id: int | None

    @classmethod
    def of(cls, event: AuditEvent) -> "AuditRow":
        """Put an event into words."""
        detail = dict(event.detail)
        operation_id = detail.pop("operation", None)
        return cls(
            event=event,
            words=str(VERBS.get(event.verb, event.verb)),
            url=_url_of(event.target),
            detail=json.dumps(detail, ensure_ascii=False, indent=2) if detail else "",
            operation_id=operation_id if isinstance(operation_id, int) else None,
        )


class AuditFilterForm(forms.Form):
    """What of the trail to show."""

    actor = forms.CharField(label=_("Who"), required=False, max_length=150)
    verb = forms.ChoiceField(
        label=_("Did what"), required=False, choices=[("", _("anything")), *VERBS.items()]
    )
    target = forms.CharField(label=_("To what"), required=False, max_length=160)
    since = forms.DateField(
        label=_("From"),
        required=False,
        widget=forms.DateInput(attrs={"type": "date"}, format="%Y-%m-%d"),
    )
    until = forms.DateField(
        label=_("To"),
        required=False,
        widget=forms.DateInput(attrs={"type": "date"}, format="%Y-%m-%d"),
    )

    @override
    def clean(self) -> None:
        since, until = self.cleaned_data.get("since"), self.cleaned_data.get("until")
        if since and until and until < since:
            self.add_error("until", _("The last day lies before the first; swap them."))

    @property
    def wanted(self) -> AuditFilter:
        """Return the filter; what was not understood does not filter."""
        self.is_valid()
        given = {name: value for name, value in self.cleaned_data.items() if value}
        return AuditFilter(**given)


@require_safe
@requires(Capability.CHANGE_GPUS)
def audit_list(request: PortalRequest) -> HttpResponse:
    """List what was done, newest first."""
    form = AuditFilterForm(request.GET)
    page = page_of(request, audit_events(form.wanted), size=50)
    context = {
        "form": form,
        "page": page,
        "rows": [AuditRow.of(event) for event in page],
        "is_filtered": any(request.GET.get(name) for name in form.fields),
    }
    return render_page(request, "gpu/audit_list.html", context, fragments=("audit-table",))


def _url_of(target: str) -> str:
    kind, _slash, key = target.partition("/")
    if kind == "request" and key.isdecimal():
        return reverse("gpu:request-detail", args=[int(key)])
    if kind == "node" and key:
        return reverse("gpu:node-detail", args=[key])
    return ""
