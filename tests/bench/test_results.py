"""The harness runs end to end at a tiny size, and its results keep their form."""

import json
from collections import Counter
from pathlib import Path

import pytest

from bench import __main__ as command
from bench import offline, report, speed, trace
from bench.model import MIXES, PROFILES
from bench.policies import BASELINES
from bench.report import BENCHMARKS, TINY, Book, write

KEYS = {
    "B3": {"ratio_to_optimum", "worst_ms"},
    "B4": {"pods", "replay", "fill", "published_fractional"},
    "B5": {"decisions_per_s", "at_100k"},
}


@pytest.fixture
def small_decisions(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let B5 measure on few GPUs: its figures are not looked at here."""
    real = speed.decisions_per_second
    monkeypatch.setattr(speed, "decisions_per_second", lambda _gpus, count: real(50, count))
    scanning = speed.scanning_per_second
    monkeypatch.setattr(speed, "scanning_per_second", lambda _gpus, _count: scanning(50, 20))


@pytest.mark.usefixtures("small_decisions")
def test_all_benchmarks_run_and_write_their_results(tmp_path: Path) -> None:
    said: list[str] = []
    book = Book(say=said.append)
    for benchmark in BENCHMARKS.values():
        benchmark(book, TINY)
    write(book, tmp_path)
    results = json.loads((tmp_path / "results.json").read_text())
    assert set(results) == set(BENCHMARKS)
    for mix in MIXES:
        row = results["B1"][mix]
        assert set(row) == {"load", "ours", "bound", "gap_closed", "spread", *BASELINES}
        assert row["load"] == 1.0
        assert all(0 <= row[name] <= 100 for name in ("ours", "bound", *BASELINES))
        assert set(results["B2"][mix]) == {"gap_closed", "moves"}
        assert 0 <= results["B2"][mix]["moves"] <= 1
    for name, keys in KEYS.items():
        assert set(results[name]) == keys
    assert results["B3"]["ratio_to_optimum"] == 1.0
    assert json.loads((tmp_path / "details.json").read_text())["B1"]
    assert any("B1 uniform" in line for line in said)


def test_results_of_other_benchmarks_stay(tmp_path: Path) -> None:
    (tmp_path / "results.json").write_text('{"B6": {"warm_p95_ms": 1}}')
    write(Book(say=print, results={"B3": {}}), tmp_path)
    assert set(json.loads((tmp_path / "results.json").read_text())) == {"B3", "B6"}


def test_a_missed_floor_is_told_and_a_missed_goal_only_said() -> None:
    said: list[str] = []
    book = Book(say=said.append)
    book.expect(True, "held")  # noqa: FBT003
    book.goal(True, "held")  # noqa: FBT003
    book.expect(False, "a floor")  # noqa: FBT003
    book.goal(False, "a goal")  # noqa: FBT003
    assert book.missed == ["a floor"]
    assert said == ["   goal not reached: a goal"]


@pytest.mark.parametrize(("ratio", "status"), [(1.0, 0), (2.0, 1)], ids=["held", "missed"])
def test_command_exits_1_when_a_floor_is_missed(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    ratio: float,
    status: int,
) -> None:
    monkeypatch.setattr(command, "OUT", tmp_path)
    monkeypatch.setattr(
        command,
        "BENCHMARKS",
        {"B3": lambda book, _scale: book.expect(ratio == 1.0, "B3: too many GPUs")},
    )
    monkeypatch.setattr("sys.argv", ["bench", "--only", "B3"])
    assert command.main() == status
    assert ("MISSED B3: too many GPUs" in capsys.readouterr().out) == bool(status)


def test_published_maps_need_as_many_gpus_as_published() -> None:
    maps = {name: offline.optimum(counts) for name, counts in offline.published_maps().items()}
    assert list(maps.values()) == [2, 3, 5, 7, 13, 16]


def test_optimum_counts_whole_gpus() -> None:
    assert offline.optimum(Counter({PROFILES[4]: 3, PROFILES[3]: 1, PROFILES[2]: 1})) == 4


def test_trace_has_all_pods_that_ask_for_gpus() -> None:
    pods = trace.pods()
    assert len(pods) == 7064
    assert [trace.smallest_profile(milli) for milli in (100, 200, 400, 460, 1000)] == [*range(5)]
    few = pods[:300]
    assert trace.replay("ours", few, 4000) == 100
    assert 0 < trace.replay("ours", few, 3) < 100
    assert 0 < trace.fill("ours", few, 5, seed=1) <= 100


def test_report_knows_two_lengths() -> None:
    assert report.SHORT.seeds >= 6
    assert report.SHORT.other_seeds >= 6
    assert report.FULL.seeds > report.SHORT.seeds
