"""The commands mig_profiles and mig_plan: what they print, and how they end."""

import io
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from django.core.management import CommandError, call_command
from hypothesis import given, settings
from hypothesis import strategies as st

from gpu.planning.catalogue import all_tables, find_table
from gpu.planning.geometry import Instance
from gpu.planning.layouts import check_layout
from gpu.planning.tables import GpuTable

ROOT = Path(__file__).parents[2]
H200_TEXT = ROOT / "tests" / "fixtures" / "h200" / "smi_mig.txt"


def run(*args: str) -> tuple[int, str]:
    """Return how the command ends and what it prints."""
    out = io.StringIO()
    code = 0
    try:
        call_command(*args, stdout=out)
    except SystemExit as end:
        code = int(end.code or 0)
    return code, out.getvalue()


def plan(gpu: str, current: str, want: str, *more: str) -> tuple[int, dict[str, Any]]:
    code, text = run(
        "mig_plan", f"--gpu={gpu}", f"--current={current}", f"--want={want}", "--json", *more
    )
    return code, json.loads(text)


def refusal(*args: str) -> str:
    """Return the one line with which the command ends with code 2."""
    with pytest.raises(CommandError) as error:
        call_command(*args, stdout=io.StringIO())
    assert error.value.returncode == 2
    assert "\n" not in str(error.value)
    return str(error.value)


# --- mig_profiles


def test_table_of_a_product_is_json() -> None:
    code, text = run("mig_profiles", "--gpu", "nvidia-a100-sxm4-40gb-mig-1g.5gb-shared", "--json")
    table = json.loads(text)
    assert code == 0
    assert list(table) == ["product", "memory_slices", "profiles"]
    assert (table["product"], table["memory_slices"]) == ("NVIDIA-A100-SXM4-40GB", 8)
    assert table["profiles"][2] == {
        "name": "1g.10gb",
        "id": 15,
        "memory_slices": 2,
        "compute_slices": 1,
        "memory_gib": 9.62,
        "max_instances": 4,
        "placements": [{"start": start, "size": 2} for start in (0, 2, 4, 6)],
        "resource_name": "nvidia.com/mig-1g.10gb",
    }


@pytest.mark.parametrize("table", all_tables(), ids=lambda table: str(table.id))
def test_every_model_has_a_table(table: GpuTable) -> None:
    code, text = run("mig_profiles", f"--gpu={table.id.upper()}", "--json")
    found = json.loads(text)
    assert code == 0
    assert [profile["name"] for profile in found["profiles"]] == [p.name for p in table.profiles]
    assert (found["profiles"][0]["placements"] is None) is not table.is_published
    assert table.profiles[0].name in run("mig_profiles", f"--gpu={table.id}")[1]


def test_table_is_read_from_the_drivers_text() -> None:
    code, text = run("mig_profiles", "--from-nvidia-smi", str(H200_TEXT), "--json")
    found, known = json.loads(text), json.loads(run("mig_profiles", "--gpu=h200", "--json")[1])
    assert (code, found["product"]) == (0, None)
    assert found["profiles"] == known["profiles"]
    named = run("mig_profiles", "--from-nvidia-smi", str(H200_TEXT), "--gpu=NVIDIA-H200", "--json")
    assert json.loads(named[1]) == known
    assert "--gpu: NVIDIA L4 cannot do MIG" in refusal(
        "mig_profiles", f"--from-nvidia-smi={H200_TEXT}", "--gpu=L4"
    )


def test_table_for_people_has_a_line_for_each_profile() -> None:
    _, text = run("mig_profiles", "--gpu=NVIDIA A30")
    lines = text.strip().splitlines()
    assert lines[0] == "A30 24GB (NVIDIA-A30): 4 memory and 4 compute slices"
    assert lines[5].split() == [
        "2g.12gb+me", "6", "2", "2", "11.69", "1", "{0,2}:2", "nvidia.com/mig-2g.12gb.me",
    ]  # fmt: skip
    _, text = run("mig_profiles", "--from-nvidia-smi", str(H200_TEXT))
    assert text.startswith("this GPU: 8 memory")
    assert "unknown" in run("mig_profiles", "--gpu=thor-igpu")[1]


