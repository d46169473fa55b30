"""Readers of nvidia-smi's text: real outputs, old and new, with noise, and what must be refused."""

from collections.abc import Callable
from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpu.planning.nvidia_smi import (
    UnreadableOutputError,
    read_compute_instances,
    read_gpu_instances,
    read_gpus,
    read_listing,
    read_profiles,
)
from gpu.planning.placements import Placement
from tests.planning.builders import H200, fixture

MIG = fixture("h200/smi_mig.txt")
READERS: list[Callable[[str], object]] = [
    read_gpus,
    read_listing,
    read_gpu_instances,
    read_compute_instances,
    read_profiles,
]

LGI = """\
$ nvidia-smi mig -lgi
+-------------------------------------------------------+
| GPU instances:                                        |
| GPU   Name             Profile  Instance   Placement  |
|                          ID       ID       Start:Size |
|=======================================================|
|   0  MIG 1g.10gb         19        7          0:1     |
+-------------------------------------------------------+
|   0  MIG 1g.10gb+me      20       13          6:1     |
+-------------------------------------------------------+
|  10  MIG 3g.40gb          9        2          4:4     |
+-------------------------------------------------------+
"""
LCI = """\
+--------------------------------------------------------------------+
| Compute instances:                                                 |
| GPU     GPU       Name             Profile   Instance   Placement  |
|       Instance                       ID        ID       Start:Size |
|         ID                                                         |
|====================================================================|
|   0      9       MIG 1g.5gb           0         0          0:1     |
+--------------------------------------------------------------------+
|   0      3       MIG 1c.2g.10gb       0         1          1:1     |
+--------------------------------------------------------------------+
"""
OLD_LCI = """\
+-------------------------------------------------------+
| Compute instances:                                    |
| GPU     GPU       Name             Profile   Instance |
|       Instance                       ID        ID     |
|         ID                                            |
|=======================================================|
|   0      1       MIG 1c.3g.20gb       0         2     |
+-------------------------------------------------------+
"""
LISTING = """\
GPU 0: NVIDIA A100-SXM4-40GB (UUID: GPU-00000000-0000-0000-0000-000000000000)
  MIG 1g.5gb      Device  0: (UUID: MIG-a0000000-0000-0000-0000-000000000000)
  MIG 1g.5gb+me   Device  1: (UUID: MIG-a1000000-0000-0000-0000-000000000000)
GPU 1: NVIDIA A100-SXM4-80GB (UUID: GPU-00000000-0000-0000-0000-000000000001)
  MIG 3g.40gb     Device  0: (UUID: MIG-GPU-00000000-0000-0000-0000-000000000001/2/0)
GPU 2: NVIDIA L40S (UUID: GPU-00000000-0000-0000-0000-000000000002)
"""


def test_real_table_of_gpus_is_read() -> None:
    (gpu,) = read_gpus(fixture("h200/smi_query.csv"))
    assert (gpu.index, gpu.name, gpu.memory_mib, gpu.driver_version) == (
        0,
        "NVIDIA H200",
        143771,
        "580.159.04",
    )
    assert (gpu.uuid, gpu.pci_bus_id) == (
        "GPU-00000000-1111-2222-3333-444444444444",
        "00000000:00:06.0",
    )
    assert (gpu.is_mig_enabled, gpu.is_mig_pending) == (False, False)


def test_columns_of_gpus_stand_in_any_order() -> None:
    text = "## query\r\nname, uuid, index, memory.total [MiB]\r\n"
    assert read_gpus(text) == ()
    text = "index, mig.mode.pending, uuid, mig.mode.current\n3, Enabled, GPU-a, Disabled\nrc=0\n7\n"
    (gpu,) = read_gpus(text)
    assert (gpu.index, gpu.uuid, gpu.name) == (3, "GPU-a", "")
    assert (gpu.is_mig_enabled, gpu.is_mig_pending) == (False, True)


def test_what_the_driver_does_not_tell_of_a_gpu_is_unknown() -> None:
    text = "index, uuid, memory.total [MiB], mig.mode.current\n1, GPU-a, [GPU is lost], [N/A]\n"
    (gpu,) = read_gpus(text)
    assert (gpu.memory_mib, gpu.is_mig_enabled, gpu.is_mig_pending) == (None, None, None)


def test_row_of_gpus_with_missing_cells_is_refused_by_line() -> None:
    with pytest.raises(UnreadableOutputError, match=r"Line 2 of .* 2 cells under 3 headings"):
        read_gpus("index, uuid, name\n0, GPU-a\n")


