"""What is known of a GPU model: its MIG table, and how its nodes are labelled."""

from gpu.manifests import PRODUCT_LABEL
from gpu.models import GpuModel, Node
from gpu.planning.tables import GpuTable, table_from_json


def table_of(model: GpuModel) -> GpuTable | None:
    """Return the model's MIG table; None for a GPU that cannot do MIG."""
    return table_from_json(model.table) if model.table else None


def product_labels(model: GpuModel) -> tuple[str, ...]:
    """Return the GPU product labels of the nodes that have the model; its own name if none has."""
    nodes = Node.objects.filter(gpus__model=model, gpus__is_present=True, is_present=True)
    labels = {labels.get(PRODUCT_LABEL) for labels in nodes.values_list("labels", flat=True)}
    return tuple(sorted(label for label in labels if label)) or (model.product,)
