"""Handing out a kubeconfig for a tenant's namespace; made when asked for, kept nowhere."""

import base64
from collections.abc import Callable
from pathlib import Path

import structlog
import yaml
from django.conf import settings
from django.contrib import messages
from django.core.exceptions import PermissionDenied
from django.http import Http404, HttpResponse, HttpResponseBase
from django.shortcuts import get_object_or_404, redirect
from django.utils.translation import gettext as _
from django.views.decorators.cache import never_cache
from django.views.decorators.debug import sensitive_variables
from django.views.decorators.http import require_POST

from gpu.manifests import MEMBER_NAME
from gpu.ports import Cluster, ClusterError, Endpoint, NotFoundError, RefusedError, Token
from gpu.selectors.requests import requests_for_detail
from gpu.services import kubeconfigs
from gpu.services.errors import NotAllowedError, WrongStateError
from portal.http import PortalRequest

_log = structlog.get_logger(__name__)

_HOUR_S = 3600


@require_POST
@never_cache
@sensitive_variables("token", "text")
def request_kubeconfig(
    request: PortalRequest, request_id: int, *, connect: Callable[[], Cluster]
) -> HttpResponseBase:
    """Return a kubeconfig for the namespace of a ready slice as a file; members only."""
    get_object_or_404(requests_for_detail(request.user), pk=request_id)
    try:
        slice_request = kubeconfigs.check_kubeconfig(request_id, actor=request.user)
    except NotAllowedError as error:
        raise PermissionDenied(str(error.message)) from error
    except WrongStateError as error:
        raise Http404(str(error.message)) from error
    namespace = slice_request.tenant.namespace
    try:
        cluster = connect()
        token = cluster.request_token(
            MEMBER_NAME, namespace, lifetime_s=settings.KUBECONFIG_HOURS * _HOUR_S
        )
        endpoint = _endpoint(cluster)
    except ClusterError as error:
        _log.warning("kubeconfig.not_made", namespace=namespace, error=str(error))
        messages.error(request, _words(error))
        return redirect("gpu:request-detail", request_id)
    kubeconfigs.record_kubeconfig(slice_request, actor=request.user, ends_at=token.ends_at)
    text = kubeconfig(namespace, endpoint, token)
    return HttpResponse(
        text,
        content_type="application/yaml; charset=utf-8",
        headers={
            "Content-Disposition": f'attachment; filename="kubeconfig-{namespace}.yaml"',
            "Cache-Control": "no-store",
        },
    )


def kubeconfig(namespace: str, endpoint: Endpoint, token: Token) -> str:
    """Return a kubeconfig with one context, whose namespace is the tenant's, as YAML."""
    cluster = {"server": endpoint.server}
    if endpoint.certificate_authority:
        data = base64.b64encode(endpoint.certificate_authority.encode())
        cluster["certificate-authority-data"] = data.decode()
    context = {"cluster": "slicedesk", "user": MEMBER_NAME, "namespace": namespace}
    body = {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": "slicedesk", "cluster": cluster}],
        "users": [{"name": MEMBER_NAME, "user": {"token": token.text}}],
        "contexts": [{"name": namespace, "context": context}],
        "current-context": namespace,
    }
    return str(yaml.safe_dump(body, sort_keys=False, width=10_000))


def _endpoint(cluster: Cluster) -> Endpoint:
    """Return the address and authority for people: as set, else as the portal itself has them."""
    own = cluster.endpoint()
    server = settings.KUBECONFIG_SERVER or own.server
    if not settings.KUBECONFIG_CA_FILE:
        return Endpoint(server, own.certificate_authority)
    try:
        return Endpoint(server, Path(settings.KUBECONFIG_CA_FILE).read_text())
    except OSError as error:
        msg = f"KUBECONFIG_CA_FILE names {settings.KUBECONFIG_CA_FILE}: {error.strerror}"
        raise ClusterError(msg) from error


def _words(error: ClusterError) -> str:
    match error:
        case NotFoundError():
            return _("The namespace is still being prepared: try again in a minute.")
        case RefusedError():
            return _(
                "The cluster does not let the portal make a kubeconfig: tell an administrator."
            )
        case _:
            return _("The cluster does not answer just now: try again in a moment.")
