"""The tag that draws a GPU as a bar of its memory slices."""

from django import template
from django.urls import reverse
from django.utils import timezone

from gpu.glyphs import GlyphGpu, Kind
from gpu.selectors.glyphs import glyph_of
from gpu.selectors.gpus import MapGpu

register = template.Library()

_SIZES = ("map", "list", "editor")


@register.inclusion_tag("partials/_gpu_glyph.html")
def gpu_glyph(
    gpu: GlyphGpu | MapGpu, *, size: str = "list", url: str = "", table: bool | None = None
) -> dict[str, object]:
    """Draw a GPU, given as a glyph or as a row of the map.

    Sizes are `map` (12 px, no text), `list` (28 px, profile names) and `editor` (64 px, names,
    holders, sizes). A row of the map links to its GPU's page except in the editor; `url` says
    otherwise. `table` adds the same facts as a table to unfold; the editor has it by default.
    """
    if size not in _SIZES:
        message = f"gpu_glyph has the sizes {', '.join(_SIZES)}, not {size!r}."
        raise template.TemplateSyntaxError(message)
    if isinstance(gpu, MapGpu):
        pk = gpu.seen.gpu.pk
        url = url or ("" if size == "editor" else reverse("gpu:gpu-detail", args=[pk]))
        gpu = glyph_of(gpu, now=timezone.now())
    return {
        "gpu": gpu,
        "size": size,
        "url": url or gpu.url,
        "is_mig": gpu.kind == Kind.MIG,
        "is_whole": gpu.kind == Kind.WHOLE,
        "ruler": range(gpu.slices) if gpu.kind == Kind.MIG and size == "editor" else (),
        "has_text": size != "map",
        "has_table": size == "editor" if table is None else table,
    }
