"""The simulated lab's `nvidia-smi` under the same suite as the lab nodes' one."""

import json
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from gpu.adapters.simulated.programs import nvidia_smi_command
from gpu.adapters.smi import hardware, run
from tests.cluster.gpus import new_state
from tests.contracts.nvidia_smi_contract import MODELS, Answer, NvidiaSmiContract, SmiNode


class TestSimulatedNvidiaSmi(NvidiaSmiContract):
    """The Python stand-in, called in this process."""

    @pytest.fixture
    def smi(self, tmp_path: Path) -> SmiNode:
        hardware.write_json(str(tmp_path / "state.json"), new_state("node-1", MODELS))

        def call(*arguments: str) -> Answer:
            return Answer(*run.answer(list(arguments), str(tmp_path), None))

        @contextmanager
        def held(uuid: str) -> Iterator[None]:
            path = tmp_path / "held.json"
            path.write_text(json.dumps({uuid: "pod"}))
            yield
            path.unlink()

        return SmiNode(call, held)


def test_stand_in_runs_as_a_program(tmp_path: Path) -> None:
    hardware.write_json(str(tmp_path / "state.json"), new_state("node-1", MODELS))
    done = subprocess.run(  # noqa: S603  # our own program
        [*nvidia_smi_command(sys.executable), "-L"],
        env={"SIMULATED_GPUS": str(tmp_path)},
        capture_output=True,
        text=True,
        check=True,
        timeout=20,
    )
    assert done.stdout.startswith("GPU 0: NVIDIA H200 (UUID: GPU-")


@pytest.mark.parametrize(
    ("visible", "count"), [("void", 0), ("", 0), ("all", 3)], ids=["void", "empty", "all"]
)
def test_container_sees_what_it_was_given(tmp_path: Path, visible: str, count: int) -> None:
    hardware.write_json(str(tmp_path / "state.json"), new_state("node-1", MODELS))
    _code, text = run.answer(["-L"], str(tmp_path), visible)
    assert text.count("UUID: GPU-") == count


def test_container_changes_nothing(tmp_path: Path) -> None:
    hardware.write_json(str(tmp_path / "state.json"), new_state("node-1", MODELS))
    code, text = run.answer(["-i", "0", "-mig", "1"], str(tmp_path), "all")
    assert (code, text) == (4, "Insufficient Permissions\n")
