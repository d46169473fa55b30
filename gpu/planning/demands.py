"""What is asked of a cluster, and what fitting answers."""

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime
from enum import IntEnum, StrEnum

from gpu.planning.errors import PlanningError
from gpu.planning.geometry import Instance
from gpu.planning.plans import GpuPlan
from gpu.planning.profiles import ProfileName
from gpu.planning.snapshot import Beside


class InvalidDemandError(PlanningError):
    """The demand itself is wrong; the sentence names the field."""


class Isolation(StrEnum):
    """How well a slice is kept apart from its neighbours."""

    ISOLATED = "isolated"
    SHARED = "shared"
    WHOLE = "whole"


@dataclass(frozen=True, slots=True)
class Demand:
    """A number of equal slices, each of at least `memory_mib`, or of one profile by its name.

    `products` are the GPU products allowed, ``None`` for any. `beside` is what each slice needs
    with it; ``None`` is its part of the node's.
    """

    isolation: Isolation
    memory_mib: int = 0
    profile: str | None = None
    count: int = 1
    products: frozenset[str] | None = None
    beside: Beside | None = None

    def __post_init__(self) -> None:
        """Refuse what nobody can mean."""
        if self.count < 1:
            message = f"count: ask for 1 slice or more, not {self.count}."
            raise InvalidDemandError(message)
        if self.memory_mib < 0:
            message = f"memory: ask for 0 MiB or more, not {self.memory_mib}."
            raise InvalidDemandError(message)
        if self.profile is not None:
            if self.isolation is not Isolation.ISOLATED:
                message = "profile: only an isolated slice has one; leave it out."
                raise InvalidDemandError(message)
            object.__setattr__(self, "profile", str(ProfileName.parse(self.profile)))


class FitWhen(IntEnum):
    """When a demand can be met, soonest first."""

    NOW = 0
    AFTER_CHANGE = 1
    LATER = 2
    AFTER_DISRUPTION = 3
    NEVER = 4


class FitReason(StrEnum):
    """Why a demand is not met now, worst first."""

    NO_SUCH_PRODUCT = "no_such_product"
    NO_GPU = "no_gpu"
    NOT_MIG_CAPABLE = "not_mig_capable"
    PROFILE_UNKNOWN = "profile_unknown"
    MEMORY_TOO_LARGE = "memory_too_large"
    TABLE_UNKNOWN = "table_unknown"
    MEMORY_UNKNOWN = "memory_unknown"
    NOT_SHARED = "not_shared"
    TOO_MANY = "too_many"
    NODE_TOO_SMALL = "node_too_small"
    OUT_OF_SERVICE = "out_of_service"
    NODE_NOT_READY = "node_not_ready"
    NODE_CORDONED = "node_cordoned"
    CHANGING = "changing"
    GPU_SHARED = "gpu_shared"
    FULL = "full"
    FRAGMENTED = "fragmented"
    NODE_FULL = "node_full"
    NEEDS_CHANGE = "needs_change"


@dataclass(frozen=True, slots=True)
class Reason:
    """A reason code, the GPU product that it is about, and on how many GPUs it holds."""

    code: FitReason
    product: str = ""
    gpus: int = 0


@dataclass(frozen=True, slots=True)
class Kind:
    """What would be granted: a resource of one product, and what one of it counts.

    `compute` is in thousandths of a seventh; `replicas` is above 1 for shares.
    """

    product: str
    resource_name: str
    memory_mib: int
    compute: int
    profile: str | None = None
    replicas: int = 1


@dataclass(frozen=True, slots=True)
class Site:
    """Where one slice would be; `instance` is one that is there already, or ``None``."""

    node: str
    gpu_uuid: str
    instance: Instance | None = None


@dataclass(frozen=True, slots=True)
class GpuChange:
    """A GPU that has to be changed, and its plan; `creates` counts the slices that it brings."""

    node: str
    gpu_uuid: str
    plan: GpuPlan
    creates: int


@dataclass(frozen=True, slots=True)
class Blocker:
    """Somebody in the way: `instance` is ``None`` for a whole GPU, `holder` empty if unknown."""

    node: str
    gpu_uuid: str
    instance: Instance | None
    holder: str


@dataclass(frozen=True, slots=True)
class Option:
    """One way to meet a demand: what is granted, where, what has to change and who is in the way.

    `beside` is what goes with each slice, ``None`` where the nodes' amounts are unknown.
    """

    kind: Kind
    when: FitWhen
    sites: tuple[Site, ...]
    changes: tuple[GpuChange, ...] = ()
    blockers: tuple[Blocker, ...] = ()
    beside: Beside | None = None


class Confidence(StrEnum):
    """How far an estimate can be trusted."""

    HIGH = "high"
    MEDIUM = "medium"
    LOW = "low"


@dataclass(frozen=True, slots=True)
class Ending:
    """A right that ends: to an instance, or to `count` replicas of a GPU without instances.

    `beside` is what its node gets back with it.
    """

    at: datetime
    gpu_uuid: str
    instance: Instance | None = None
    count: int = 1
    beside: Beside | None = None


@dataclass(frozen=True, slots=True)
class Estimate:
    """When enough rights will have ended, as they stand now; `waits_for` counts them."""

    at: datetime
    waits_for: int
    option: Option

    @property
    def confidence(self) -> Confidence:
        """Return how far to trust it: each right that has to end may be extended or end early."""
        if self.waits_for == 1:
            return Confidence.HIGH
        return Confidence.MEDIUM if self.waits_for <= _FEW else Confidence.LOW


_FEW = 4


class OfferKind(StrEnum):
    """What a counter-offer changes."""

    FEWER = "fewer"
    SMALLER = "smaller"
    LARGER = "larger"
    OTHER_PRODUCT = "other_product"
    SHARE = "share"
    ISOLATED = "isolated"
    WHOLE = "whole"


@dataclass(frozen=True, slots=True)
class CounterOffer:
    """Another demand that can be met sooner, ready to fill the form, and how."""

    kind: OfferKind
    demand: Demand
    option: Option


@dataclass(frozen=True, slots=True)
class Fit:
    """The answer for a demand.

    `option` is how it is met now or after a change that harms nobody. Otherwise `later` is when
    enough ends, if that can be told, and `disruptive` how it could be met by taking from others.
    `reasons` say why not now, worst first.
    """

    demand: Demand
    when: FitWhen
    option: Option | None = None
    later: Estimate | None = None
    disruptive: Option | None = None
    reasons: tuple[Reason, ...] = ()
    counter_offers: tuple[CounterOffer, ...] = ()

    @property
    def is_possible(self) -> bool:
        """Return whether waiting makes sense at all."""
        return self.when is not FitWhen.NEVER


_SEVERITY = {code: position for position, code in enumerate(FitReason)}


def worst_first(reasons: Iterable[Reason]) -> tuple[Reason, ...]:
    """Return the reasons, equal ones added up, worst first."""
    counts: dict[tuple[FitReason, str], int] = {}
    for reason in reasons:
        key = (reason.code, reason.product)
        counts[key] = counts.get(key, 0) + reason.gpus
    ordered = sorted(counts.items(), key=lambda item: (_SEVERITY[item[0][0]], item[0][1]))
    return tuple(Reason(code, product, gpus) for (code, product), gpus in ordered)
