"""How fast work was is kept, and what cannot be kept or read does no harm."""

import pytest

from hushpore.device.speeds import forget_speeds, keep_speeds, known_speeds, speeds_file


def test_the_last_of_each_kind_counts() -> None:
    assert known_speeds("a") == {}
    keep_speeds("a", {"step": 0.5})
    keep_speeds("b", {"step": 2.0})
    keep_speeds("a", {"step": 0.25, "voxel": 1e-7})
    assert known_speeds("a") == {"step": 0.25, "voxel": 1e-7}
    assert known_speeds("b") == {"step": 2.0}


def test_the_oldest_kinds_go_first() -> None:
    for number in range(110):
        keep_speeds(str(number), {"step": 1.0})
    assert known_speeds("9") == {}
    assert known_speeds("10") == {"step": 1.0}


@pytest.mark.parametrize(
    "text", ["", "[1]", '{"a": 1}', '{"a": {"step": "x"}}', '{"a": {"step": NaN}}', "{" * 9999]
)
def test_a_damaged_file_does_no_harm(text: str) -> None:
    keep_speeds("a", {"step": 1.0})
    speeds_file().write_text(text, encoding="utf-8")
    assert known_speeds("a") == {}
    keep_speeds("a", {"step": 1.0})
    assert known_speeds("a") == {"step": 1.0}


def test_where_nothing_can_be_written_nothing_fails(monkeypatch, tmp_path) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("HUSHPORE_CONFIG", str(tmp_path / "file"))
    keep_speeds("a", {"step": 1.0})
    assert known_speeds("a") == {}


def test_all_is_forgotten() -> None:
    forget_speeds()
    keep_speeds("a", {"step": 1.0})
    forget_speeds()
    assert known_speeds("a") == {}
