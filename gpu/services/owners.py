"""Refusing to change what somebody else divides."""

from django.utils.translation import gettext_lazy as _

from gpu.models import Node
from gpu.services.errors import ServiceError


class OwnedError(ServiceError):
    """Another program divides the GPUs of the node; two cannot."""


def refuse_if_owned(node: Node) -> None:
    """Raise `OwnedError` when another program divides the GPUs of the node."""
    if node.gpu_owner:
        raise OwnedError(
            _(
                "%(owner)s divides the GPUs of %(node)s, and only one may: remove %(owner)s from"
                " this node first, or leave the node to it."
            )
            % {"owner": node.gpu_owner, "node": node.name}
        )
