"""The GPU glyph: the same facts in a picture, a sentence and a table."""

import re
from dataclasses import replace
from html.parser import HTMLParser
from typing import override

import pytest
from django.template import Context, Template, TemplateSyntaxError
from django.utils.translation import override as in_language

from gpu.glyphs import GlyphGpu, Kind, Segment, SegmentState

H200 = GlyphGpu(
    "H200 · 0",
    Kind.MIG,
    8,
    (
        Segment(
            0,
            4,
            SegmentState.IN_USE,
            "3g.71gb",
            holder="Team Vision",
            palette=3,
            memory="70 GiB",
            note="vision/train-7f",
        ),
        Segment(4, 2, SegmentState.GRANTED_IDLE, "2g.35gb", holder="NLP", palette=6),
        Segment(6, 1, SegmentState.FREE_INSTANCE, "1g.18gb"),
        Segment(7, 1, SegmentState.UNCUT),
    ),
)
SHARED = GlyphGpu(
    "L40S · 2",
    Kind.SHARES,
    3,
    (
        Segment(0, 1, SegmentState.IN_USE, holder="Vision", palette=3),
        Segment(1, 1, SegmentState.FREE_INSTANCE),
        Segment(2, 1, SegmentState.UNKNOWN),
    ),
    is_mig_capable=False,
    sharing_words="time-slicing",
    isolation_words="memory not isolated",
)
WHOLE = GlyphGpu(
    "RTX 4090 · 0",
    Kind.WHOLE,
    1,
    (Segment(0, 1, SegmentState.IN_USE, holder="Audio", palette=0, note="audio/asr-0"),),
    is_mig_capable=False,
)


