"""The tables that `nvidia-smi mig` prints, to the column."""

from gpu.adapters.smi import hardware as hw
from gpu.adapters.smi.call import Call
from gpu.adapters.smi.changes import compute_profile_id

_PROFILES = (
    "| GPU instance profiles:                                                        |",
    "| GPU   Name               ID    Instances   Memory     P2P    SM    DEC   ENC  |",
    "|                                Free/Total   GiB              CE    JPEG  OFA  |",
)
_INSTANCES = (
    "| GPU instances:                                          |",
    "| GPU   Name               Profile  Instance   Placement  |",
    "|                            ID       ID       Start:Size |",
)
_COMPUTE = (
    "| Compute instances:                                                 |",
    "| GPU     GPU       Name             Profile   Instance   Placement  |",
    "|       Instance                       ID        ID       Start:Size |",
    "|         ID                                                         |",
)


class _Table:
    """Rows between rules of one width."""

    def __init__(self, heading: tuple[str, ...]) -> None:
        self._rule = "+" + "-" * (len(heading[0]) - 2) + "+"
        self.lines = [self._rule, *heading, "|" + "=" * (len(heading[0]) - 2) + "|"]
        self.rows = 0

    def row(self, *lines: str) -> None:
        """Add a row of one or more lines."""
        self.lines += [*lines, self._rule]
        self.rows += 1


def print_profiles(call: Call) -> int:
    """Print `-lgip`; newer drivers answer while MIG mode is off, too."""
    table = _Table(_PROFILES)
    for index, gpu in call.chosen:
        for p in gpu["profiles"]:
            free = f"{hw.free_count(gpu, p)}/{p['max_instances']}"
            memory = f"{p['memory_mib'] / 1024:.2f}"
            table.row(
                f"| {index:3}  MIG {p['name']:<16}{p['id']:2}     {free:<11}{memory:<11}No     "
                f"{p['sm']:<7}{p['dec']:<6}{p['enc']:<4}|",
                f"|{'':63}{p['ce']:<6}{p['jpeg']:<6}{p['ofa']:<4}|",
            )
    return _finish(call, table, "GPU instance profiles")


def print_placements(call: Call) -> int:
    """Print `-lgipp`."""
    for index, gpu in call.chosen:
        for p in gpu["profiles"]:
            starts = ",".join(map(str, p["starts"]))
            word = "Placement :" if len(p["starts"]) == 1 else "Placements:"
            call.say(
                f"GPU {index:2} Profile ID {p['id']:2} {word} {{{starts}}}:{p['memory_slices']}"
            )
    return hw.OK


def print_instances(call: Call) -> int:
    """Print `-lgi`."""
    table = _Table(_INSTANCES)
    for index, gpu in call.mig_gpus():
        for item in gpu["instances"]:
            p = hw.profile_of(gpu, item)
            table.row(
                f"| {index:3}  MIG {p['name']:<18}{p['id']:2}{item['id']:9}          "
                f"{item['start']}:{p['memory_slices']:<6}|"
            )
    return _finish(call, table, "GPU instances")


def print_compute_instances(call: Call) -> int:
    """Print `-lci`."""
    table = _Table(_COMPUTE)
    for index, gpu in call.mig_gpus():
        for item in gpu["instances"]:
            slices = hw.profile_of(gpu, item)["compute_slices"]
            for compute in item["compute"] if call.is_chosen(item) else ():
                table.row(
                    f"|{index:4}{item['id']:7}       MIG {item['profile']:<16}"
                    f"{compute_profile_id(slices):2}{compute['id']:10}          0:{slices:<6}|"
                )
    return _finish(call, table, "compute instances")


def _finish(call: Call, table: _Table, what: str) -> int:
    if not table.rows:
        call.say(f"No {what} found: {hw.SENTENCES[hw.NOT_FOUND]}")
        return hw.NOT_FOUND
    for line in table.lines:
        call.say(line)
    return hw.OK
