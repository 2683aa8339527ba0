"""Progress of long work in a log."""

from bertjax.base import progress


def test_rate_and_rest_of_work_that_goes_on(monkeypatch, capsys):
    """Units of an earlier run count as done, but not for the rate."""
    now = iter([0.0, *[10.0] * 9])
    monkeypatch.setattr(progress.time, "monotonic", lambda: next(now))
    monkeypatch.setattr(progress, "_SECONDS_BETWEEN_LINES", 99)
    bar = progress.Progress("training", 100, " steps", initial=90)
    bar.update(5, "loss 2.31")
    bar.close()
    line = "training:  95% 95/100 [00:10<00:10,  2.00s/ steps, loss 2.31]\n"
    assert capsys.readouterr().err == line


def test_a_line_every_ten_seconds(monkeypatch, capsys):
    """An update prints a line when ten seconds have passed since the last one."""
    now = [0.0]
    monkeypatch.setattr(progress.time, "monotonic", lambda: now[0])
    bar = progress.Progress("reading", 100, " pages")
    for seconds in (3.0, 9.9, 10.0, 10.1, 19.9, 21.0, 30.9):
        now[0] = seconds
        bar.update()
    lines = capsys.readouterr().err.splitlines()
    assert [line.split(" [")[0] for line in lines] == ["reading:   3% 3/100", "reading:   6% 6/100"]
    bar.close()
    assert capsys.readouterr().err.startswith("reading:   7% 7/100 [00:30<")


def test_nothing_is_left_of_what_has_no_known_end(monkeypatch, capsys):
    now = iter([0.0, *[10.0] * 9])
    monkeypatch.setattr(progress.time, "monotonic", lambda: next(now))
    with progress.Progress("Reading", None, " texts") as bar:
        bar.update(30, "a note")
    line = "Reading: 30 [00:10,  3.00 texts/s, a note]"
    assert capsys.readouterr().err.splitlines()[-1] == line


def test_a_compilation_is_no_part_of_the_rate(monkeypatch, capsys):
    now = iter([0.0, *[97.0] * 9])
    monkeypatch.setattr(progress.time, "monotonic", lambda: next(now))
    bar = progress.Progress("training", 85, " steps")
    bar.leave_out(90.0)
    bar.update(7)
    bar.close()
    first = capsys.readouterr().err.splitlines()[0]
    assert first == "training:   8% 7/85 [01:37<01:18,  1.00 steps/s]"


def test_less_than_a_second_has_no_rate(monkeypatch, capsys):
    now = iter([0.0, *[90.5] * 9])
    monkeypatch.setattr(progress.time, "monotonic", lambda: next(now))
    bar = progress.Progress("training", 85, " steps")
    bar.leave_out(90.0)
    bar.update(1, "loss 1.60")
    bar.close()
    first = capsys.readouterr().err.splitlines()[0]
    assert first == "training:   1% 1/85 [01:30<?, ? steps/s, loss 1.60]"


def test_a_bar_leaves_a_compilation_out(monkeypatch):
    """The rate of a bar is that of its last units."""
    monkeypatch.setattr(progress.sys.stderr, "isatty", lambda: True, raising=False)
    bar = progress.Progress("training", 85, " steps")
    monkeypatch.setattr(bar._bar, "_time", lambda: bar._bar.start_t + 97.0)
    bar.leave_out(90.0)
    bar.update(7)
    assert bar._bar.format_dict["rate"] == 1.0


def test_many_items_are_tracked_and_few_are_not(monkeypatch, capsys):
    monkeypatch.setattr(progress, "_MANY", 3)
    for items in ("ab", "abc"):
        assert list(progress.tracked(items, "windows", " questions")) == list(items)
    err = capsys.readouterr().err
    assert err.startswith("windows: 100% 3/3 [") and err.count("windows") == 1
