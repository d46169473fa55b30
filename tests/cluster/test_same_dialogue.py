"""The two stand-ins for nvidia-smi, Go's and Python's, agree on every dialogue, word for word."""

import tempfile
from pathlib import Path

import pytest
from defusedxml import ElementTree
from hypothesis import given, settings
from hypothesis import strategies as st

from gpu.adapters.smi import run
from tests.cluster.build import Programs
from tests.cluster.gpus import Gpus, models, new_state

_GPU_ELEMENTS = (
    "product_name",
    "uuid",
    "mig_mode/current_mig",
    "mig_mode/pending_mig",
    "fb_memory_usage/total",
)
_DEVICE_ELEMENTS = (
    "index",
    "gpu_instance_id",
    "compute_instance_id",
    "fb_memory_usage/total",
)
# One of each geometry, one that cannot do MIG, one whose engines run out before its placements.
MODELS = ("a100-40gb", "a30-24gb", "rtx-pro-6000-blackwell-96gb", "l40s-48gb")
_FACTS = models()
_PROFILES = sorted({row["id"] for model in MODELS for row in _FACTS[model]["profiles"]})
# Every creation that the tables allow, by GPU.
_LEGAL = [
    (str(index), f"{row['id']}:{start}")
    for index, model in enumerate(MODELS)
    for row in _FACTS[model]["profiles"]
    for start in row["starts"]
]
_QUERY = "index,uuid,name,pci.bus_id,memory.total,driver_version,mig.mode.current,mig.mode.pending"

gpu = st.sampled_from(["0", "1", "2", "3", "9"])
# Ids that GPU instances of these models really get, and one that none has.
instance = st.sampled_from([str(number) for number in (0, 1, 2, 3, 4, 7, 8, 12)])
# Where a GPU instance goes when no start is named is each driver's own choice.
wanted = st.builds("{}:{}".format, st.sampled_from(_PROFILES), st.integers(0, 9))
profiles = st.lists(wanted, min_size=1, max_size=3).map(",".join)
change = st.one_of(
    st.builds(lambda g, on: ("-i", g, "-mig", on), gpu, st.sampled_from(["1", "1", "1", "0"])),
    st.builds(lambda g: ("-i", g, "--gpu-reset"), gpu),
    st.builds(lambda g, p: ("mig", "-i", g, "-cgi", p, "-C"), gpu, profiles),
    st.sampled_from(_LEGAL).map(lambda pair: ("mig", "-i", pair[0], "-cgi", pair[1], "-C")),
    st.builds(lambda g, p: ("mig", "-i", g, "-cgi", p), gpu, profiles),
    st.builds(lambda g, i: ("mig", "-i", g, "-cci", "-gi", i), gpu, instance),
    st.builds(lambda g, i: ("mig", "-i", g, "-dci", "-gi", i), gpu, instance),
    st.builds(lambda g, i: ("mig", "-i", g, "-dgi", "-gi", i), gpu, instance),
    st.builds(lambda g: ("mig", "-i", g, "-dci"), gpu),
    st.builds(lambda g: ("mig", "-i", g, "-dgi"), gpu),
)
LOOKS = (
    ("-L",),
    (f"--query-gpu={_QUERY}", "--format=csv"),
    ("mig", "-lgip"),
    ("mig", "-lgipp"),
    ("mig", "-lgi"),
    ("mig", "-lci"),
    ("-q", "-x"),
)
# Both MIG-capable kinds are on from the start, so that most dialogues get to instances.
BEGINNING = tuple(("-i", g, *words) for g in ("0", "1", "2") for words in (("-mig", "1"), ("-r",)))


@pytest.mark.cluster
@settings(max_examples=40, deadline=None)
@given(changes=st.lists(change, max_size=12))
def test_both_stand_ins_say_the_same(
    cluster_programs: Programs, changes: list[tuple[str, ...]]
) -> None:
    with tempfile.TemporaryDirectory() as folder:
        one, other = Path(folder, "go"), Path(folder, "python")
        state = new_state("node-1", MODELS)
        lab = Gpus(one, cluster_programs.standins / "nvidia-smi")
        for directory in (one, other):
            Gpus(directory, lab.nvidia_smi_program).install(state)
        for call in (*BEGINNING, *changes, *LOOKS):
            done = lab.nvidia_smi(*call)
            code, text = run.answer(list(call), str(other), None)
            assert (code, _comparable(text)) == (done.returncode, _comparable(done.stdout)), call


def _comparable(text: str) -> object:
    """Return an answer as it is, a report by the elements that the product may rely on."""
    if not text.startswith("<?xml"):
        return text
    root = ElementTree.fromstring(text[text.index("<nvidia_smi_log") :])
    texts = [root.findtext(name) for name in ("driver_version", "cuda_version", "attached_gpus")]
    return texts + [
        [gpu.get("id")]
        + [gpu.findtext(name) for name in _GPU_ELEMENTS]
        + [[device.findtext(n) for n in _DEVICE_ELEMENTS] for device in gpu.iter("mig_device")]
        for gpu in root.iter("gpu")
    ]
