"""The lab nodes' `nvidia-smi`, run on the machine itself over a state file of the test's own."""

from pathlib import Path

import pytest

from tests.cluster.build import Programs
from tests.cluster.gpus import Gpus, new_state
from tests.contracts.nvidia_smi_contract import MODELS, Answer, NvidiaSmiContract, SmiNode


@pytest.mark.cluster
class TestLabNvidiaSmi(NvidiaSmiContract):
    """The Go stand-in."""

    @pytest.fixture
    def smi(self, cluster_programs: Programs, tmp_path: Path) -> SmiNode:
        gpus = Gpus(tmp_path, cluster_programs.standins / "nvidia-smi")
        gpus.install(new_state("node-1", MODELS))

        def run(*arguments: str) -> Answer:
            done = gpus.nvidia_smi(*arguments)
            return Answer(done.returncode, done.stdout)

        return SmiNode(run, gpus.held)
