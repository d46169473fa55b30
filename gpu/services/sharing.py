"""Taking over how a node's GPUs are shared once that has been proved."""

from gpu.models import Gpu, Node
from gpu.planning.node_sharing import NodeSharing
from gpu.planning.resources import WHOLE_GPU
from gpu.selectors.sharing import CONFIG_LABEL, sharing_of


def record_sharing(node_id: int, sharing: NodeSharing, *, config: str) -> None:
    """Keep a node's sharing and the configuration that brings it, in the caller's transaction.

    It counts at once: the labels that tell of it come up to a minute later.
    """
    node = Node.objects.select_for_update().get(pk=node_id)
    node.desired_sharing = {**sharing.to_json(), "config": config}
    node.labels = {key: value for key, value in node.labels.items() if key != CONFIG_LABEL}
    if config:
        node.labels[CONFIG_LABEL] = config
    node.save(update_fields=["desired_sharing", "labels"])
    for gpu in Gpu.objects.filter(node=node, is_present=True):
        gpu.sharing, gpu.replicas = shown_sharing(node, is_mig_enabled=gpu.is_mig_enabled)
        gpu.save(update_fields=["sharing", "replicas"])


def shown_sharing(node: Node, *, is_mig_enabled: bool) -> tuple[str, int]:
    """Return strategy and shares that the row of a GPU of the node carries.

    The row has one number, that of whole GPUs: instances of several profiles on one GPU may have
    several, which are the node's.
    """
    sharing = sharing_of(node)
    if is_mig_enabled:
        return Gpu.Sharing.NONE, 1
    shares = sharing.shares_of(WHOLE_GPU)
    return (Gpu.Sharing(sharing.strategy) if shares > 1 else Gpu.Sharing.NONE), shares
