"""NVIDIA GPUs that cannot do MIG, and how the names of GPU products are compared."""

import re
from dataclasses import dataclass

_MIG_SUFFIX = re.compile(r"-mig-(\d+g\.\d+gb[a-z0-9.+-]*|invalid)$")


@dataclass(frozen=True, slots=True)
class WholeGpu:
    """A GPU that is given whole or shared; `memory_mib` is what nvidia-smi shows, if known."""

    name: str
    memory_mib: int | None = None


# Total memory as nvidia-smi prints it: with ECC on where the card ships so.
_KNOWN: tuple[WholeGpu, ...] = (
    WholeGpu("NVIDIA L40S", 46068),
    WholeGpu("NVIDIA L40", 46068),
    WholeGpu("NVIDIA L20", 46068),
    WholeGpu("NVIDIA L4", 23034),
    WholeGpu("NVIDIA L2"),
    WholeGpu("NVIDIA A40", 46068),
    WholeGpu("NVIDIA A16", 15356),
    WholeGpu("NVIDIA A10", 23028),
    WholeGpu("NVIDIA A10G", 23028),
    WholeGpu("NVIDIA A10M"),
    WholeGpu("NVIDIA A2", 15356),
    WholeGpu("NVIDIA GB10"),
    WholeGpu("Tesla T4", 15360),
    WholeGpu("Tesla V100-SXM2-16GB", 16384),
    WholeGpu("Tesla V100-SXM2-32GB", 32768),
    WholeGpu("Tesla V100-SXM3-32GB", 32768),
    WholeGpu("Tesla V100-PCIE-16GB", 16384),
    WholeGpu("Tesla V100-PCIE-32GB", 32768),
    WholeGpu("Tesla V100S-PCIE-32GB", 32768),
    WholeGpu("Tesla P100-PCIE-16GB", 16384),
    WholeGpu("Tesla P100-SXM2-16GB", 16384),
    WholeGpu("Tesla P40", 23040),
    WholeGpu("Tesla P4", 7680),
    WholeGpu("NVIDIA RTX 6000 Ada Generation", 49140),
    WholeGpu("NVIDIA RTX 5000 Ada Generation", 32760),
    WholeGpu("NVIDIA RTX 4500 Ada Generation", 24570),
    WholeGpu("NVIDIA RTX 4000 Ada Generation", 20475),
    WholeGpu("NVIDIA RTX 4000 SFF Ada Generation", 20475),
    WholeGpu("NVIDIA RTX A6000", 49140),
    WholeGpu("NVIDIA RTX A5500", 24564),
    WholeGpu("NVIDIA RTX A5000", 24564),
    WholeGpu("NVIDIA RTX A4500", 20470),
    WholeGpu("NVIDIA RTX A4000", 16376),
    WholeGpu("Quadro RTX 8000"),
    WholeGpu("Quadro RTX 6000"),
    WholeGpu("NVIDIA TITAN RTX", 24576),
    WholeGpu("NVIDIA TITAN V", 12288),
    WholeGpu("NVIDIA GeForce RTX 2080 Ti", 11264),
    WholeGpu("NVIDIA GeForce RTX 3060", 12288),
    WholeGpu("NVIDIA GeForce RTX 3080", 10240),
    WholeGpu("NVIDIA GeForce RTX 3090", 24576),
    WholeGpu("NVIDIA GeForce RTX 3090 Ti", 24564),
    WholeGpu("NVIDIA GeForce RTX 4080", 16376),
    WholeGpu("NVIDIA GeForce RTX 4090", 24564),
    WholeGpu("NVIDIA GeForce RTX 4090 D", 24564),
    WholeGpu("NVIDIA GeForce RTX 5080", 16303),
    WholeGpu("NVIDIA GeForce RTX 5090", 32607),
    WholeGpu("NVIDIA GeForce RTX 5090 D", 32607),
)

# Whole lines of products without MIG, for members that the list above does not name.
_LINE = re.compile(
    r"(geforce|gtx|titan|quadro)\b.*"
    r"|rtx-[2-5]0[5-9]0\b.*"
    r"|rtx-a\d{3,4}\b.*"
    r"|rtx-\d{4}(-sff)?-ada\b.*"
    r"|(tesla-)?([kmp]\d{1,3}|v100s?|t4g?|t10|t40)(-.*)?"
)
_LINE_PREFIXES = ("tesla-", "geforce-", "quadro-")


def comparable(product: str) -> str:
    """Return a product's name for comparing: one case, dashes, no vendor, no sharing suffix.

    GFD labels, nvidia-smi names and names of MIG devices of one GPU compare equal. Two suffixes
    go: `-SHARED`, and `-MIG-` with a profile or `INVALID`.
    """
    name = re.sub(r"[\s_-]+", "-", product.strip().lower()).strip("-")
    name = name.removeprefix("nvidia-").removesuffix("-shared")
    return _MIG_SUFFIX.sub("", name)


def has_profile_suffix(product: str) -> bool:
    """Return whether GFD appended a profile, for which it may have cut the model's name short."""
    name = re.sub(r"[\s_-]+", "-", product.strip().lower()).removesuffix("-shared")
    return bool(_MIG_SUFFIX.search(name))


def _short(name: str) -> str:
    for prefix in _LINE_PREFIXES:
        name = name.removeprefix(prefix)
    return name


_BY_NAME = {comparable(gpu.name): gpu for gpu in _KNOWN}
_BY_SHORT_NAME = {_short(name): gpu for name, gpu in _BY_NAME.items()}


def known_whole_gpus() -> tuple[WholeGpu, ...]:
    """Return the GPUs without MIG whose names are known."""
    return _KNOWN


def find_whole_gpu(product: str) -> WholeGpu | None:
    """Return the GPU of that name if it is known to be one without MIG, else ``None``."""
    name = comparable(product)
    known = _BY_NAME.get(name) or _BY_SHORT_NAME.get(name)
    if known is None and _LINE.fullmatch(name):
        return WholeGpu(product.strip())
    return known
