"""An answer on a standard output on which others print, too."""

from __future__ import annotations

import pytest

from relight.answer import give, given


def test_what_others_print_is_no_part_of_an_answer(capsys: pytest.CaptureFixture[str]) -> None:
    print("welcome to the cluster")  # as a site's sitecustomize does
    give('{"step": 3}')
    print("goodbye")
    assert given(capsys.readouterr().out.encode()) == '{"step": 3}'


def test_an_answer_may_be_empty_and_may_be_missing() -> None:
    assert given(b"\0\0") == ""
    assert given(b"welcome to the cluster") is None
    assert given(b'\0{"cut off') is None
