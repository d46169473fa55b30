"""How layouts are written by hand: ``1g.10gb@0,2g.20gb@2!`` and ``3g.40gb,1g.10gb``."""

import re

from gpu.planning.errors import PlanningError
from gpu.planning.geometry import Instance
from gpu.planning.plans import CurrentGpu
from gpu.planning.profiles import ProfileName

_INSTANCE = re.compile(r"(?P<profile>[^@!]+)@(?P<start>[0-9]{1,3})(?P<in_use>!?)")
_OFF = "off"
_IN_USE = "!"


class InvalidNotationError(PlanningError):
    """The text is not a layout or a list of profiles."""


def parse_current(text: str) -> CurrentGpu:
    """Read what a GPU holds now: ``off``, nothing, or instances with ``@`` and their start.

    ``!`` marks what is in use: an instance, or the whole GPU in ``off!``. Raises
    `InvalidNotationError`, or `InvalidProfileError` for a name.
    """
    words = _words(text)
    if [word.rstrip(_IN_USE) for word in words] == [_OFF]:
        return CurrentGpu.off(in_use=words[0].endswith(_IN_USE))
    free: list[Instance] = []
    in_use: list[Instance] = []
    for word in words:
        match = _INSTANCE.fullmatch(word)
        if match is None:
            raise InvalidNotationError(_advice(word))
        instance = Instance(str(ProfileName.parse(match["profile"])), int(match["start"]))
        (in_use if match["in_use"] else free).append(instance)
    return CurrentGpu.on(free=free, in_use=in_use)


def parse_instances(text: str) -> tuple[Instance, ...]:
    """Read instances, each with its start; raise `InvalidNotationError` for anything else."""
    current = parse_current(text)
    if not current.is_mig_enabled:
        message = "'off' is no instance; write instances as 1g.10gb@0."
        raise InvalidNotationError(message)
    return (*current.free, *current.in_use)


def parse_want(text: str) -> tuple[str, ...]:
    """Read a multiset of profiles, such as ``3g.40gb,1g.10gb,1g.10gb``.

    Raises `InvalidNotationError` for a place, which the plan itself chooses, and
    `InvalidProfileError` for a name.
    """
    names = []
    for word in _words(text):
        if "@" in word or _IN_USE in word:
            message = (
                f"{word[:40]!r} has a place or a mark: write the profile alone, such as 1g.10gb;"
                " the plan chooses the place."
            )
            raise InvalidNotationError(message)
        names.append(str(ProfileName.parse(word)))
    return tuple(names)


def _words(text: str) -> list[str]:
    if not text.strip():
        return []
    words = [word.strip().lower() for word in text.split(",")]
    if not all(words):
        message = "There is an empty member between the commas."
        raise InvalidNotationError(message)
    return words


def _advice(word: str) -> str:
    if _OFF in (word, word.rstrip(_IN_USE)):
        return "'off' stands alone: with MIG off there are no instances."
    if "@" not in word:
        return f"{word[:40]!r} has no start: write it as 1g.10gb@0, and 1g.10gb@0! when in use."
    return f"{word[:40]!r} cannot be read: write 1g.10gb@0, and 1g.10gb@0! when in use."
