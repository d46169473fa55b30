"""Colours: every text can be read in both themes, and tenants can be told apart by all eyes."""

import itertools
import re
from pathlib import Path

import pytest

CSS = Path(__file__).parents[2] / "static" / "css"
TENANTS = 12
PATTERNS = 4
READABLE = 4.5
APART_WITHOUT_PATTERN = 0.10
APART_WITH_PATTERN = 0.045

type Colour = tuple[float, float, float]

# How people without one kind of cone see, in linear light (Machado, Oliveira, Fernandes, 2009).
EYES: dict[str, tuple[Colour, Colour, Colour]] = {
    "all cones": ((1, 0, 0), (0, 1, 0), (0, 0, 1)),
    "no long": (
        (0.152286, 1.052583, -0.204868),
        (0.114503, 0.786281, 0.099216),
        (-0.003882, -0.048116, 1.051998),
    ),
    "no medium": (
        (0.367322, 0.860646, -0.227968),
        (0.280085, 0.672501, 0.047413),
        (-0.011820, 0.042940, 0.968881),
    ),
    "no short": (
        (1.255528, -0.076749, -0.178779),
        (-0.078411, 0.930809, 0.147602),
        (0.004733, 0.691367, 0.303900),
    ),
}


def linear(text: str) -> Colour:
    channels = (int(text[i : i + 2], 16) / 255 for i in (1, 3, 5))
    red, green, blue = (
        c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in channels
    )
    return red, green, blue


def contrast(one: str, other: str) -> float:
    lights = sorted(
        sum(w * c for w, c in zip((0.2126, 0.7152, 0.0722), linear(text), strict=True))
        for text in (one, other)
    )
    return (lights[1] + 0.05) / (lights[0] + 0.05)


def seen(text: str, eyes: str) -> Colour:
    """Return the colour in OKLab, where distances are what people see, through given eyes."""
    colour = linear(text)
    red, green, blue = (
        min(1.0, max(0.0, sum(m * c for m, c in zip(row, colour, strict=True))))
        for row in EYES[eyes]
    )
    l = (0.4122214708 * red + 0.5363325363 * green + 0.0514459929 * blue) ** (1 / 3)  # noqa: E741
    m = (0.2119034982 * red + 0.6806995451 * green + 0.1073969566 * blue) ** (1 / 3)
    s = (0.0883024619 * red + 0.2817188376 * green + 0.6299787005 * blue) ** (1 / 3)
    return (
        0.2104542553 * l + 0.7936177850 * m - 0.0040720468 * s,
        1.9779984951 * l - 2.4285922050 * m + 0.4505937099 * s,
        0.0259040371 * l + 0.7827717662 * m - 0.8086757660 * s,
    )


def distance(one: str, other: str, eyes: str) -> float:
    pairs = zip(seen(one, eyes), seen(other, eyes), strict=True)
    return float(sum((a - b) ** 2 for a, b in pairs) ** 0.5)


def tenants() -> list[tuple[str, str, str]]:
    """Return fill, ink and pattern of each tenant's colour."""
    css = (CSS / "glyph.css").read_text(encoding="utf-8")
    found = []
    for number in range(TENANTS):
        fill = re.search(rf"--tenant-{number}: (#\w{{6}});", css)
        ink = re.search(rf"--tenant-{number}-ink: (#\w{{6}});", css)
        pattern = re.search(rf"\.tenant-{number} {{[^}}]*--pattern: ([^;]+);", css)
        assert fill, number
        assert ink, number
        assert pattern, number
        found.append((fill[1], ink[1], pattern[1]))
    return found


def tokens(theme: str) -> dict[str, str]:
    css = (CSS / "slicedesk.css").read_text(encoding="utf-8")
    pairs = re.findall(r"--([\w-]+): light-dark\((#\w{6}), (#\w{6})\);", css)
    return {name: light if theme == "light" else dark for name, light, dark in pairs}


@pytest.mark.parametrize("theme", ["light", "dark"])
@pytest.mark.parametrize(
    "ink", ["text", "text-soft", "text-faint", "accent", "good", "warn", "bad"]
)
def test_text_can_be_read_on_every_surface(theme: str, ink: str) -> None:
    colours = tokens(theme)
    for surface in ("canvas", "surface", "raised", "sunken", "hover"):
        assert contrast(colours[ink], colours[surface]) >= READABLE, surface


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_text_can_be_read_on_its_tint_and_on_filled_buttons(theme: str) -> None:
    colours = tokens(theme)
    for tone in ("good", "warn", "bad", "accent"):
        assert contrast(colours[tone], colours[f"{tone}-tint"]) >= READABLE, tone
        assert contrast(colours["text"], colours[f"{tone}-tint"]) >= READABLE, tone
    for fill in ("accent-fill", "accent-fill-hover", "bad-fill"):
        assert contrast("#ffffff", colours[fill]) >= READABLE, fill


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_the_edges_of_controls_can_be_seen(theme: str) -> None:
    colours = tokens(theme)
    assert contrast(colours["line-control"], colours["surface"]) >= 3


def test_names_can_be_read_on_every_tenant_s_colour() -> None:
    for number, (fill, ink, _pattern) in enumerate(tenants()):
        assert contrast(fill, ink) >= READABLE, number


def test_tenants_have_four_patterns_in_turn() -> None:
    patterns = [pattern for _fill, _ink, pattern in tenants()]
    assert len(set(patterns[:PATTERNS])) == PATTERNS
    assert patterns == patterns[:PATTERNS] * (TENANTS // PATTERNS)


@pytest.mark.parametrize("eyes", EYES)
def test_tenants_can_be_told_apart(eyes: str) -> None:
    for (i, one), (j, other) in itertools.combinations(enumerate(tenants()), 2):
        needed = APART_WITHOUT_PATTERN if one[2] == other[2] else APART_WITH_PATTERN
        assert distance(one[0], other[0], eyes) >= needed, f"tenants {i} and {j}"
