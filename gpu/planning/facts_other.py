"""Published facts about the GPU models that are not cut into seven; see `facts`."""

from dataclasses import dataclass

from gpu.planning.facts import NO_ENGINES, Counts


@dataclass(frozen=True, slots=True)
class Other:
    """A model of another shape; `profiles` are name, id, size, MiB, most, starts, engines, SMs."""

    id: str
    marketing: str
    architecture: str
    names: tuple[str, ...]
    memory_mib: int | None
    min_driver: str | None
    memory_slices: int | None
    compute_slices: int | None
    max_instances: int | None
    engine_totals: Counts | None
    profiles: tuple[
        tuple[str, int | None, int | None, int | None, int | None, Counts, Counts, int | None], ...
    ]


OTHER: tuple[Other, ...] = (
    Other(
        "a30-24gb",
        "A30 24GB",
        "Ampere",
        ("NVIDIA A30",),
        24576,
        "460.73.01",
        4,
        4,
        4,
        (None, None, None, 1, 1),
        (
            ("1g.6gb", 14, 1, 5952, 4, (0, 1, 2, 3), (1, 1, 0, 0, 0), 14),
            ("1g.6gb+me", 21, 1, 5952, 1, (0, 1, 2, 3), (1, 1, 0, 1, 1), 14),
            ("2g.12gb", 5, 2, 11968, 2, (0, 2), (2, 2, 0, 0, 0), 28),
            ("2g.12gb+me", 6, 2, 11968, 1, (0, 2), (2, 2, 0, 1, 1), 28),
            ("4g.24gb", 0, 4, 24000, 1, (0,), (4, 4, 0, 1, 1), 56),
        ),
    ),
    Other(
        "gb300-dgx-station-251gb",
        "GB300 in DGX Station (252 GB)",
        "Blackwell",
        ("NVIDIA GB300",),
        None,
        "595.58.03",
        8,
        7,
        None,
        None,
        (
            ("1g.31gb", 19, None, None, None, (), NO_ENGINES, None),
            ("1g.31gb+me", 20, None, None, 1, (), NO_ENGINES, None),
            ("3g.126gb", 9, None, None, None, (), NO_ENGINES, None),
            ("4g.126gb", 5, None, None, 1, (), NO_ENGINES, None),
            ("7g.251gb", 0, None, None, 1, (), NO_ENGINES, None),
        ),
    ),
    Other(
        "rtx-pro-6000-blackwell-96gb",
        "RTX PRO 6000 Blackwell 96GB (Server, Workstation, Max-Q)",
        "Blackwell",
        (
            "NVIDIA RTX PRO 6000 Blackwell Server Edition",
            "NVIDIA RTX PRO 6000 Blackwell Workstation Edition",
            "NVIDIA RTX PRO 6000 Blackwell Max-Q Workstation Edition",
        ),
        97887,
        "575.51.03",
        12,
        4,
        4,
        (4, 4, 4, 4, 1),
        (
            ("1g.24gb", 14, 3, 24192, 4, (0, 3, 6, 9), (1, 1, 1, 1, 0), 46),
            ("1g.24gb+me", 21, 3, 24192, 1, (0, 3, 6, 9), (1, 1, 1, 1, 1), 46),
            ("1g.24gb+gfx", 47, 3, 24192, 4, (0, 3, 6, 9), (1, 1, 1, 1, 0), 46),
            ("1g.24gb+me.all", 65, 3, 24192, 1, (0, 3, 6, 9), (1, 4, 4, 4, 1), 46),
            ("1g.24gb-me", 67, 3, 24192, 4, (0, 3, 6, 9), (1, 0, 0, 0, 0), 46),
            ("2g.48gb", 5, 6, 48512, 2, (0, 6), (2, 2, 2, 2, 0), 94),
            ("2g.48gb+gfx", 35, 6, 48512, 2, (0, 6), (2, 2, 2, 2, 0), 94),
            ("2g.48gb+me.all", 64, 6, 48512, 1, (0, 6), (2, 4, 4, 4, 1), 94),
            ("2g.48gb-me", 66, 6, 48512, 2, (0, 6), (2, 0, 0, 0, 0), 94),
            ("4g.96gb", 0, 12, 97408, 1, (0,), (4, 4, 4, 4, 1), 188),
            ("4g.96gb+gfx", 32, 12, 97408, 1, (0,), (4, 4, 4, 4, 1), 188),
        ),
    ),
    Other(
        "rtx-pro-5000-blackwell-48gb",
        "RTX PRO 5000 Blackwell 48GB",
        "Blackwell",
        ("NVIDIA RTX PRO 5000 Blackwell",),
        48935,
        "575.57.08",
        None,
        None,
        2,
        None,
        (
            ("1g.24gb", None, None, None, 2, (), (1, 1, 1, 0, 0), None),
            ("1g.24gb+me", None, None, None, 1, (), (1, 1, 1, 1, 1), None),
            ("1g.24gb+gfx", None, None, None, 2, (), (1, 1, 1, 0, 0), None),
            ("1g.24gb+me.all", None, None, None, 1, (), (1, 3, 3, 1, 1), None),
            ("1g.24gb-me", None, None, None, 2, (), (1, 0, 0, 0, 0), None),
            ("2g.48gb", None, None, None, 1, (), (4, 3, 3, 1, 1), None),
            ("2g.48gb+gfx", None, None, None, 1, (), (4, 3, 3, 1, 1), None),
        ),
    ),
    Other(
        "rtx-pro-4500-blackwell-32gb",
        "RTX PRO 4500 Blackwell 32GB",
        "Blackwell",
        ("NVIDIA RTX PRO 4500 Blackwell", "NVIDIA RTX PRO 4500 Blackwell Server Edition"),
        32623,
        "575.64",
        None,
        None,
        2,
        None,
        (
            ("1g.16gb", None, None, None, 2, (), (1, 1, 1, 1, 0), None),
            ("1g.16gb+gfx", None, None, None, 2, (), (1, 1, 1, 1, 0), None),
            ("1g.16gb+me.all", None, None, None, 1, (), (1, 3, 3, 2, 1), None),
            ("1g.16gb-me", None, None, None, 2, (), (1, 0, 0, 0, 0), None),
            ("2g.32gb", None, None, None, 1, (), (2, 3, 3, 2, 1), None),
            ("2g.32gb+gfx", None, None, None, 1, (), (2, 3, 3, 2, 1), None),
        ),
    ),
    Other(
        "thor-igpu",
        "Jetson/DRIVE Thor iGPU (GB10B)",
        "Blackwell",
        ("NVIDIA Thor",),
        None,
        None,
        None,
        3,
        2,
        None,
        tuple(
            (name, None, None, None, 1, (), NO_ENGINES, None)
            for name in (
                "1g.0gb",
                "1g.0gb+me",
                "1g.0gb+gfx",
                "2g.0gb",
                "2g.0gb+gfx",
                "3g.0gb",
                "3g.0gb+gfx",
            )
        ),
    ),
)
