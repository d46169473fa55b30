"""Pages that belong to no application: health and errors."""

import sys

from django.contrib.auth.decorators import login_not_required
from django.core.exceptions import PermissionDenied
from django.http import HttpRequest, HttpResponse, JsonResponse
from django.shortcuts import redirect, render
from django.urls import reverse
from django.views.decorators.cache import never_cache
from django.views.decorators.http import require_safe

from portal import health
from portal.outage import is_database_outage, outage_response


@require_safe
@login_not_required
@never_cache
def healthz(_request: HttpRequest) -> HttpResponse:
    """Say that this process answers; looks at nothing else."""
    return HttpResponse("ok\n", content_type="text/plain")


@require_safe
@login_not_required
@never_cache
def readyz(_request: HttpRequest) -> JsonResponse:
    """Say how each part stands; 503 only when pages could not be served."""
    report = health.report()
    return JsonResponse(report.as_json(), status=503 if report.state == "down" else 200)


@login_not_required
def admin_sign_in(request: HttpRequest) -> HttpResponse:
    """Send visitors of the admin to our sign-in page; who is signed in already may not enter."""
    if request.user.is_authenticated:
        raise PermissionDenied
    query = request.GET.urlencode(safe="/")
    return redirect(f"{reverse('sign-in')}?{query}")


def server_error(request: HttpRequest) -> HttpResponse:
    """Answer an unexpected error; a database outage outside of views lands here too."""
    if is_database_outage(sys.exception()):
        return outage_response(request)
    return render(
        request, "500.html", {"request_id": getattr(request, "request_id", "")}, status=500
    )
