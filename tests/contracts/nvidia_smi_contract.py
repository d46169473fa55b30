"""What every stand-in for nvidia-smi answers: arguments, formats, refusals, codes of driver 580.

Tables and texts are as captured from real cards. A subclass gives the fixture `smi`, a node with an
H200 (GPU 0), an A100-SXM4-40GB (GPU 1) and an L40S (GPU 2), MIG mode off.
"""

import re
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass

from defusedxml import ElementTree

MODELS = ("h200-141gb-sxm", "a100-40gb", "l40s-48gb")

_H200_PROFILES = """\
+-------------------------------------------------------------------------------+
| GPU instance profiles:                                                        |
| GPU   Name               ID    Instances   Memory     P2P    SM    DEC   ENC  |
|                                Free/Total   GiB              CE    JPEG  OFA  |
|===============================================================================|
|   0  MIG 1g.18gb         19     7/7        16.00      No     16     1     0   |
|                                                               1     1     0   |
+-------------------------------------------------------------------------------+
|   0  MIG 1g.18gb+me      20     1/1        16.00      No     16     1     0   |
|                                                               1     1     1   |
+-------------------------------------------------------------------------------+
|   0  MIG 1g.35gb         15     4/4        32.50      No     26     1     0   |
|                                                               1     1     0   |
+-------------------------------------------------------------------------------+
|   0  MIG 2g.35gb         14     3/3        32.50      No     32     2     0   |
|                                                               2     2     0   |
+-------------------------------------------------------------------------------+
|   0  MIG 3g.71gb          9     2/2        69.75      No     60     3     0   |
|                                                               3     3     0   |
+-------------------------------------------------------------------------------+
|   0  MIG 4g.71gb          5     1/1        69.75      No     64     4     0   |
|                                                               4     4     0   |
+-------------------------------------------------------------------------------+
|   0  MIG 7g.141gb         0     1/1        140.00     No     132    7     0   |
|                                                               8     7     1   |
+-------------------------------------------------------------------------------+
"""
_H200_PLACEMENTS = """\
GPU  0 Profile ID 19 Placements: {0,1,2,3,4,5,6}:1
GPU  0 Profile ID 20 Placements: {0,1,2,3,4,5,6}:1
GPU  0 Profile ID 15 Placements: {0,2,4,6}:2
GPU  0 Profile ID 14 Placements: {0,2,4}:2
GPU  0 Profile ID  9 Placements: {0,4}:4
GPU  0 Profile ID  5 Placement : {0}:4
GPU  0 Profile ID  0 Placement : {0}:8
"""
_INSTANCE = re.compile(r"^\|\s+(\d+)\s+MIG (\S+)\s+\d+\s+(\d+)\s+(\d+:\d+)\s+\|$", re.MULTILINE)
_MIG_DEVICE = re.compile(r"^  MIG \S+ +Device +\d+: \(UUID: (MIG-\S+)\)$", re.MULTILINE)
_CREATED = re.compile(r"^Successfully created GPU instance ID +(\d+) on GPU +0", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class Answer:
    """What one call printed, and its exit status."""

    code: int
    text: str


@dataclass(frozen=True, slots=True)
class SmiNode:
    """A node whose `nvidia-smi` can be called, and whose devices a program can be made to hold."""

    run: Callable[..., Answer]
    held: Callable[[str], AbstractContextManager[None]]

    def ok(self, *arguments: str) -> str:
        """Return what a call prints that must succeed."""
        answer = self.run(*arguments)
        assert answer.code == 0, answer.text
        return answer.text

    def modes(self) -> list[str]:
        """Return `current, pending` MIG mode by GPU."""
        query = "--query-gpu=mig.mode.current,mig.mode.pending"
        return self.ok(query, "--format=csv,noheader").splitlines()

    def enable(self, gpu: int) -> None:
        """Switch MIG mode on, by a reset where it takes one."""
        self.ok("-i", str(gpu), "-mig", "1")
        if self.modes()[gpu] == "Disabled, Enabled":
            self.ok("-i", str(gpu), "--gpu-reset")

    def instances(self) -> list[tuple[int, str, int, str]]:
        """Return (GPU, profile, GPU instance id, start:size) of each row of `mig -lgi`."""
        rows = re.findall(
            r"^\|\s+(\d+)\s+MIG (\S+)\s+\d+\s+(\d+)\s+(\d+:\d+)\s+\|$",
            self.ok("mig", "-lgi"),
            re.MULTILINE,
        )
        return [(int(gpu), name, int(gi), place) for gpu, name, gi, place in rows]

    def mig_uuids(self) -> list[str]:
        """Return the UUIDs of all MIG devices, in the order of `-L`."""
        return re.findall(
            r"^  MIG \S+ +Device +\d+: \(UUID: (MIG-\S+)\)$", self.ok("-L"), re.MULTILINE
        )


class NvidiaSmiContract:
    """The suite."""

    def test_listing_names_each_gpu(self, smi: SmiNode) -> None:
        lines = smi.ok("-L").splitlines()
        patterns = ("NVIDIA H200", "NVIDIA A100-SXM4-40GB", "NVIDIA L40S")
        for index, (line, name) in enumerate(zip(lines, patterns, strict=True)):
            assert re.fullmatch(rf"GPU {index}: {name} \(UUID: GPU-[0-9a-f-]{{36}}\)", line)

    def test_query_answers_in_csv(self, smi: SmiNode) -> None:
        columns = "index,name,memory.total,driver_version,mig.mode.current,mig.mode.pending"
        assert smi.ok(f"--query-gpu={columns}", "--format=csv").splitlines() == [
            "index, name, memory.total [MiB], driver_version, mig.mode.current, mig.mode.pending",
            "0, NVIDIA H200, 143771 MiB, 580.159.04, Disabled, Disabled",
            "1, NVIDIA A100-SXM4-40GB, 40960 MiB, 580.159.04, Disabled, Disabled",
            "2, NVIDIA L40S, 46068 MiB, 580.159.04, [N/A], [N/A]",
        ]

    def test_query_refuses_an_unknown_column(self, smi: SmiNode) -> None:
        answer = smi.run("--query-gpu=colour", "--format=csv")
        assert (answer.code, "colour" in answer.text) == (2, True)

    def test_profiles_are_told_while_mig_is_off(self, smi: SmiNode) -> None:
        assert smi.ok("mig", "-i", "0", "-lgip") == _H200_PROFILES

    def test_placements_are_told_while_mig_is_off(self, smi: SmiNode) -> None:
        assert smi.ok("mig", "-i", "0", "-lgipp") == _H200_PLACEMENTS

    def test_profiles_of_a_model_without_mig(self, smi: SmiNode) -> None:
        answer = smi.run("mig", "-i", "2", "-lgip")
        assert answer == Answer(6, "No MIG-supported devices found.\n")

    def test_instances_while_mig_is_off(self, smi: SmiNode) -> None:
        for verb in ("-lgi", "-lci"):
            assert smi.run("mig", verb) == Answer(0, "No MIG-enabled devices found.\n")

    def test_instances_while_there_are_none(self, smi: SmiNode) -> None:
        smi.enable(0)
        assert smi.run("mig", "-lgi") == Answer(6, "No GPU instances found: Not Found\n")
        assert smi.run("mig", "-lci") == Answer(6, "No compute instances found: Not Found\n")

    def test_unknown_gpu(self, smi: SmiNode) -> None:
        for arguments in (("-i", "7", "-L"), ("mig", "-i", "7", "-lgip"), ("-i", "7", "-mig", "1")):
            assert smi.run(*arguments) == Answer(6, "No devices were found\n")

    def test_hopper_switches_mig_at_once(self, smi: SmiNode) -> None:
        text = smi.ok("-i", "0", "-mig", "1")
        assert re.fullmatch(r"Enabled MIG Mode for GPU 00000000:\S+\nAll done\.\n", text)
        assert smi.modes()[0] == "Enabled, Enabled"
        assert smi.ok("-i", "0", "-mig", "0").startswith("Disabled MIG Mode for GPU 00000000:")
        assert smi.modes()[0] == "Disabled, Disabled"

    def test_ampere_switches_mig_with_a_reset(self, smi: SmiNode) -> None:
        text = smi.ok("-i", "1", "-mig", "1")
        assert text.startswith("Warning: MIG mode is in pending enable state for GPU 00000000:")
        assert smi.modes()[1] == "Disabled, Enabled"
        assert "was successfully reset.\nAll done.\n" in smi.ok("-i", "1", "--gpu-reset")
        assert smi.modes()[1] == "Enabled, Enabled"

    def test_model_without_mig_stays_as_it_is(self, smi: SmiNode) -> None:
        text = smi.ok("-i", "2", "-mig", "1")
        assert re.match(r"Unable to enable MIG Mode for GPU \S+: Not Supported\n", text)
        assert smi.modes()[2] == "[N/A], [N/A]"

    def test_instances_are_created_where_they_are_wanted(self, smi: SmiNode) -> None:
        smi.enable(0)
        text = smi.ok("mig", "-i", "0", "-cgi", "9:4,19:0", "-C")
        created = re.findall(
            r"^Successfully created GPU instance ID +(\d+) on GPU +0", text, re.MULTILINE
        )
        assert [int(gi) for gi in created] == [gi for _, _, gi, _ in smi.instances()]
        assert [row[1:2] + row[3:] for row in smi.instances()] == [
            ("3g.71gb", "4:4"),
            ("1g.18gb", "0:1"),
        ]
        assert text.count("Successfully created compute instance ID  0 on GPU  0") == 2

    def test_instance_rows_are_as_the_driver_prints_them(self, smi: SmiNode) -> None:
        smi.enable(0)
        smi.ok("mig", "-i", "0", "-cgi", "9:4", "-C")
        assert smi.ok("mig", "-lgi").splitlines()[4:] == [
            "|=========================================================|",
            "|   0  MIG 3g.71gb            9        1          4:4     |",
            "+---------------------------------------------------------+",
        ]
        assert smi.ok("mig", "-lci").splitlines()[5:] == [
            "|====================================================================|",
            "|   0      1       MIG 3g.71gb          2         0          0:3     |",
            "+--------------------------------------------------------------------+",
        ]

    def test_listing_names_mig_devices(self, smi: SmiNode) -> None:
        smi.enable(1)
        smi.ok("mig", "-i", "1", "-cgi", "9:4,19:0", "-C")
        lines = smi.ok("-L").splitlines()
        assert re.fullmatch(r"  MIG 3g\.20gb     Device  0: \(UUID: MIG-[0-9a-f-]{36}\)", lines[2])
        assert re.fullmatch(r"  MIG 1g\.5gb      Device  1: \(UUID: MIG-[0-9a-f-]{36}\)", lines[3])

    def test_report_ties_mig_devices_to_instances(self, smi: SmiNode) -> None:
        smi.enable(1)
        smi.ok("mig", "-i", "1", "-cgi", "9:4,19:0", "-C")
        root = ElementTree.fromstring(smi.ok("-q", "-x"))
        devices = root.findall("gpu")[1].findall("mig_devices/mig_device")
        assert [
            (
                device.findtext("index"),
                device.findtext("gpu_instance_id"),
                device.findtext("compute_instance_id"),
                device.findtext("fb_memory_usage/total"),
            )
            for device in devices
        ] == [("0", "1", "0", "19968 MiB"), ("1", "7", "0", "4864 MiB")]
        assert root.findall("gpu")[0].findtext("mig_devices", "").strip() == "None"

    def test_free_counts_follow_the_placements(self, smi: SmiNode) -> None:
        smi.enable(0)
        smi.ok("mig", "-i", "0", "-cgi", "9:0", "-C")
        rows = re.findall(r"MIG (\S+)\s+\d+\s+(\d+)/", smi.ok("mig", "-i", "0", "-lgip"))
        assert dict(rows) == {
            "1g.18gb": "3",
            "1g.18gb+me": "1",
            "1g.35gb": "2",
            "2g.35gb": "1",
            "3g.71gb": "1",
            "4g.71gb": "0",
            "7g.141gb": "0",
        }

    def test_instance_that_does_not_fit(self, smi: SmiNode) -> None:
        smi.enable(1)
        answer = smi.run("mig", "-i", "1", "-cgi", "9:0,5", "-C")
        assert answer.code != 0
        assert answer.text.endswith(
            "Unable to create a GPU instance on GPU  1 using profile 5: Insufficient Resources\n"
            "Failed to create GPU instances: Insufficient Resources\n"
        )
        assert [row[1] for row in smi.instances()] == ["3g.20gb"]

    def test_placement_and_profile_that_do_not_exist(self, smi: SmiNode) -> None:
        smi.enable(1)
        for word in ("9:1", "99"):
            answer = smi.run("mig", "-i", "1", "-cgi", word, "-C")
            assert answer.code == 2
            assert "Failed to create GPU instances: Invalid Argument" in answer.text

    def test_one_media_instance_a_gpu(self, smi: SmiNode) -> None:
        smi.enable(1)
        smi.ok("mig", "-i", "1", "-cgi", "20:0", "-C")
        assert "Insufficient Resources" in smi.run("mig", "-i", "1", "-cgi", "20:1", "-C").text

    def test_instance_without_a_compute_instance_is_no_device(self, smi: SmiNode) -> None:
        smi.enable(1)
        smi.ok("mig", "-i", "1", "-cgi", "9:4")
        assert smi.mig_uuids() == []
        smi.ok("mig", "-i", "1", "-cci", "-gi", "1")
        assert len(smi.mig_uuids()) == 1

    def test_destruction_goes_inside_out(self, smi: SmiNode) -> None:
        smi.enable(1)
        smi.ok("mig", "-i", "1", "-cgi", "9:4,19:0", "-C")
        refused = smi.run("mig", "-i", "1", "-dgi", "-gi", "1")
        assert refused == Answer(
            19,
            "Unable to destroy GPU instance ID  1 from GPU  1: In use by another client\n"
            "Failed to destroy GPU instances: In use by another client\n",
        )
        assert smi.ok("mig", "-i", "1", "-dci", "-gi", "1") == (
            "Successfully destroyed compute instance ID  0 from GPU  1 GPU instance ID  1\n"
        )
        assert smi.ok("mig", "-dgi", "-i", "1", "-gi", "1") == (
            "Successfully destroyed GPU instance ID  1 from GPU  1\n"
        )
        assert [row[1] for row in smi.instances()] == ["1g.5gb"]

    def test_device_that_a_program_holds(self, smi: SmiNode) -> None:
        smi.enable(1)
        smi.ok("mig", "-i", "1", "-cgi", "9:4", "-C")
        [uuid] = smi.mig_uuids()
        with smi.held(uuid):
            refused = smi.run("mig", "-i", "1", "-dci", "-gi", "1")
            assert refused.code == 19
            assert "In use by another client" in refused.text
            assert smi.run("-i", "1", "--gpu-reset").code != 0
        smi.ok("mig", "-i", "1", "-dci", "-gi", "1")

    def test_mig_stays_on_while_there_are_instances(self, smi: SmiNode) -> None:
        smi.enable(0)
        smi.ok("mig", "-i", "0", "-cgi", "19:0", "-C")
        refused = smi.run("-i", "0", "-mig", "0")
        assert refused.code == 19
        assert "Unable to disable MIG Mode for GPU" in refused.text
        assert smi.modes()[0] == "Enabled, Enabled"

    def test_instances_need_mig(self, smi: SmiNode) -> None:
        answer = smi.run("mig", "-i", "0", "-cgi", "19:0", "-C")
        assert (answer.code != 0, answer.text) == (True, "No MIG-enabled devices found.\n")

    def test_instance_that_is_not_there(self, smi: SmiNode) -> None:
        smi.enable(1)
        for verb in ("-dgi", "-dci"):
            assert smi.run("mig", "-i", "1", verb, "-gi", "5").code == 6

    def test_reset_forgets_instances(self, smi: SmiNode) -> None:
        smi.enable(0)
        smi.ok("mig", "-i", "0", "-cgi", "19:0", "-C")
        smi.ok("--gpu-reset", "-i", "0")
        assert smi.run("mig", "-lgi").code == 6