def test_gpus_of_the_text_that_differ_are_chosen_by_index(tmp_path: Path) -> None:
    text = H200_TEXT.read_text()
    other = text.replace("|   0  MIG", "|   3  MIG").replace("GPU  0 Prof", "GPU  3 Prof")
    both = tmp_path / "smi.txt"
    both.write_text(text + other)
    assert run("mig_profiles", f"--from-nvidia-smi={both}")[0] == 0
    both.write_text(text + other.replace("16.00", "17.00"))
    assert "GPUs 0, 3 differ: choose one with --index N" in refusal(
        "mig_profiles", f"--from-nvidia-smi={both}"
    )
    _, found = run("mig_profiles", f"--from-nvidia-smi={both}", "--index=3", "--json")
    assert json.loads(found)["profiles"][0]["memory_gib"] == 17.0
    assert "no GPU 1, only 0, 3" in refusal(
        "mig_profiles", f"--from-nvidia-smi={both}", "--index=1"
    )


def test_text_may_come_from_a_pipe(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(H200_TEXT.read_bytes())))
    assert "7g.141gb" in run("mig_profiles", "--from-nvidia-smi", "-")[1]


@pytest.mark.parametrize(
    ("args", "line"),
    [
        ([], "Give --gpu PRODUCT or --from-nvidia-smi FILE."),
        (["--gpu=NVIDIA L40S"], "--gpu: NVIDIA L40S cannot do MIG"),
        (["--gpu=RTX 4090"], "--gpu: NVIDIA GeForce RTX 4090 cannot do MIG"),
        (["--gpu=A1OO"], "--gpu: 'A1OO' is not a GPU of the catalogue"),
        (["--gpu="], "--gpu: '' is not a GPU of the catalogue"),
        (["--gpu=GB300"], "--gpu: GB300 is the name of more than one model"),
        (["--gpu=h200", "--index=-1"], "--index: A GPU's index is 0 or more, not -1."),
        (["--from-nvidia-smi=/no/such/file"], "/no/such/file cannot be read: No such file"),
        (["--from-nvidia-smi=/"], "/ cannot be read: Is a directory"),
        ([f"--from-nvidia-smi={__file__}"], "--from-nvidia-smi: "),
        (["--index=x", "--gpu=h200"], "argument --index: invalid int value: 'x'"),
    ],
)
def test_bad_input_ends_with_one_line(args: list[str], line: str) -> None:
    with pytest.raises(CommandError) as error:
        call_command("mig_profiles", *args, stdout=io.StringIO())
    assert line in str(error.value)
    assert "\n" not in str(error.value)


def test_node_without_mig_is_told_from_garbage(tmp_path: Path) -> None:
    text = tmp_path / "smi.txt"
    text.write_text("No MIG-supported devices found.\n")
    assert "no GPU of this node supports MIG" in refusal(
        "mig_profiles", f"--from-nvidia-smi={text}"
    )
    text.write_bytes(b"\xff\xfe\x00garbage")
    assert "there are no profiles" in refusal("mig_profiles", f"--from-nvidia-smi={text}")


# --- mig_plan


def test_plan_is_json() -> None:
    code, found = plan("NVIDIA-A100-SXM4-80GB", "1g.10gb@0,2g.20gb@2!", "3g.40gb,1g.10gb")
    assert code == 0
    assert found == {
        "feasible": True,
        "reason": None,
        "steps": [{"action": "create", "profile": "3g.40gb", "start": 4}],
        "result": [
            {"profile": "1g.10gb", "start": 0, "kept": True},
            {"profile": "2g.20gb", "start": 2, "kept": True},
            {"profile": "3g.40gb", "start": 4, "kept": False},
        ],
        "commands": ["nvidia-smi mig -i 0 -cgi 9:4 -C"],
    }


