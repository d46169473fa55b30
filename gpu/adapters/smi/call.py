"""One call of the stand-in: its arguments, the GPUs in view, and what it prints."""

from collections.abc import Iterator
from typing import Any

from gpu.adapters.smi.hardware import Hardware, Json

_LONG_NAMES = {
    "--list-gpus": "-L",
    "--query": "-q",
    "--xml-format": "-x",
    "--id": "-i",
    "--gpu-reset": "-r",
    "--multi-instance-gpu": "-mig",
    "--list-gpu-instance-profiles": "-lgip",
    "--list-gpu-instance-possible-placements": "-lgipp",
    "--list-gpu-instances": "-lgi",
    "--list-compute-instances": "-lci",
    "--create-gpu-instance": "-cgi",
    "--default-compute-instance": "-C",
    "--create-compute-instance": "-cci",
    "--destroy-gpu-instance": "-dgi",
    "--destroy-compute-instance": "-dci",
    "--gpu-instance-id": "-gi",
    "--compute-instance-id": "-ci",
}
_FLAGS = frozenset({"mig", "-x", "-r", "-C"})
_VERBS = frozenset({"-L", "-q", "-lgip", "-lgipp", "-lgi", "-lci", "-dgi", "-dci", "-cci"})
_VALUES = frozenset({"-i", "--query-gpu", "--format", "-mig", "-gi", "-ci", "-cgi"})
_CHANGING = frozenset({"-dgi", "-dci", "-cci"})


class UsageError(Exception):
    """The arguments are off; the text is nvidia-smi's own."""


class Call:
    """One call: options by their short names, verbs in order, lines printed so far."""

    def __init__(self, arguments: list[str], hardware: Hardware) -> None:
        self.hardware = hardware
        self.options: dict[str, Any] = {
            **dict.fromkeys(_FLAGS, False),
            **dict.fromkeys(_VALUES),
        }
        self.verbs: list[str] = []
        self.chosen: list[tuple[int, Json]] = []
        self.view: dict[str, frozenset[str] | None] = {}
        self._lines: list[str] = []
        self._parse(arguments)

    @property
    def text(self) -> str:
        """Return all that was printed."""
        return "".join(line + "\n" for line in self._lines)

    def say(self, line: str) -> None:
        """Print a line."""
        self._lines.append(line)

    @property
    def changes(self) -> bool:
        """Say whether the call changes something, which only the host may do."""
        options = self.options
        return bool(
            options["-mig"] is not None
            or options["-r"]
            or options["-cgi"] is not None
            or _CHANGING & set(self.verbs)
        )

    def choose(self, visible: str | None) -> bool:
        """Take the GPUs in view that `-i` names; False when it names one that is not there.

        `visible` is NVIDIA_VISIBLE_DEVICES, None on the host, which sees everything.
        """
        shown = [gpu for gpu in self.hardware.gpus if self._sees(gpu, visible)]
        wanted = self.options["-i"]
        if wanted is None:
            self.chosen = list(enumerate(shown))
            return bool(self.chosen)
        for word in wanted.split(","):
            found = [
                (index, gpu)
                for index, gpu in enumerate(shown)
                if word in {str(index), gpu["uuid"]} or word.lower() == gpu["bus_id"].lower()
            ]
            if not found:
                return False
            self.chosen += found
        return True

    def devices_of(self, gpu: Json) -> list[tuple[Json, Json]]:
        """Return the MIG devices of a GPU that this call sees: instance and compute instance."""
        seen = self.view.get(gpu["uuid"])
        return [
            (instance, compute)
            for instance in gpu["instances"]
            for compute in instance["compute"]
            if seen is None or compute["uuid"] in seen
        ]

    def mig_gpus(self) -> Iterator[tuple[int, Json]]:
        """Yield the chosen GPUs whose MIG mode is on."""
        return ((index, gpu) for index, gpu in self.chosen if gpu["mig"])

    def is_chosen(self, instance: Json) -> bool:
        """Say whether `-gi` means this instance, or none in particular."""
        wanted = self.options["-gi"]
        return wanted is None or wanted == str(instance["id"])

    def _sees(self, gpu: Json, visible: str | None) -> bool:
        if visible is None or "all" in visible.split(","):
            self.view[gpu["uuid"]] = None
            return True
        names = frozenset(visible.split(","))
        if gpu["uuid"] in names:
            self.view[gpu["uuid"]] = None
            return True
        mine = {c["uuid"] for i in gpu["instances"] for c in i["compute"]} & names
        self.view[gpu["uuid"]] = frozenset(mine)
        return bool(mine)

    def _parse(self, arguments: list[str]) -> None:
        words = list(arguments)
        while words:
            word = words.pop(0)
            name, equals, value = word.partition("=")
            name = _LONG_NAMES.get(name, name)
            if name in _FLAGS:
                self.options[name] = True
            elif name in _VERBS:
                self.verbs.append(name)
            elif name in _VALUES:
                if not equals:
                    if not words or words[0].startswith("-"):
                        msg = f"ERROR: Option {name} requires a value. Please run 'nvidia-smi -h'."
                        raise UsageError(msg)
                    value = words.pop(0)
                self.options[name] = value
            else:
                msg = f"ERROR: Option {word} is not recognized. Please run 'nvidia-smi -h'."
                raise UsageError(msg)
