"""How fast a job ran is kept, and what cannot be kept or read does no harm."""

import pytest

from hushpore.runs.pace import pace_file, remember_pace, remembered_pace


def test_the_last_run_of_each_kind_counts() -> None:
    assert remembered_pace("a") == {}
    remember_pace("a", {"step": 0.5})
    remember_pace("b", {"step": 2.0})
    remember_pace("a", {"step": 0.25, "voxel": 1e-7})
    assert remembered_pace("a") == {"step": 0.25, "voxel": 1e-7}
    assert remembered_pace("b") == {"step": 2.0}


def test_the_oldest_kinds_go_first() -> None:
    for number in range(60):
        remember_pace(str(number), {"step": 1.0})
    assert remembered_pace("9") == {}
    assert remembered_pace("10") == {"step": 1.0}


@pytest.mark.parametrize(
    "text", ["", "[1]", '{"a": 1}', '{"a": {"step": "x"}}', '{"a": {"step": NaN}}', "{" * 9999]
)
def test_a_damaged_file_does_no_harm(text: str) -> None:
    remember_pace("a", {"step": 1.0})
    pace_file().write_text(text, encoding="utf-8")
    assert remembered_pace("a") == {}
    remember_pace("a", {"step": 1.0})
    assert remembered_pace("a") == {"step": 1.0}


def test_where_nothing_can_be_written_nothing_fails(monkeypatch, tmp_path) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("HUSHPORE_CONFIG", str(tmp_path / "file"))
    remember_pace("a", {"step": 1.0})
    assert remembered_pace("a") == {}