def test_mode_steps_have_no_profile_and_come_first() -> None:
    _, found = plan("a100-40gb", "off", "3g.20gb", "--index=3")
    assert [step["action"] for step in found["steps"]] == ["enable_mig", "reset_gpu", "create"]
    assert found["steps"][0] == {"action": "enable_mig", "profile": None, "start": None}
    assert found["commands"] == [
        "nvidia-smi -i 3 -mig 1",
        "nvidia-smi -i 3 --gpu-reset",
        "nvidia-smi mig -i 3 -cgi 9:4 -C",
    ]
    _, hopper = plan("h200", "off", "3g.71gb")
    assert [step["action"] for step in hopper["steps"]] == ["enable_mig", "create"]


def test_infeasible_plan_ends_with_one_and_says_why() -> None:
    code, found = plan("a100-40gb", "3g.20gb@4!", "4g.20gb,1g.5gb")
    assert code == 1
    assert found == {
        "feasible": False,
        "reason": (
            "4g.20gb and 1g.5gb do not fit beside what is in use; in the way: 3g.20gb@4."
            " The nearest that fits: 4g.20gb."
        ),
        "steps": [],
        "result": [],
        "commands": [],
    }


def test_same_wish_on_two_models_is_answered_by_each_table() -> None:
    seven = ",".join(["1g.10gb"] * 7)
    assert plan("a100-80gb", "", seven)[0] == 0
    code, found = plan("a100-40gb", "", seven)
    assert (code, found["feasible"]) == (1, False)
    assert "at most 4 x 1g.10gb" in found["reason"]


def test_mig_is_switched_off_only_on_demand() -> None:
    assert plan("h200", "1g.18gb@0", "")[1]["steps"] == [
        {"action": "destroy", "profile": "1g.18gb", "start": 0}
    ]
    _, found = plan("h200", "1g.18gb@0", "", "--disable")
    assert [step["action"] for step in found["steps"]] == ["destroy", "disable_mig"]
    assert plan("h200", "1g.18gb@0!", "", "--disable")[0] == 1
    assert plan("h200", "1g.18gb@0!", "", "--disable", "--evict=1g.18gb@0")[0] == 0


def test_plan_for_people_has_steps_result_and_commands() -> None:
    args = ["mig_plan", "--gpu=h200", "--current=1g.18gb@0!,3g.71gb@4", "--want=4g.71gb"]
    code, text = run(*args)
    assert (code, text.startswith("Not feasible: 4g.71gb does not fit")) == (1, True)
    code, text = run(*args, "--evict=1g.18gb@0")
    assert code == 0
    assert text.splitlines()[:6] == [
        "Steps:",
        "  destroy 1g.18gb@0",
        "  destroy 3g.71gb@4",
        "  create 4g.71gb@0",
        "Result:",
        "  4g.71gb@0",
    ]
    assert "  nvidia-smi mig -i 0 -cgi 5:0 -C" in text
    _, text = run("mig_plan", "--gpu=h200", "--current=1g.18gb@0", "--want=1g.18gb")
    assert text.splitlines() == ["Nothing to do.", "Result:", "  1g.18gb@0 (kept)"]
    _, text = run("mig_plan", "--gpu=h200", "--current=off", "--want=")
    assert text.splitlines() == ["Nothing to do.", "Result:", "  no instance"]
    assert "  enable_mig\n" in run("mig_plan", "--gpu=h200", "--current=off", "--want=7g.141gb")[1]


def test_plan_uses_the_drivers_own_table() -> None:
    args = ["--current=off", "--want=3g.71gb", "--json"]
    _, text = run("mig_plan", f"--from-nvidia-smi={H200_TEXT}", *args)
    assert [step["action"] for step in json.loads(text)["steps"]] == ["enable_mig", "create"]


