"""MIG tables as stored with GPU models."""

from gpu.models import GpuModel
from gpu.planning.tables import GpuTable, table_from_json


def table_of(model: GpuModel) -> GpuTable | None:
    """Return the model's MIG table; None for a GPU that cannot do MIG."""
    return table_from_json(model.table) if model.table else None
