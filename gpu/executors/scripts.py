"""The POSIX shell that runs on nodes: pure text, safe to run twice.

Each guarded step first looks whether its effect is there already, so that a Pod that the kubelet
starts again does nothing twice. Only the shell, `awk` and `nvidia-smi` are needed.
"""

import shlex
from collections.abc import Sequence
from dataclasses import dataclass

_COLUMNS = (
    "index,uuid,name,pci.bus_id,memory.total,driver_version,mig.mode.current,mig.mode.pending"
)
PROBE_COMMANDS = (
    "-L",
    f"--query-gpu={_COLUMNS} --format=csv",
    "mig -lgip",
    "mig -lgipp",
    "mig -lgi",
    "mig -lci",
    "-q -x",
)
SECTION = "## nvidia-smi "
RETURN_CODE = "rc="
RUN = "+ nvidia-smi "


@dataclass(frozen=True, slots=True)
class MigModeLine:
    """Switch MIG mode of one GPU; `reset` where the architecture needs one for it to hold."""

    gpu: int
    on: bool
    reset: bool


@dataclass(frozen=True, slots=True)
class DestroyLine:
    """Destroy one GPU instance with its compute instances, if it is still that very one."""

    gpu: int
    gi_id: int
    profile_id: int
    placement: str


@dataclass(frozen=True, slots=True)
class CreateLine:
    """Create one GPU instance with a compute instance that fills it, unless it is there."""

    gpu: int
    profile_id: int
    placement: str


type Line = MigModeLine | DestroyLine | CreateLine

_FUNCTIONS = """\
set -u
run() {
  echo "+ nvidia-smi $*"
  $SMI "$@"; rc=$?
  echo "rc=$rc"
  [ "$rc" -eq 0 ] || exit "$rc"
}
mode_is() {
  $SMI -i "$1" --query-gpu=mig.mode.current --format=csv,noheader | grep -qi "^$2"
}
mode() {
  if mode_is "$1" "$4"; then echo "# MIG mode of GPU $1 is $4 already"; return; fi
  run -i "$1" -mig "$2"
  if [ "$3" = reset ] && ! mode_is "$1" "$4"; then run --gpu-reset -i "$1"; fi
  if ! mode_is "$1" "$4"; then
    echo "error: MIG mode of GPU $1 is not $4; a reset or a reboot is pending"; exit 70
  fi
}
instance() {
  $SMI mig -lgi -i "$1" | awk -v g="$1" -v p="$2" -v q="$3" \\
    '$3 == "MIG" && $2 == g && $5 == p && $7 == q { print $6; exit }'
}
has_compute() {
  $SMI mig -lci -i "$1" | awk -v g="$1" -v i="$2" \\
    '$2 == g && $3 == i { found = 1 } END { exit !found }'
}
destroy() {
  if [ "$(instance "$1" "$3" "$4")" != "$2" ]; then
    echo "# GPU instance $2 of GPU $1 is gone already"; return
  fi
  if has_compute "$1" "$2"; then run mig -dci -i "$1" -gi "$2"; fi
  run mig -dgi -i "$1" -gi "$2"
}
create() {
  found=$(instance "$1" "$2" "$3:$4")
  if [ -z "$found" ]; then run mig -cgi "$2:$3" -C -i "$1"; return; fi
  if has_compute "$1" "$found"; then
    echo "# profile $2 is at $3 of GPU $1 already"
  else
    run mig -cci -i "$1" -gi "$found"
  fi
}
"""


def probe_script(nvidia_smi: str) -> str:
    """Return the script that prints all that is to be known of a node's GPUs, by section."""
    lines = [f"SMI={shlex.quote(nvidia_smi)}"]
    for command in PROBE_COMMANDS:
        lines.append(f"echo {shlex.quote(SECTION + command)}")
        lines.append(f"$SMI {command} 2>&1")
        lines.append(f'echo "{RETURN_CODE}$?"')
    return "\n".join([*lines, "exit 0", ""])


def apply_script(nvidia_smi: str, lines: Sequence[Line]) -> str:
    """Return the script that carries out the lines, stops at the first refusal, then looks."""
    calls = [_call(line) for line in lines]
    start = f"SMI={shlex.quote(nvidia_smi)}\n{_FUNCTIONS}"
    return start + "\n".join(["{", *calls, "} 2>&1", ""]) + probe_script(nvidia_smi)


def _call(line: Line) -> str:
    match line:
        case MigModeLine(gpu, on, reset):
            state = "1" if on else "0"
            word = "Enabled" if on else "Disabled"
            return f"mode {gpu} {state} {'reset' if reset else 'keep'} {word}"
        case DestroyLine(gpu, gi_id, profile_id, placement):
            return f"destroy {gpu} {gi_id} {profile_id} {placement}"
        case CreateLine(gpu, profile_id, placement):
            start, size = placement.split(":")
            return f"create {gpu} {profile_id} {start} {size}"


@dataclass(frozen=True, slots=True)
class Section:
    """What one command of a script printed, and its exit status (None when it never ended)."""

    command: str
    text: str
    return_code: int | None


def sections(log: str) -> dict[str, Section]:
    """Cut a log at its headings; a command that ran twice counts as it was last."""
    found: dict[str, Section] = {}
    command: str | None = None
    body: list[str] = []
    for line in log.splitlines():
        if line.startswith(SECTION):
            command, body = line.removeprefix(SECTION), []
        elif command is not None and line.startswith(RETURN_CODE):
            code = int(line.removeprefix(RETURN_CODE))
            found[command] = Section(command, "\n".join(body), code)
            command = None
        elif command is not None:
            body.append(line)
    if command is not None:
        found[command] = Section(command, "\n".join(body), None)
    return found


def commands_run(log: str) -> list[str]:
    """Return the changing `nvidia-smi` commands that a log shows, as a person would type them."""
    prefix = RUN.removeprefix("+ ")
    return [prefix + line.removeprefix(RUN) for line in log.splitlines() if line.startswith(RUN)]


def refusal(log: str) -> str:
    """Return what the driver said where a script stopped; empty when it did not stop."""
    lines = log.splitlines()
    for number, line in enumerate(lines):
        if line.startswith(RETURN_CODE) and line != f"{RETURN_CODE}0":
            start = max((i for i in range(number) if lines[i].startswith("+ ")), default=-1)
            return " ".join(part.strip() for part in lines[start + 1 : number] if part.strip())
        if line.startswith(SECTION):
            break
    return next((line for line in lines if line.startswith("error: ")), "")