@pytest.mark.parametrize(
    ("gpu", "current", "want", "line"),
    [
        ("L40S", "", "", "--gpu: NVIDIA L40S cannot do MIG"),
        ("thor-igpu", "", "", "--gpu: Nobody has published"),
        ("rtx-pro-5000-blackwell-48gb", "off", "1g.24gb", "read its table from a node"),
        ("h200", "1g.18gb", "", "--current: '1g.18gb' has no start"),
        ("h200", "1g.18gb@7", "", "--current: 1g.18gb cannot start at memory slice 7"),
        ("h200", "1g.18gb@0,1g.18gb@0!", "", "--current: 1g.18gb@0 and 1g.18gb@0 overlap"),
        ("h200", "1g.5gb@0", "", "--current: H200 SXM 141GB has no profile 1g.5gb"),
        ("h200", "", "1g.5gb", "--want: H200 SXM 141GB has no profile 1g.5gb"),
        ("h200", "", "1c.3g.71gb", "--want: 1c.3g.71gb names a compute instance"),
        ("h200", "", "3g.71gb@4", "--want: '3g.71gb@4' has a place"),
        ("h200", "", "3g.71gb,", "--want: There is an empty member"),
        ("h200", "", "\x00", "--want: "),
    ],
)
def test_bad_input_of_a_plan_names_its_option(gpu: str, current: str, want: str, line: str) -> None:
    assert line in refusal("mig_plan", f"--gpu={gpu}", f"--current={current}", f"--want={want}")


def test_what_is_missing_or_contradictory_is_named() -> None:
    base = ["mig_plan", "--gpu=h200"]
    with pytest.raises(CommandError, match="required: --current, --want"):
        call_command(*base)
    assert "--disable: MIG cannot be switched off and hold instances" in refusal(
        *base, "--current=", "--want=1g.18gb", "--disable"
    )
    assert "--evict: 'off' is no instance" in refusal(*base, "--current=", "--want=", "--evict=off")


def test_command_line_ends_with_the_promised_codes_without_services(tmp_path: Path) -> None:
    """The only test with real processes: no settings in their environment."""

    def ends(*args: str) -> tuple[int, str, str]:
        done = subprocess.run(  # noqa: S603  # our own command
            [sys.executable, "manage.py", *args],
            cwd=ROOT,
            env={"PATH": os.environ["PATH"], "SLICEDESK_STATE_DIR": str(tmp_path)},
            capture_output=True,
            text=True,
            check=False,
            timeout=60,
        )
        return done.returncode, done.stdout, done.stderr

    code, out, err = ends("mig_plan", "--gpu=a30", "--current=", "--want=", "--json")
    assert (code, json.loads(out)["feasible"], err) == (0, True, "")
    code, out, err = ends("mig_plan", "--gpu=a30-24gb", "--current=4g.24gb@0!", "--want=1g.6gb")
    assert (code, err) == (1, "")
    for args in (["mig_profiles", "--gpu=L4"], ["mig_plan", "--gpu=h200"], ["mig_plan", "--what"]):
        code, out, err = ends(*args)
        assert (code, out, err.count("\n")) == (2, "", 1)


@settings(deadline=None, max_examples=40)
@given(st.data())
def test_feasible_answers_are_valid_by_the_table(data: st.DataObject) -> None:
    published = [table for table in all_tables() if table.is_published]
    table = find_table(data.draw(st.sampled_from(published)).id)
    names = st.sampled_from([profile.name for profile in table.profiles])
    want = data.draw(st.lists(names, max_size=4))
    code, found = plan(table.id, data.draw(st.sampled_from(["", "off"])), ",".join(want))
    assert found["feasible"] is (code == 0)
    assert bool(found["reason"]) is (code == 1)
    if code == 0:
        result = [Instance(item["profile"], item["start"]) for item in found["result"]]
        assert list(check_layout(table, result)) == result
        assert sorted(item.profile for item in result) == sorted(want)
