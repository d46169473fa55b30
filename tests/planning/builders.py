"""Small builders for tables, layouts and snapshots."""

from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path

from gpu.planning.catalogue import find_table
from gpu.planning.demands import Demand, Isolation, Option
from gpu.planning.geometry import Instance
from gpu.planning.notation import parse_current
from gpu.planning.plans import GpuPlan
from gpu.planning.refusals import NoPlan
from gpu.planning.snapshot import (
    Beside,
    ClusterSnapshot,
    GpuMode,
    GpuSnapshot,
    InstanceSnapshot,
    NodeSnapshot,
)
from gpu.planning.tables import GpuTable

FIXTURES = Path(__file__).parents[1] / "fixtures"

A100 = find_table("a100-40gb")
A100_80 = find_table("a100-80gb")
A30 = find_table("a30-24gb")
H200 = find_table("h200-141gb-sxm")
RTX_PRO = find_table("rtx-pro-6000-blackwell-96gb")
PLENTY = Beside(128_000, 1_000_000, 2_000_000)


def fixture(name: str) -> str:
    return (FIXTURES / name).read_text(encoding="utf-8")


def only(table: GpuTable, *names: str) -> GpuTable:
    """Return the table with just these profiles."""
    profiles = tuple(item for item in table.profiles if item.name in names)
    return replace(table, id=f"{table.id}:{'+'.join(names)}", profiles=profiles)


def layout(text: str) -> tuple[Instance, ...]:
    current = parse_current(text)
    return (*current.free, *current.in_use)


def shown(instances: Iterable[Instance]) -> str:
    return " ".join(map(str, instances))


def planned(plan: GpuPlan | NoPlan) -> GpuPlan:
    assert isinstance(plan, GpuPlan), plan
    return plan


def refused(plan: GpuPlan | NoPlan) -> NoPlan:
    assert isinstance(plan, NoPlan), plan
    return plan


def mig_gpu(uuid: str, text: str = "", *, table: GpuTable = A100, index: int = 0) -> GpuSnapshot:
    """Return a GPU with MIG on; what `text` marks with ! is held by the team of that name."""
    current = parse_current(text)
    return GpuSnapshot(
        uuid=uuid,
        index=index,
        product=table.product,
        memory_mib=table.memory_mib or 0,
        table=table,
        mode=GpuMode.MIG,
        instances=(
            *(InstanceSnapshot(item) for item in current.free),
            *(
                InstanceSnapshot(item, f"holder of {item}", is_granted=True)
                for item in current.in_use
            ),
        ),
    )


def whole_gpu(
    uuid: str, *holders: str, table: GpuTable | None = A100, product: str = "", index: int = 0
) -> GpuSnapshot:
    """Return a GPU with MIG off and not shared."""
    return GpuSnapshot(
        uuid=uuid,
        index=index,
        product=product or (table.product if table else "NVIDIA-L40S"),
        memory_mib=(table.memory_mib or 0) if table else 46_068,
        table=table,
        mode=GpuMode.WHOLE,
        granted=len(holders),
        holders=holders,
    )


def shared_gpu(
    uuid: str, *holders: str, replicas: int = 4, mode: GpuMode = GpuMode.TIME_SLICING
) -> GpuSnapshot:
    """Return an L40S that is shared."""
    return GpuSnapshot(
        uuid=uuid,
        index=0,
        product="NVIDIA-L40S",
        memory_mib=46_068,
        table=None,
        mode=mode,
        replicas=replicas,
        granted=len(holders),
        holders=holders,
    )


def node(name: str, *gpus: GpuSnapshot) -> NodeSnapshot:
    numbered = tuple(replace(gpu, index=index) for index, gpu in enumerate(gpus))
    return NodeSnapshot(name, numbered, total=PLENTY, left=PLENTY)


def cluster(*nodes: NodeSnapshot) -> ClusterSnapshot:
    return ClusterSnapshot(nodes)


def isolated(gib: float = 0, **kwargs: object) -> Demand:
    """Return a demand for isolated slices of at least that many GiB."""
    demand = Demand(Isolation.ISOLATED, round(gib * 1024))
    return replace(demand, **kwargs)  # type: ignore[arg-type]  # fields by name


def option_of(option: Option | None) -> Option:
    assert option is not None
    return option
