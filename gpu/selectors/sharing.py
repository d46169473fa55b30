"""How a node's GPUs are shared, as proved by ourselves or else as its labels say, late."""

from collections import Counter
from collections.abc import Iterable

from gpu.models import Gpu, Node
from gpu.planning.node_sharing import NodeSharing
from gpu.planning.resources import WHOLE_GPU
from gpu.planning.sharing import SharingStrategy

CONFIG_LABEL = "nvidia.com/device-plugin.config"
PRODUCT_LABEL = "nvidia.com/gpu.product"
_MARKED = "-SHARED"
_REPLICAS, _STRATEGY = ".replicas", ".sharing-strategy"


def proved_sharing(node: Node) -> NodeSharing | None:
    """Return what our last operation proved, while the node still has that configuration."""
    kept = node.desired_sharing
    if kept is None or kept.get("config", "") != node.labels.get(CONFIG_LABEL, ""):
        return None
    return NodeSharing.from_json(kept)


def sharing_of(node: Node) -> NodeSharing:
    """Return how a node is shared, as far as is known."""
    return proved_sharing(node) or labelled_sharing(node)


def labelled_sharing(node: Node) -> NodeSharing:
    """Return what GPU Feature Discovery says; up to a minute late."""
    replicas: dict[str, int] = {}
    strategy = ""
    for key, text in node.labels.items():
        resource = key.removesuffix(_REPLICAS)
        if resource == key or not text.isdigit() or int(text) <= 1:
            continue
        found = node.labels.get(f"{resource}{_STRATEGY}", "")
        if found in {SharingStrategy.TIME_SLICING, SharingStrategy.MPS}:
            strategy = found
            replicas[resource] = int(text)
    if not replicas:
        return NodeSharing()
    has_mark = node.labels.get(PRODUCT_LABEL, _MARKED).endswith(_MARKED)
    is_renamed = WHOLE_GPU in replicas and not has_mark
    return NodeSharing(SharingStrategy(strategy), replicas, is_renamed)


def shares_of(gpu: Gpu, resource: str) -> int:
    """Return how often each device of a resource of a GPU is advertised; reads the GPU's node."""
    proved = proved_sharing(gpu.node)
    if proved is not None:
        return proved.shares_of(resource)
    # The row has one number, that of whole GPUs; instances have labels of their own.
    return labelled_sharing(gpu.node).shares_of(resource) if gpu.is_mig_enabled else gpu.replicas


def key_of(gpu: Gpu, resource: str) -> str:
    """Return under which key a resource of a GPU is advertised; reads the GPU's node."""
    proved = proved_sharing(gpu.node)
    return resource if proved is None else proved.name_of(resource)


def device_counts(gpus: Iterable[Gpu]) -> dict[str, int]:
    """Return how many devices of each resource GPUs have, shared or not; reads their instances."""
    counts: Counter[str] = Counter()
    for gpu in gpus:
        names = [i.resource_name for i in gpu.instances.all()] if gpu.is_mig_enabled else None
        counts.update([WHOLE_GPU] if names is None else names)
    return dict(sorted(counts.items()))
