"""What follows from what the doctor's job has tried."""

from __future__ import annotations

from typing import get_args

from relight.launcher.doctor import as_text
from relight.launcher.trial_notes import Note, What, findings_of, read_notes


def test_what_does_not_work_comes_first_and_says_what_follows() -> None:
    notes = [
        Note("exclusion", True, "job 8 excludes n1"),
        Note("requeue", False, "scontrol refused: disabled"),
        Note("done", True, ""),
    ]
    read = list(read_notes([note.to_line() for note in notes]))
    assert read == notes
    lines = as_text(findings_of(read)).splitlines()
    assert lines == [
        "! scontrol requeue: scontrol refused: disabled",
        "    restart.mode: requeue does not work here, and a script of `relight sbatch` does not "
        "come back",
        "  scontrol update ExcNodeList: job 8 excludes n1",
        "    a job that waits can be kept away from bad nodes",
    ]


def test_a_note_that_is_being_written_is_left_for_later() -> None:
    whole = Note("network", True, "n2 called n1").to_line()
    assert [note.what for note in read_notes([whole, whole[:-5]])] == ["network"]


def test_each_thing_that_may_be_tried_has_its_words() -> None:
    tried = [what for what in get_args(What) if what != "done"]
    assert len(findings_of(Note(what, True, "") for what in tried)) == len(tried)
