"""Who else divides the GPUs of a node: told by what others leave on the Node object."""

from collections.abc import Iterable, Mapping

HAMI = "HAMi"
NOS = "nos"
INSTASLICE = "InstaSlice"

_NOS_LABEL = "nos.nebuly.com/gpu-partitioning"
_HAMI_ANNOTATIONS = (
    "hami.io/node-nvidia-register",
    "hami.io/node-register-nvidia",
    "hami.io/node-handshake",
)
_INSTASLICE_RESOURCES = ("instaslice.redhat.com/", "org.instaslice/")


def owner_of(
    labels: Mapping[str, str], annotations: Iterable[str], resources: Iterable[str]
) -> str:
    """Return the name of the other owner of a node's GPUs, or nothing.

    `annotations` and `resources` are the keys of the node's annotations and capacity. What leaves
    no trace on the node, such as NVIDIA's driver for dynamic resource allocation, is not seen.
    """
    if any(key.lower().startswith(_HAMI_ANNOTATIONS) for key in annotations):
        return HAMI
    if labels.get(_NOS_LABEL):
        return NOS
    if any(key.startswith(_INSTASLICE_RESOURCES) for key in resources):
        return INSTASLICE
    return ""