def test_listing_has_gpus_with_their_devices() -> None:
    first, second, third = read_listing(LISTING)
    assert [(device.index, device.profile) for device in first.devices] == [
        (0, "1g.5gb"),
        (1, "1g.5gb+me"),
    ]
    assert second.devices[0].uuid == "MIG-GPU-00000000-0000-0000-0000-000000000001/2/0"
    assert (third.index, third.name, third.devices) == (2, "NVIDIA L40S", ())
    assert read_listing(fixture("h200/smi_L.txt"))[0].name == "NVIDIA H200"


def test_device_without_its_gpu_is_refused() -> None:
    with pytest.raises(UnreadableOutputError, match="MIG device before any GPU"):
        read_listing(LISTING.partition("\n")[2])


def test_no_gpu_at_all_is_an_answer() -> None:
    assert read_listing("No devices were found\n") == ()
    assert read_gpus("No devices were found\n") == ()


def test_gpu_instances_are_read_with_ids_and_places() -> None:
    first, second, third = read_gpu_instances(LGI)
    assert (first.gpu, first.profile, first.profile_id, first.gi_id) == (0, "1g.10gb", 19, 7)
    assert (second.profile, second.gi_id, second.placement) == ("1g.10gb+me", 13, Placement(6, 1))
    assert (third.gpu, third.placement) == (10, Placement(4, 4))


def test_lines_may_begin_with_the_time_of_a_log() -> None:
    def stamped(text: str) -> str:
        return "\n".join(f"2026-12-01T10:00:00.000000000Z {line}" for line in text.splitlines())

    assert read_gpu_instances(stamped(LGI)) == read_gpu_instances(LGI)
    assert read_compute_instances(stamped(LCI)) == read_compute_instances(LCI)
    assert read_profiles(stamped(MIG)) == read_profiles(MIG)
    assert read_listing(stamped(LISTING)) == read_listing(LISTING)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (LCI, [(9, "1g.5gb", 0, True), (3, "1c.2g.10gb", 1, False)]),
        (OLD_LCI, [(1, "1c.3g.20gb", 2, False)]),
    ],
    ids=["with placements", "old, without"],
)
def test_compute_instances_tell_whether_they_fill(text: str, expected: list[object]) -> None:
    rows = read_compute_instances(text)
    assert [(row.gi_id, row.profile, row.ci_id, row.fills) for row in rows] == expected


def test_listings_stand_in_one_log_with_other_output() -> None:
    log = f"+ nvidia-smi -L\n{LISTING}rc=0\n{MIG}\n{LGI}rc=0\n+ nvidia-smi mig -lci\n{LCI}rc=0\n"
    assert len(read_gpu_instances(log)) == 3
    assert len(read_compute_instances(log.replace("\n", "\r\n"))) == 2
    assert len(read_listing(log)) == 3
    assert list(read_profiles(log)) == [0]


@pytest.mark.parametrize(
    "text",
    ["No MIG-enabled devices found.", "No MIG-supported devices found.", MIG],
    ids=["MIG is off", "no MIG at all", "real log, MIG is off"],
)
def test_no_instances_is_an_answer_where_nvidia_smi_says_so(text: str) -> None:
    assert read_gpu_instances(text) == ()
    assert read_compute_instances(text) == ()


def test_no_instances_found_is_an_answer() -> None:
    assert read_gpu_instances("No GPU instances found: Not Found") == ()
    assert read_compute_instances("No compute instances found: Not Found") == ()


@pytest.mark.parametrize("reader", [read_gpu_instances, read_compute_instances])
def test_failed_listing_is_not_read_as_none(reader: Callable[[str], object]) -> None:
    text = "\nNVIDIA-SMI has failed because it couldn't communicate with the NVIDIA driver.\n"
    with pytest.raises(UnreadableOutputError, match='the text begins "NVIDIA-SMI has failed'):
        reader(text)


@pytest.mark.parametrize(
    ("text", "reader", "reason"),
    [
        (LGI.replace("0:1     |", "0:"), read_gpu_instances, "Line 7 .*row is cut off"),
        (LGI.replace("0:1 ", "0:0 "), read_gpu_instances, "Line 7 .*placement has no slices"),
        (
            LGI.replace("1g.10gb  ", "1x.10gb  "),
            read_gpu_instances,
            "Line 7 .*no name of a profile",
        ),
        (LCI.replace("0          0:1", "?          0:1"), read_compute_instances, "cut off"),
    ],
)
def test_damaged_row_is_refused_by_line(
    text: str, reader: Callable[[str], object], reason: str
) -> None:
    with pytest.raises(UnreadableOutputError, match=reason):
        reader(text)


