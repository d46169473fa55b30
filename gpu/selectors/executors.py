"""By what the layout of a node's GPUs is changed."""

from gpu.manifests import DEPLOY_PREFIX, MIG_CONFIG_LABEL, MIG_STATE_LABEL
from gpu.models import Node, Operation

_DEPLOYED = f"{DEPLOY_PREFIX}mig-manager"


def executor_for(node: Node) -> str:
    """Return the executor for layouts: mig-manager where one is at work, else nvidia-smi.

    A node shows its mig-manager by the GPU Operator's deploy label, or, where it was deployed
    without the operator, by a state that only a mig-manager writes beside the label that it reads.
    """
    labels = node.labels
    deployed = labels.get(_DEPLOYED)
    if deployed == "true" or (
        deployed is None and {MIG_CONFIG_LABEL, MIG_STATE_LABEL} <= labels.keys()
    ):
        return Operation.Executor.MIG_MANAGER
    return Operation.Executor.NVIDIA_SMI
