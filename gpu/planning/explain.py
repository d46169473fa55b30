"""Plain English for what fitting answers, for commands and logs; pages have their own sentences."""

from gpu.planning.demands import Demand, Fit, FitReason, FitWhen, Isolation, Option, Reason

_REASONS = {
    FitReason.NO_SUCH_PRODUCT: "the cluster has no GPU of the chosen models",
    FitReason.NO_GPU: "the cluster has no GPU",
    FitReason.NOT_MIG_CAPABLE: "{product} cannot do MIG",
    FitReason.PROFILE_UNKNOWN: "{product} has no such profile",
    FitReason.MEMORY_TOO_LARGE: "no slice of {product} holds that much memory",
    FitReason.TABLE_UNKNOWN: "the MIG table of {product} has not been read from a node yet",
    FitReason.MEMORY_UNKNOWN: "how much memory slices of {product} hold is not known yet",
    FitReason.NOT_SHARED: "no {product} is shared",
    FitReason.TOO_MANY: "there are not so many of {product}, were they all free",
    FitReason.NODE_TOO_SMALL: "{gpus} {product} on nodes with too little CPU, memory or storage",
    FitReason.OUT_OF_SERVICE: "{gpus} {product} out of service",
    FitReason.NODE_NOT_READY: "{gpus} {product} on nodes that are not ready",
    FitReason.NODE_CORDONED: "{gpus} {product} on cordoned nodes",
    FitReason.CHANGING: "{gpus} {product} being changed",
    FitReason.GPU_SHARED: "{gpus} {product} shared by time-slicing or MPS",
    FitReason.FULL: "{gpus} {product} in use",
    FitReason.FRAGMENTED: "{gpus} {product} with free slices that no such instance fits into",
    FitReason.NODE_FULL: "{gpus} {product} on nodes without the CPU, memory or storage for it",
    FitReason.NEEDS_CHANGE: "{gpus} {product} that must be cut first",
}
_ISOLATIONS = {
    Isolation.ISOLATED: "isolated slice",
    Isolation.SHARED: "share",
    Isolation.WHOLE: "whole GPU",
}


def describe_reason(reason: Reason) -> str:
    """Return the reason as part of a sentence."""
    return _REASONS[reason.code].format(product=reason.product, gpus=reason.gpus)


def describe_demand(demand: Demand) -> str:
    """Return the demand in a few words, such as ``2 x isolated slice of 20.0 GiB``."""
    size = demand.profile or f"{demand.memory_mib / 1024:.1f} GiB"
    return f"{demand.count} x {_ISOLATIONS[demand.isolation]} of {size}"


def describe_option(option: Option) -> str:
    """Return what is granted and where."""
    kind = option.kind
    where = ", ".join(sorted({site.node for site in option.sites}))
    words = f"{len(option.sites)} x {kind.profile or kind.resource_name} of {kind.product}"
    return f"{words} on {where}"


def describe(fit: Fit) -> str:
    """Return the whole answer in a few sentences."""
    demand = describe_demand(fit.demand)
    reasons = "; ".join(map(describe_reason, fit.reasons))
    because = f" because: {reasons}" if reasons else ""
    offers = "".join(
        f" Instead: {describe_demand(offer.demand)} ({describe_option(offer.option)})."
        for offer in fit.counter_offers
    )
    match fit.when:
        case FitWhen.NOW | FitWhen.AFTER_CHANGE if fit.option is not None:
            when = "now" if fit.when is FitWhen.NOW else "after a change that harms nobody"
            return f"{demand}: {when}, {describe_option(fit.option)}.{offers}"
        case FitWhen.LATER if fit.later is not None:
            at = f"{fit.later.at:%Y-%m-%d %H:%M}"
            return f"{demand}: at about {at} ({fit.later.confidence} confidence){because}.{offers}"
        case FitWhen.AFTER_DISRUPTION if fit.disruptive is not None:
            names = ", ".join(b.holder or "somebody unknown" for b in fit.disruptive.blockers)
            return f"{demand}: only by taking from {names}{because}.{offers}"
        case FitWhen.NEVER:
            return f"{demand}: never{because}.{offers}"
        case _:
            return f"{demand}: later, nobody can say when{because}.{offers}"