def test_real_profiles_are_those_of_the_catalogue() -> None:
    (profiles,) = read_profiles(MIG).values()
    assert [(p.name, p.gi_profile_id, p.memory_mib, p.placements, p.engines) for p in profiles] == [
        (p.name, p.gi_profile_id, p.memory_mib, p.placements, p.engines) for p in H200.profiles
    ]


def test_profiles_of_several_gpus_and_another_width_are_read() -> None:
    other = MIG.replace("|   0  MIG", "|  12  MIG").replace("GPU  0 Prof", "GPU 12 Prof")
    narrow = other.replace("MIG 1g.18gb         19", "MIG 1g.18gb 19").replace("        1 ", "  1 ")
    profiles = read_profiles(MIG + narrow)
    assert list(profiles) == [0, 12]
    assert profiles[0] == profiles[12]


def test_no_gpu_with_mig_is_an_answer() -> None:
    assert read_profiles("No MIG-supported devices found.\n") == {}


@pytest.mark.parametrize(
    ("old", "new", "reason"),
    [
        ("16.00      No     16", "16.00", r"Line 10 .*profile's row is cut off"),
        ("Profile ID 14 Placements: {0,2,4}:2", "Profile ID 14 Placements: {0,2", "cut off"),
        (
            "Profile ID 14 Placements: {0,2,4}:2",
            "",
            r"no placements for profile 2g\.35gb \(ID 14\)",
        ),
        ("{0,2,4}:2", "{0,2,4}:0", "placement has no slices"),
        ("{0,2,4}:2", "{}:2", "no placements for profile"),
        ("   16.00  ", "  1.2.3  ", r"1\.2\.3 is no amount of memory"),
        ("MIG 1g.18gb  ", "MIG large    ", "large is no name"),
        (
            "|   0  MIG 1g.18gb+me ",
            "+-----+\n|   0  MIG 1g.18gb+me ",
            None,
        ),
    ],
)
def test_damaged_profiles_are_refused(old: str, new: str, reason: str | None) -> None:
    text = MIG.replace(old, new)
    assert text != MIG
    if reason is None:
        assert read_profiles(text)
    else:
        with pytest.raises(UnreadableOutputError, match=reason):
            read_profiles(text)


def test_profile_without_its_second_row_is_refused() -> None:
    lines = MIG.splitlines()
    first = next(i for i, line in enumerate(lines) if "MIG 7g.141gb" in line)
    with pytest.raises(UnreadableOutputError, match="second row of a profile is missing"):
        read_profiles("\n".join([*lines[: first + 1], *lines[first + 2 :]]))
    with pytest.raises(UnreadableOutputError, match=f"Line {first + 2} "):
        read_profiles("\n".join(lines[: first + 1]))


@pytest.mark.parametrize(
    ("printed", "expected"),
    [("4.75", 4864), ("9.62", 9856), ("5.81", 5952), ("23.62", 24192), ("16.01", 16394)],
)
def test_memory_is_the_drivers_own_step_where_one_fits(printed: str, expected: int) -> None:
    text = MIG.replace("   16.00  ", f"   {printed}  ", 1)
    assert read_profiles(text)[0][0].memory_mib == expected


@pytest.mark.parametrize("reader", READERS)
@pytest.mark.parametrize("text", ["", "\n\n", "garbage", "| MIG |", "\x00\xff", "+-+\n| x: |\n"])
def test_garbage_is_refused_in_one_sentence(reader: Callable[[str], object], text: str) -> None:
    with pytest.raises(UnreadableOutputError) as error:
        reader(text)
    assert error.value.line == 0
    assert "nvidia-smi" in str(error.value)


@given(st.lists(st.sampled_from([*MIG.splitlines(), *LGI.splitlines(), *LCI.splitlines()])))
def test_shuffled_lines_never_break_a_reader(lines: list[str]) -> None:
    for reader in READERS:
        with suppress(UnreadableOutputError):
            reader("\n".join(lines))


@given(st.text(max_size=200))
def test_any_text_is_read_or_refused(text: str) -> None:
    for reader in READERS:
        with pytest.raises(UnreadableOutputError):
            reader(text)
