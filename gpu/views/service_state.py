"""Taking a GPU out of service and back, and calling an operation off."""

from django.contrib import messages
from django.http import Http404, HttpResponse
from django.shortcuts import get_object_or_404, redirect
from django.utils.translation import gettext_lazy as _
from django.views.decorators.http import require_http_methods

from gpu.models import Gpu, Operation
from gpu.services import operations, service_state
from gpu.services.errors import ServiceError
from gpu.views.pages import render_page, requires
from portal.http import PortalRequest
from tenants.permissions import Capability

_NOTE_LENGTH = Gpu._meta.get_field("service_note").max_length  # noqa: SLF001  # Django's public API


@require_http_methods(["GET", "HEAD", "POST"])
@requires(Capability.CHANGE_GPUS)
def gpu_service(request: PortalRequest, gpu_id: int) -> HttpResponse:
    """Ask for a note and take a GPU out of service, or put it back."""
    rows = Gpu.objects.select_related("node", "model")
    gpu = get_object_or_404(rows, pk=gpu_id, is_present=True)
    problem, status = "", 200
    if request.method == "POST":
        try:
            _switch(request, gpu)
        except ServiceError as error:
            problem = str(error.message)
            status = 422 if error.field else 409
        else:
            return redirect("gpu:gpu-detail", gpu.pk)
    context = {"gpu": gpu, "problem": problem, "note": request.POST.get("note", "")}
    return render_page(request, "gpu/gpu_service.html", context, status=status)


@require_http_methods(["POST"])
@requires(Capability.CHANGE_GPUS)
def operation_call_off(request: PortalRequest, operation_id: int) -> HttpResponse:
    """Call an operation off that has not begun to change anything."""
    try:
        operations.call_off(operation_id, actor=request.user)
    except Operation.DoesNotExist as error:
        raise Http404 from error
    except ServiceError as error:
        messages.error(request, str(error.message))
    else:
        messages.success(request, _("The operation has been called off."))
    return redirect("gpu:operation-detail", operation_id)


def _switch(request: PortalRequest, gpu: Gpu) -> None:
    if request.POST.get("action") == "back":
        service_state.put_back_in_service(gpu.pk, actor=request.user)
        messages.success(request, _("The GPU is in service again."))
        return
    note = request.POST.get("note", "")[:_NOTE_LENGTH]
    service_state.take_out_of_service(gpu.pk, note=note, actor=request.user)
    messages.success(request, _("The GPU is out of service; nobody new gets it."))
