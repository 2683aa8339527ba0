"""Progress of long work, as a log has it."""

from bertjax import progress


def test_many_items_are_tracked_and_few_are_not(monkeypatch, capsys):
    monkeypatch.setattr(progress, "_MANY", 3)
    for items in ("ab", "abc"):
        assert list(progress.tracked(items, "windows", " questions")) == list(items)
    err = capsys.readouterr().err
    assert err.startswith("windows: 100% 3/3 [") and err.count("windows") == 1
