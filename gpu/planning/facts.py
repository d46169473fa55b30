"""Published facts about the GPU models cut into seven; `catalogue` makes tables of them.

Memory is in MiB, in the steps that the driver gives; ``None`` is what nobody has published. Engines
are copy, NVDEC, NVENC, JPEG, OFA. A table read from a node's own driver is always to be preferred.
"""

from dataclasses import dataclass

type Counts = tuple[int | None, ...]

NO_ENGINES: Counts = (None,) * 5


@dataclass(frozen=True, slots=True)
class SevenSlice:
    """A model with eight memory slices and seven compute slices.

    `gigabytes` and `memory` are those of 1g, of 2g, of 3g and of the whole GPU; `engines` and
    `multiprocessors` belong to 1g, 1g+me, 1g with double memory, 2g, 3g, 4g and 7g.
    """

    id: str
    marketing: str
    architecture: str
    names: tuple[str, ...]
    memory_mib: int | None
    min_driver: str | None
    gigabytes: tuple[int, int, int, int]
    memory: Counts = (None,) * 4
    engines: tuple[Counts, ...] = (NO_ENGINES,) * 7
    multiprocessors: Counts = (None,) * 7
    aliases: tuple[tuple[str, str], ...] = ()


_AMPERE_ENGINES: tuple[Counts, ...] = (
    (1, 0, 0, 0, 0),
    (1, 1, 0, 1, 1),
    (1, 1, 0, 0, 0),
    (2, 1, 0, 0, 0),
    (3, 2, 0, 0, 0),
    (4, 2, 0, 0, 0),
    (7, 5, 0, 1, 1),
)
_HOPPER_ENGINES: tuple[Counts, ...] = (
    (1, 1, 0, 1, 0),
    (1, 1, 0, 1, 1),
    (1, 1, 0, 1, 0),
    (2, 2, 0, 2, 0),
    (3, 3, 0, 3, 0),
    (4, 4, 0, 4, 0),
    (8, 7, 0, 7, 1),
)
_B200_ENGINES: tuple[Counts, ...] = (
    (2, 1, 0, 1, 0),
    (2, 1, 0, 1, 1),
    (2, 1, 0, 1, 0),
    (4, 2, 0, 2, 0),
    (6, 3, 0, 3, 0),
    (8, 4, 0, 4, 0),
    (16, 7, 0, 7, 1),
)
_GB200_ENGINES: tuple[Counts, ...] = (
    *((copies, None, None, None, None) for copies in (2, 2, 2, 4)),
    *(NO_ENGINES,) * 3,
)
_A100_SMS: Counts = (14, 14, 14, 28, 42, 56, 98)
_H100_SMS: Counts = (16, 16, 26, 32, 60, 64, 132)
_H100_PCIE_SMS: Counts = (14, 14, 14, 30, 46, 62, 114)

