"""The arithmetic of a writer's lag, and the report that it is computed from."""

from __future__ import annotations

from typing import Any

import pytest

from batchweave.inbox._lag import Answer, Share, answer_of, lag_steps


def report(rows: int = 0, steps: int = 0, job: int | None = 0) -> dict[str, Any]:
    row = {"name": "w", "files": 1, "rows_durable": rows, "rows_committed": rows, "ended": False}
    return {
        "writers": [{**row, "name": "v", "rows_committed": 7}, row],
        "stream": {"steps": steps, "job_steps": job},
    }


@pytest.mark.parametrize(
    ("answer", "next_row", "lag"),
    [
        (Answer(0, 0, None), 0, 0),
        (Answer(0, 0, None), 3, 0),  # joins the rows of the next step
        (Answer(0, 0, None), 4, 1),
        (Answer(0, 5, None), 4, 6),  # nothing is trained without a job
        (Answer(40, 10, 10), 40, 0),
        (Answer(40, 10, 7), 40, 3),
        (Answer(40, 10, 7), 43, 3),
        (Answer(40, 10, 7), 51, 5),
        (Answer(40, 10, 12), 40, 0),  # a job that was opened above the stream's end
        (Answer(40, 10, 10), 32, 0),  # another process of this writer went on
    ],
)
def test_lag_counts_untrained_steps_and_whole_steps_of_waiting_rows(
    answer: Answer, next_row: int, lag: int
) -> None:
    assert lag_steps(answer, next_row, Share(4, 1)) == lag


@pytest.mark.parametrize(("next_row", "lag"), [(0, 3), (1, 3), (2, 4), (3, 5), (4, 6)])
def test_rows_of_writers_that_put_alike_count(next_row: int, lag: int) -> None:
    assert lag_steps(Answer(0, 10, 7), next_row, Share(4, 3)) == lag


@pytest.mark.parametrize("writers", [1, 2, 3, 5])
@pytest.mark.parametrize("most", [0, 1, 4])
def test_writers_that_put_alike_fill_a_step_and_stay_at_the_bound(writers: int, most: int) -> None:
    """Each puts until its next row must wait, from one answer on, whatever is committed since."""
    for rows_per_step in range(1, 9):
        share, put = Share(rows_per_step, writers), 0
        while lag_steps(Answer(0, 0, 0), put, share) <= most:
            put += 1
        assert put * writers >= rows_per_step, "no step could ever be made"
        # The last row of each may come in between.
        assert (put * writers - writers) // rows_per_step <= most


def test_an_old_answer_never_makes_the_lag_too_small() -> None:
    """One writer, one job: the real distance is known, whatever has happened since the answer."""
    for committed in range(4):
        for trained in range(committed + 1):
            for put in range(committed, 6):
                for since_trained in range(trained, put + 1):
                    answer = Answer(4 * committed, committed, trained)
                    lag = lag_steps(answer, 4 * put, Share(4, 1))
                    assert lag >= put - since_trained


def test_a_report_becomes_an_answer() -> None:
    assert answer_of(report(8, 2, 1), "w") == Answer(8, 2, 1)
    assert answer_of(report(8, 2, None), "w") == Answer(8, 2, None)
    assert answer_of(report(8, 2, 1), "x") == Answer(0, 2, 1)
    assert answer_of({"writers": [], "stream": None}, "w") == Answer(0, 0, None)


@pytest.mark.parametrize(
    "wrong",
    [
        {},
        {"writers": []},
        {"writers": None, "stream": None},
        {"writers": [], "stream": {"steps": 1}},
        {"writers": [], "stream": {"steps": "1", "job_steps": 0}},
        {"writers": [], "stream": {"steps": None, "job_steps": 0}},
        {"writers": [], "stream": {"steps": -1, "job_steps": 0}},
        {"writers": [{"name": "w"}], "stream": None},
        [],
    ],
)
def test_a_report_of_another_form_is_refused(wrong: Any) -> None:
    with pytest.raises(ValueError, match="batchweave inbox ls"):
        answer_of(wrong, "w")
