"""Environment readers: what they return, and the one sentence that each refusal is."""

from collections.abc import Callable
from pathlib import Path

import pytest

from portal import env

type Reader = Callable[[], object]


@pytest.mark.parametrize(
    ("value", "expected"),
    [("true", True), ("TRUE", True), ("1", True), ("on", True), ("no", False), ("0", False)],
)
def test_flag_reads_the_usual_words(
    monkeypatch: pytest.MonkeyPatch, value: str, *, expected: bool
) -> None:
    monkeypatch.setenv("THING", value)

    assert env.flag("THING", default=not expected) is expected


@pytest.mark.parametrize("value", ["", "   "])
def test_an_empty_value_counts_as_not_set(monkeypatch: pytest.MonkeyPatch, value: str) -> None:
    monkeypatch.setenv("THING", value)

    assert env.text("THING", "fallback") == "fallback"
    assert env.number("THING", default=7) == 7
    assert env.decimal("THING", default=0.5, minimum=0, maximum=1) == 0.5
    assert env.flag("THING", default=True) is True
    assert env.choice("THING", ("a", "b"), default="b") == "b"
    assert env.url("THING", ("redis",), default="") == ""
    assert env.words("THING", "") == []


def test_words_are_cut_at_commas_without_blanks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("THING", " a.example , b.example,, ")

    assert env.words("THING") == ["a.example", "b.example"]


def test_a_secret_comes_from_a_file(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    path = tmp_path / "key"
    path.write_text("s3cret\n")
    monkeypatch.setenv("THING_FILE", str(path))

    assert env.secret("THING") == "s3cret"


@pytest.mark.parametrize(
    ("variables", "reader", "sentence"),
    [
        (
            {},
            lambda: env.text("THING"),
            "THING is not set: give it a value in the environment.",
        ),
        (
            {"THING": "maybe"},
            lambda: env.flag("THING", default=True),
            "THING must be true or false, not 'maybe'.",
        ),
        (
            {"THING": "12x"},
            lambda: env.number("THING", default=1, maximum=99),
            "THING must be a whole number from 0 to 99, not '12x'.",
        ),
        (
            {"THING": "100"},
            lambda: env.number("THING", default=1, maximum=99),
            "THING must be a whole number from 0 to 99, not '100'.",
        ),
        (
            {"THING": "nan"},
            lambda: env.decimal("THING", default=1, minimum=0, maximum=2),
            "THING must be a number from 0 to 2, not 'nan'.",
        ),
        (
            {"THING": "fake"},
            lambda: env.choice("THING", ("simulated", "kubernetes"), default="simulated"),
            "THING must be simulated or kubernetes, not 'fake'.",
        ),
        (
            {},
            lambda: env.secret("THING"),
            "THING is not set: give it a value, or the path of a file in THING_FILE.",
        ),
        (
            {"THING": "a", "THING_FILE": "b"},
            lambda: env.secret("THING"),
            "THING and THING_FILE are both set: keep one of them.",
        ),
        (
            {"THING_FILE": "/no/such/file"},
            lambda: env.secret("THING"),
            (
                "THING_FILE points at '/no/such/file', which cannot be read: "
                "No such file or directory."
            ),
        ),
        (
            {"THING_FILE": "/dev/null"},
            lambda: env.secret("THING"),
            "THING_FILE points at '/dev/null', which is empty: write the value into it.",
        ),
        (
            {"THING": "mysql://me:hunter2@db/x"},
            lambda: env.url("THING", ("postgres", "postgresql"), example="postgres://db/x"),
            "THING must begin with postgres:// or postgresql://, for example postgres://db/x.",
        ),
        (
            {"THING": "redis://:hunter2@cache:0/0"},
            lambda: env.url("THING", ("redis",)),
            "THING must begin with redis://.",
        ),
        (
            {"THING": "redis://:hunter2@cache:99999/0"},
            lambda: env.url("THING", ("redis",)),
            "THING is not an address that can be read: check its port and brackets.",
        ),
    ],
)
def test_each_refusal_is_one_sentence_with_the_way_out(
    monkeypatch: pytest.MonkeyPatch, variables: dict[str, str], reader: Reader, sentence: str
) -> None:
    for name, value in variables.items():
        monkeypatch.setenv(name, value)

    with pytest.raises(env.EnvError) as caught:
        reader()

    assert str(caught.value) == sentence
    assert "hunter2" not in str(caught.value)