SEVEN_SLICE: tuple[SevenSlice, ...] = (
    SevenSlice(
        "a100-40gb",
        "A100 40GB",
        "Ampere",
        ("NVIDIA A100-SXM4-40GB", "NVIDIA A100-PCIE-40GB", "A100-SXM4-40GB"),
        40960,
        "450.80.02",
        (5, 10, 20, 40),
        (4864, 9856, 19968, 40192),
        _AMPERE_ENGINES,
        _A100_SMS,
    ),
    SevenSlice(
        "a100-80gb",
        "A100 80GB",
        "Ampere",
        ("NVIDIA A100-SXM4-80GB", "NVIDIA A100 80GB PCIe"),
        81920,
        "450.80.02",
        (10, 20, 40, 80),
        (9728, 19968, 40192, 80896),
        _AMPERE_ENGINES,
        _A100_SMS,
        (("3g.40gb", "3g.39gb"), ("4g.40gb", "4g.39gb"), ("7g.80gb", "7g.79gb")),
    ),
    SevenSlice(
        "a800-40gb",
        "A800 40GB",
        "Ampere",
        ("NVIDIA A800-PCIE-40GB", "NVIDIA A800 40GB Active"),
        40960,
        None,
        (5, 10, 20, 40),
        engines=_AMPERE_ENGINES,
    ),
    SevenSlice(
        "a800-80gb",
        "A800 80GB",
        "Ampere",
        ("NVIDIA A800-SXM4-80GB", "NVIDIA A800 80GB PCIe"),
        81920,
        None,
        (10, 20, 40, 80),
        engines=_AMPERE_ENGINES,
    ),
    SevenSlice(
        "pg506-96gb",
        "PG506-96GB (GA100 96GB)",
        "Ampere",
        (),
        None,
        None,
        (12, 24, 48, 96),
        engines=_AMPERE_ENGINES,
    ),
    SevenSlice(
        "h100-80gb-sxm",
        "H100 SXM5 80GB",
        "Hopper",
        ("NVIDIA H100 80GB HBM3",),
        81559,
        "525.85.12",
        (10, 20, 40, 80),
        (9984, 20096, 40448, 81152),
        _HOPPER_ENGINES,
        _H100_SMS,
    ),
    SevenSlice(
        "h100-80gb-pcie",
        "H100 PCIe 80GB",
        "Hopper",
        ("NVIDIA H100 PCIe",),
        81559,
        "525.85.12",
        (10, 20, 40, 80),
        (9984, 20096, 40448, 81152),
        _HOPPER_ENGINES,
        _H100_PCIE_SMS,
    ),
    SevenSlice(
        "h800-80gb",
        "H800 80GB (SXM and PCIe)",
        "Hopper",
        ("NVIDIA H800", "NVIDIA H800 PCIe"),
        None,
        None,
        (10, 20, 40, 80),
    ),
    SevenSlice(
        "h100-nvl-94gb",
        "H100 NVL 94GB",
        "Hopper",
        ("NVIDIA H100 NVL",),
        95830,
        "525.85.12",
        (12, 24, 47, 94),
        (11008, 22144, 47488, 95360),
        _HOPPER_ENGINES,
        _H100_SMS,
    ),
    SevenSlice(
        "h800-nvl-94gb",
        "H800 NVL 94GB",
        "Hopper",
        ("NVIDIA H800 NVL",),
        None,
        None,
        (12, 24, 47, 94),
    ),
    SevenSlice("h100-94gb-sxm", "H100 SXM5 94GB", "Hopper", (), None, None, (12, 24, 47, 94)),
    SevenSlice("h100-64gb-sxm", "H100 SXM5 64GB", "Hopper", (), None, None, (8, 16, 32, 64)),
    SevenSlice(
        "gh200-96gb",
        "GH200 96GB HBM3 / H100 96GB",
        "Hopper",
        ("NVIDIA GH200 480GB", "NVIDIA GH200 120GB"),
        97871,
        "525.85.12",
        (12, 24, 48, 96),
        (11264, 23552, 47616, 95232),
        _HOPPER_ENGINES,
        _H100_SMS,
    ),
    SevenSlice(
        "gh200-144gb",
        "GH200 144GB HBM3e",
        "Hopper",
        ("NVIDIA GH200 144G HBM3e",),
        None,
        None,
        (18, 36, 72, 144),
        (17920, 36096, None, None),
        _HOPPER_ENGINES,
        (16, 16, 26, 32, None, None, None),
    ),
    SevenSlice(
        "h20-96gb",
        "H20 96GB",
        "Hopper",
        ("NVIDIA H20",),
        97871,
        "535.161.07",
        (12, 24, 48, 96),
    ),
    SevenSlice(
        "h20-141gb",
        "H20 141GB (H20-3e)",
        "Hopper",
        ("NVIDIA H20-3e",),
        143771,
        None,
        (18, 35, 71, 141),
    ),
    SevenSlice(
        "h200-141gb-sxm",
        "H200 SXM 141GB",
        "Hopper",
        ("NVIDIA H200",),
        143771,
        "550.90.07",
        (18, 35, 71, 141),
        (16384, 33280, 71424, 143360),
        _HOPPER_ENGINES,
        _H100_SMS,
        (("1g.18gb", "1g.16gb"), ("1g.35gb", "1g.33gb")),
    ),
    SevenSlice(
        "h200-nvl-141gb",
        "H200 NVL 141GB",
        "Hopper",
        ("NVIDIA H200 NVL",),
        None,
        "550.90.07",
        (18, 35, 71, 141),
    ),
    SevenSlice(
        "b200-180gb",
        "B200 180GB",
        "Blackwell",
        ("NVIDIA B200",),
        183359,
        "570.133.20",
        (23, 45, 90, 180),
        (20992, 45312, 91136, 182784),
        _B200_ENGINES,
        (18, 18, 30, 36, 70, 72, 148),
    ),
    SevenSlice(
        "gb200-186gb",
        "GB200 (186GB per GPU)",
        "Blackwell",
        ("NVIDIA GB200",),
        189471,
        "570.133.20",
        (23, 47, 93, 186),
        (22528, 46592, None, None),
        _GB200_ENGINES,
        (18, 18, 32, 38, None, None, None),
        (
            ("1g.23gb", "1g.24gb"),
            ("3g.93gb", "3g.95gb"),
            ("4g.93gb", "4g.95gb"),
            ("7g.186gb", "7g.189gb"),
        ),
    ),
    SevenSlice(
        "b300-269gb",
        "B300 (HGX, 269 GB named)",
        "Blackwell",
        ("NVIDIA B300 SXM6 AC", "NVIDIA B300 SXM6 PC"),
        275040,
        "580.82.07",
        (34, 67, 135, 269),
    ),
    SevenSlice(
        "gb300-278gb",
        "GB300 (278 GB named)",
        "Blackwell",
        ("NVIDIA GB300",),
        284208,
        "595.58.03",
        (35, 70, 139, 278),
    ),
)
