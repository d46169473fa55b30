"""Text as nvidia-smi prints it for a table of the catalogue."""

from gpu.planning.tables import GpuTable

_RULE = "+-------------------------------------------------------------------------------+"


def lgip(table: GpuTable, gpu: int = 0) -> str:
    lines = [_RULE, "| GPU instance profiles:", _RULE]
    for profile in table.profiles:
        copies, decoders, encoders, jpeg, ofa = (engine or 0 for engine in profile.engines)
        memory = (profile.memory_mib or 0) / 1024
        most = profile.max_instances
        first = (
            f"|  {gpu:2}  MIG {profile.name:15} {profile.gi_profile_id:2}     {most}/{most}"
            f"      {memory:7.2f}      No  {profile.multiprocessors or 0:5}"
            f"  {decoders:4} {encoders:4}   |"
        )
        lines += [first, f"|{'':55}{copies:10} {jpeg:5} {ofa:5}   |", _RULE]
    return "\n".join([*lines, ""])


def lgipp(table: GpuTable, gpu: int = 0) -> str:
    lines = []
    for profile in table.profiles:
        starts = ",".join(str(place.start) for place in profile.placements)
        word = "Placements:" if len(profile.placements) > 1 else "Placement :"
        size = profile.placements[0].size
        lines.append(f"GPU {gpu:2} Profile ID {profile.gi_profile_id:2} {word} {{{starts}}}:{size}")
    return "\n".join([*lines, ""])
