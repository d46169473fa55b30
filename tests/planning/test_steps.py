"""Steps and the lines that carry them out."""

import os
import subprocess
from pathlib import Path

import pytest

from gpu.planning.geometry import Instance
from gpu.planning.steps import (
    Create,
    Destroy,
    DisableMig,
    EnableMig,
    ResetGpu,
    Step,
    action_of,
    instance_of,
    nvidia_smi_commands,
)
from tests.planning.builders import A100

LISTING = """\
|   0  MIG 1g.5gb            19       13          6:1     |
|   0  MIG 1g.5gb            19        9          5:1     |
|   0  MIG 1g.5gb+me         20        7          4:1     |
"""


@pytest.mark.parametrize(
    ("step", "action", "instance", "line"),
    [
        (EnableMig(), "enable_mig", None, "nvidia-smi -i 2 -mig 1"),
        (DisableMig(), "disable_mig", None, "nvidia-smi -i 2 -mig 0"),
        (ResetGpu(), "reset_gpu", None, "nvidia-smi -i 2 --gpu-reset"),
        (
            Create("3g.20gb", 4),
            "create",
            Instance("3g.20gb", 4),
            "nvidia-smi mig -i 2 -cgi 9:4 -C",
        ),
    ],
)
def test_step_has_an_action_and_a_line(
    step: Step, action: str, instance: Instance | None, line: str
) -> None:
    assert action_of(step) == action
    assert instance_of(step) == instance
    assert nvidia_smi_commands([step], A100, gpu_index=2) == (line,)


def test_known_instance_is_destroyed_by_its_id() -> None:
    ids = {Instance("1g.5gb", 6): 13}
    assert nvidia_smi_commands([Destroy("1g.5gb", 6)], A100, gi_ids=ids) == (
        "nvidia-smi mig -i 0 -dci -gi 13",
        "nvidia-smi mig -i 0 -dgi -gi 13",
    )


def test_unknown_instance_is_looked_up_by_the_line_itself(tmp_path: Path) -> None:
    fake = tmp_path / "nvidia-smi"
    fake.write_text(f"#!/bin/sh\ncase $* in *-lgi) cat <<END\n{LISTING}END\n;; *) echo $*;; esac\n")
    fake.chmod(0o755)
    lines = "\n".join(nvidia_smi_commands([Destroy("1g.5gb", 6)], A100))
    path = f"{tmp_path}:{os.environ['PATH']}"
    done = subprocess.run(  # noqa: S603  # the lines are what is tested
        ["/bin/sh", "-c", lines], capture_output=True, text=True, check=True, env={"PATH": path}
    )
    assert done.stdout == "mig -i 0 -dci -gi 13\nmig -i 0 -dgi -gi 13\n"


def test_instance_that_is_gone_gives_an_empty_id_not_all_instances() -> None:
    _, second = nvidia_smi_commands([Destroy("2g.10gb", 0)], A100)
    assert second.startswith('nvidia-smi mig -i 0 -dgi -gi "$(nvidia-smi mig -i 0 -lgi | awk ')
    assert second.endswith(')"')