class Drawn(HTMLParser):
    """What a piece of HTML holds: tags with attributes, in order, and its text."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.text = ""
        self.feed(html)

    @override
    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))

    @override
    def handle_data(self, data: str) -> None:
        self.text += data

    def classes(self, name: str) -> list[str]:
        """Return the class attributes in which a class occurs, in order."""
        found = (attrs.get("class") or "" for _tag, attrs in self.tags)
        return [text for text in found if name in text.split()]

    @property
    def focusable(self) -> list[str]:
        """Return what the Tab key stops at."""
        return [
            tag
            for tag, attrs in self.tags
            if (tag == "a" and "href" in attrs)
            or tag in {"summary", "button"}
            or attrs.get("tabindex") == "0"
        ]


def draw(gpu: GlyphGpu, options: str = "") -> Drawn:
    source = f"{{% load gpu_glyphs %}}{{% gpu_glyph gpu {options} %}}"
    return Drawn(Template(source).render(Context({"gpu": gpu})))


def test_the_sentence_says_all_that_is_drawn() -> None:
    assert H200.sentence == (
        "H200 · 0: MIG, 1 instance free, 1 slice not cut; "
        "3g.71gb at slices 0 to 3 in use by Team Vision (vision/train-7f); "
        "2g.35gb at slices 4 to 5 granted to NLP, no Pod on it; "
        "1g.18gb at slice 6 free; slice 7 free, not cut."
    )


def test_the_sentence_of_shares_says_what_they_do_not_keep_apart() -> None:
    assert SHARED.sentence == (
        "L40S · 2: time-slicing, 1 of 3 in use; memory not isolated; "
        "share 1 in use by Vision; share 2 free; share 3 holder unknown."
    )


def test_the_sentence_of_a_whole_gpu_says_that_it_cannot_do_mig() -> None:
    assert WHOLE.sentence == (
        "RTX 4090 · 0: cannot do MIG; whole GPU in use by Audio (audio/asr-0)."
    )
    assert replace(WHOLE, is_mig_capable=True).caption == "MIG off"


def test_the_sentence_follows_the_language() -> None:
    with in_language("zh-hans"):
        words = H200.sentence
    assert "Team Vision" in words
    assert words != H200.sentence
    assert words.endswith("。")


def test_what_is_wrong_comes_before_what_is_on_it() -> None:
    assert replace(H200, stale_words="3 hours").caption == "not seen for 3 hours"
    assert replace(H200, change_words="draining").caption == "draining"
    broken = replace(H200, is_in_service=False, service_note="row remap failed")
    assert broken.remarks == ("out of service", "row remap failed")
    both = replace(broken, stale_words="3 hours")
    assert both.remarks == ("not seen for 3 hours", "out of service", "row remap failed")


@pytest.mark.parametrize(
    ("segments", "caption"),
    [
        ((), "MIG, no slice free"),
        ((Segment(0, 8, SegmentState.UNCUT),), "MIG, 8 slices not cut"),
        (
            tuple(Segment(i, 1, SegmentState.FREE_INSTANCE, "1g.18gb") for i in range(2)),
            "MIG, 2 instances free",
        ),
        ((Segment(7, 1, SegmentState.UNREACHABLE),), "MIG, no slice free"),
    ],
    ids=["nothing free", "nothing cut", "instances", "out of reach"],
)
def test_the_caption_counts_what_is_free(segments: tuple[Segment, ...], caption: str) -> None:
    assert replace(H200, segments=segments).caption == caption


def test_segments_lie_at_their_slices_in_their_colour() -> None:
    drawn = draw(H200, 'size="editor"')

    assert [text.split() for text in drawn.classes("seg")] == [
        ["seg", "seg-in_use", "at-0", "span-4", "tenant-3"],
        ["seg", "seg-granted_idle", "at-4", "span-2", "tenant-6"],
        ["seg", "seg-free_instance", "at-6", "span-1"],
        ["seg", "seg-uncut", "at-7", "span-1"],
    ]
    assert drawn.classes("glyph-bar") == ["glyph-bar glyph-mig slices-8"]


def test_a_glyph_is_one_stop_of_the_tab_key_with_the_sentence_as_its_name() -> None:
    for size in ("map", "list"):
        drawn = draw(H200, f'size="{size}"')
        assert drawn.focusable == ["div"]
        (attributes,) = (attrs for _tag, attrs in drawn.tags if attrs.get("role") == "img")
        assert attributes["aria-label"] == H200.sentence


def test_a_linked_glyph_is_a_link_whose_text_is_the_sentence() -> None:
    drawn = draw(H200, 'size="map" url="/gpus/7/"')
    assert drawn.focusable == ["a"]
    assert drawn.text.strip() == H200.sentence


def test_the_map_shows_no_text_and_the_list_shows_names() -> None:
    assert draw(H200, 'size="map"').text.strip() == ""
    text = draw(H200).text
    assert "3g.71gb" in text
    assert "Team Vision" in text
    assert "70 GiB" not in text
    assert "70 GiB" in draw(H200, 'size="editor" table=False').text


def test_the_table_of_the_same_facts_is_beside_the_editor_or_where_asked_for() -> None:
    assert "details" not in {tag for tag, _attrs in draw(H200).tags}
    for options in ('size="editor"', "table=True"):
        drawn = draw(H200, options)
        assert drawn.focusable == ["div", "summary"]
        for segment in H200.segments:
            assert segment.held_words in drawn.text
            assert segment.place in drawn.text


def test_a_glyph_marks_shares_unknown_stale_and_out_of_service() -> None:
    shared = draw(SHARED)
    assert shared.classes("glyph-shares") == ["glyph-bar glyph-shares"]
    assert not any(re.search(r"\b(at|span)-\d", text) for text in shared.classes("seg"))
    assert "memory not isolated" in shared.text
    assert "?" in shared.text
    assert draw(replace(H200, stale_words="3 h")).classes("glyph-stale")
    assert draw(replace(H200, is_in_service=False)).classes("glyph-off")
    assert "whole GPU" in draw(WHOLE).text


def test_names_from_the_cluster_are_escaped() -> None:
    bad = replace(H200.segments[0], holder="<b>x</b>", note='"><script>')
    html = draw(replace(H200, segments=(bad,)), 'size="editor"')
    assert {"b", "script"}.isdisjoint({tag for tag, _attrs in html.tags})


@pytest.mark.parametrize("size", ["map", "list", "editor"])
def test_nothing_is_styled_inline(size: str) -> None:
    for gpu in (H200, SHARED, WHOLE):
        attributes = {name for _tag, attrs in draw(gpu, f'size="{size}"').tags for name in attrs}
        assert "style" not in attributes


def test_an_unknown_size_is_refused() -> None:
    with pytest.raises(TemplateSyntaxError, match="map, list, editor, not 'huge'"):
        draw(H200, 'size="huge"')
