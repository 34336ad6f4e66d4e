"""The ledger as a folder: many writers, deaths at any moment, and what others may leave there."""

from __future__ import annotations

import os
import random
import signal
import stat
import subprocess
import sys
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import pytest
from stage.ledger import evidence, own

from relight.errors import UsageError
from relight.launcher import user_name
from relight.resilience.ledger.apart import LedgerApart, default_ledger
from relight.resilience.ledger.faults import DAY_S, Fault
from relight.resilience.ledger.record import Evidence, Release, from_bytes
from relight.resilience.ledger.score import standings
from relight.resilience.ledger.store import Ledger, LedgerUnwritable

WRITERS = 50
LIMIT_S = 120.0
WRITER = """
import sys, time
from dataclasses import replace
from pathlib import Path
from relight.resilience.ledger.faults import Fault
from relight.resilience.ledger.record import Evidence
from relight.resilience.ledger.score import standings
from relight.resilience.ledger.store import Ledger
root, name = sys.argv[1:]
now = time.time()
mine = Evidence(cluster="mini", node="n1", fault=Fault.LOST, lines=("x" * 400,), weight=1.0,
                ttl_s=60.0, first_seen=now, last_seen=now, run_id=name)
while True:
    for number in range(20):
        Ledger(Path(root)).add(replace(mine, node=f"n{number}"))
        Ledger(Path(root)).add(replace(mine, node=f"n{number}", run_id="all"))
        print(number, flush=True)
"""


@pytest.fixture
def ledger(tmp_path: Path) -> Ledger:
    return Ledger(tmp_path / "ledger")


def test_what_was_added_is_there(ledger: Ledger) -> None:
    record, word = evidence(), Release(cluster="mini", node="n2", time=1e10, reason="by hand")
    ledger.add(record)
    ledger.release(word)
    assert set(ledger.records()) == {record, word}
    assert ledger.damaged() == 0


def test_no_ledger_is_an_empty_one(ledger: Ledger) -> None:
    assert ledger.records() == []
    assert not ledger.root.exists()


def test_one_run_keeps_one_record_of_a_fault(ledger: Ledger) -> None:
    now = time.time()
    ledger.add(evidence(seen=now - 60))
    ledger.add(evidence(seen=now))
    (record,) = ledger.records()
    assert isinstance(record, Evidence)
    assert (record.first_seen, record.last_seen) == (now - 60, now)


def test_a_wrong_clock_does_not_keep_what_follows_from_counting(ledger: Ledger) -> None:
    now = time.time()
    ledger.add(evidence(seen=now + 400 * DAY_S))
    ledger.add(evidence(seen=now))
    assert [one.avoided for one in standings(ledger.records(), now)] == [True]


def test_the_newest_release_stays(ledger: Ledger) -> None:
    def release(moment: float, *faults: Fault) -> Release:
        return Release(cluster="mini", node="n1", time=moment, reason="x", faults=faults)

    now = time.time()
    for moment in (now + 400 * DAY_S, now, now - 60):
        ledger.release(release(moment))
    ledger.release(release(now + 60, Fault.SLOW))
    assert set(ledger.records()) == {release(now), release(now + 60, Fault.SLOW)}


def test_threads_of_one_run_lose_none_of_each_others_trends(tmp_path: Path) -> None:
    asked = LedgerApart(Ledger(tmp_path / "ledger"))

    def trend(counter: str) -> Evidence:
        return replace(evidence(), fault=Fault.TREND, lines=(f"{counter}: 3 more",), weight=0.2)

    with ThreadPoolExecutor(2) as pool:
        list(pool.map(lambda number: asked.add(trend(f"counter {number}")), range(6)))
    (record,) = asked.records()
    assert isinstance(record, Evidence)
    assert (len(record.lines), record.weight) == (6, 0.5)


@pytest.mark.parametrize(
    ("shared", "folder", "file"), [(True, 0o755, 0o644), (False, 0o700, 0o600)]
)
def test_others_may_read_a_shared_one_and_write_none(
    tmp_path: Path, shared: bool, folder: int, file: int
) -> None:
    ledger = Ledger(tmp_path / "ledger", shared=shared)
    before = os.umask(0o077 if shared else 0o002)
    try:
        ledger.add(evidence())
    finally:
        os.umask(before)
    assert stat.S_IMODE(own(ledger).stat().st_mode) == folder
    assert [stat.S_IMODE(path.stat().st_mode) for path in own(ledger).iterdir()] == [file]


def test_fifty_writers_of_which_all_are_killed(ledger: Ledger) -> None:
    chance = random.Random(7)
    writers = [
        subprocess.Popen(
            [sys.executable, "-c", WRITER, str(ledger.root), f"run{number}"],
            stdout=subprocess.PIPE,
            text=True,
        )
        for number in range(WRITERS)
    ]
    promised: set[tuple[str, str]] = set()
    for number, writer in enumerate(writers):
        assert writer.stdout is not None
        said = [writer.stdout.readline() for _ in range(chance.randrange(1, 4))]
        writer.send_signal(signal.SIGKILL)
        said += writer.stdout.readlines()
        writer.stdout.close()
        writer.wait()
        promised |= {(f"n{int(line)}", f"run{number}") for line in said if line.endswith("\n")}
    kept = {(r.node, r.run_id) for r in ledger.records() if isinstance(r, Evidence)}
    assert promised <= kept
    assert len({run for _, run in promised}) == WRITERS
    assert ledger.damaged() == 0
    for path in own(ledger).glob("n*.json"):
        from_bytes(path.read_bytes())


def test_a_writer_sweeps_away_what_can_count_no_more(ledger: Ledger) -> None:
    old = evidence(seen=time.time() - 60 * DAY_S, run_id="old")
    ledger.add(old)
    os.utime(own(ledger) / old.file_name, (old.last_seen, old.last_seen))
    (own(ledger) / ".snapshot").mkdir()  # what lies there otherwise is no concern of it
    written = f".{evidence().file_name}.0123456789abcdef"
    torn = [own(ledger) / name for name in (written, f".{written}.0123456789abcdef")]
    foreign = [own(ledger) / name for name in (".bashrc", "notes", ".n1.torn.json.0123")]
    for path in (*torn, *foreign):
        path.touch()
        os.utime(path, (0, 0))
    fresh = own(ledger) / f".{evidence().file_name}.fedcba9876543210"
    fresh.touch()
    ledger.add(evidence())
    kept = {path.name for path in (*foreign, fresh)} | {".snapshot", evidence().file_name}
    assert {path.name for path in own(ledger).iterdir()} == kept


@pytest.mark.parametrize("trap", ["link", "file", "writable", "of another"])
def test_what_lies_where_ones_own_folder_is_to_be_is_left_alone(
    ledger: Ledger, tmp_path: Path, trap: str
) -> None:
    """In a shared ledger anybody may put it there first."""
    target = own(ledger)
    home = tmp_path / "home"
    for folder in (ledger.root, home):
        folder.mkdir()
    if trap == "link":
        target.symlink_to(home)
    elif trap == "file":
        target.touch()
    else:
        target.mkdir()
        target.chmod(0o777 if trap == "writable" else 0o755)
        home = target
    if trap == "of another":
        if os.geteuid() != 0:
            pytest.skip("a folder of another user needs root")
        os.chown(target, 61_001, 61_001)
    precious = home / f".{evidence().file_name}.0123456789abcdef"
    precious.touch()
    os.utime(precious, (0, 0))
    mode = home.stat().st_mode
    with pytest.raises(LedgerUnwritable, match="only yours"):
        ledger.add(evidence())
    assert list(home.iterdir()) == [precious]
    assert home.stat().st_mode == mode
    assert ledger.records() == []


def test_a_file_gets_its_mode_before_others_see_its_name(
    ledger: Ledger, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A change of mode by name could hit whatever somebody has put there meanwhile."""
    rename, modes = os.rename, []

    def look(source: str, target: str, *, src_dir_fd: int, dst_dir_fd: int) -> None:
        modes.append(stat.S_IMODE(os.stat(source, dir_fd=src_dir_fd).st_mode))
        os.unlink(source, dir_fd=src_dir_fd)
        os.symlink(secret, source, dir_fd=src_dir_fd)
        rename(source, target, src_dir_fd=src_dir_fd, dst_dir_fd=dst_dir_fd)

    secret = ledger.root.parent / "secret"
    secret.touch(0o600)
    monkeypatch.setattr(os, "rename", look)
    ledger.add(evidence())
    assert modes == [0o600]
    assert stat.S_IMODE(secret.stat().st_mode) == 0o600


def test_a_clock_that_is_ahead_removes_nothing_that_still_counts(
    ledger: Ledger, monkeypatch: pytest.MonkeyPatch
) -> None:
    ledger.add(evidence(run_id="counts"))
    now = time.time()
    with monkeypatch.context() as ahead:
        ahead.setattr(time, "time", lambda: now + 365 * DAY_S)
        ledger.add(evidence(run_id="ahead", seen=now + 365 * DAY_S))
    assert {record.run_id for record in ledger.records() if isinstance(record, Evidence)} == {
        *("counts", "ahead")
    }


def test_what_others_may_leave_is_no_record(ledger: Ledger, tmp_path: Path) -> None:
    record = evidence()
    ledger.add(record)
    sound = own(ledger) / record.file_name
    (own(ledger) / "n2.torn.json").write_bytes(sound.read_bytes()[:50])
    (own(ledger) / "n2.link.json").symlink_to(sound)
    os.mkfifo(own(ledger) / "n2.pipe.json")
    (own(ledger) / "n2.folder.json").mkdir()
    (own(ledger) / "README").write_text("not a record")
    foreign = ledger.root / str(os.getuid() + 1)  # not that user's own folder
    foreign.mkdir()
    (foreign / "n3.json").write_bytes(sound.read_bytes())
    (ledger.root / "n4.json").write_bytes(sound.read_bytes())
    forged = own(ledger) / "n5.forged.json"
    forged.write_bytes(sound.read_bytes())
    if os.geteuid() == 0:
        os.chown(forged, 61_001, 61_001)  # as a link or a move by somebody else would leave it
    else:
        forged.unlink()
    assert ledger.records() == [record]
    assert ledger.damaged() == (5 if forged.exists() else 4)


def test_a_ledger_that_takes_nothing(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("in the way")
    with pytest.raises(LedgerUnwritable, match="RELIGHT_LEDGER"):
        Ledger(tmp_path / "file").add(evidence())


def test_a_full_disk_takes_no_record_and_loses_none(small_disk: Path) -> None:
    ledger = Ledger(small_disk / "ledger")
    record = evidence()
    ledger.add(record)
    with suppress(OSError), (small_disk / "full").open("wb", buffering=0) as file:
        while True:
            file.write(bytes(4096))
    large = replace(evidence("n2"), lines=("x" * 400,) * 20)  # more than what is left of a block
    with pytest.raises(LedgerUnwritable, match="No space left"):
        ledger.add(large)
    assert record in ledger.records()
    assert ledger.damaged() == 0
    assert not list(own(ledger).glob(".*"))


def as_user(uid: int, act: Callable[[], None]) -> None:
    """In a process of that user, without root's rights; an assertion that fails there fails."""
    pid = os.fork()
    if pid == 0:
        code = 1
        try:
            os.setgroups([])
            os.setgid(uid)
            os.setuid(uid)
            os.umask(0o077)
            act()
            code = 0
        finally:
            os._exit(code)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0


def test_a_sites_ledger_under_two_ordinary_users(tmp_path: Path) -> None:
    if os.geteuid() != 0:
        pytest.skip("becoming other users needs root")
    ann, bob = 61_001, 61_002
    ledger = Ledger(tmp_path / "site", shared=True)
    ledger.root.mkdir()
    ledger.root.chmod(0o1777)
    for level in (tmp_path, *tmp_path.parents):
        if level != Path("/tmp") and level.stat().st_uid == os.getuid() and level != Path("/"):
            level.chmod(level.stat().st_mode | 0o011)

    def of_bob() -> None:
        (seen,) = ledger.records()  # what Ann wrote
        assert seen.node == "n1"
        for path in (ledger.root / str(ann)).iterdir():
            with pytest.raises(PermissionError):
                path.write_text("gossip")
            with pytest.raises(PermissionError):
                path.unlink()
        with pytest.raises(PermissionError):
            (ledger.root / str(ann)).rename(ledger.root / "gone")
        with pytest.raises(PermissionError):
            (ledger.root / str(ann) / "n1.forged.json").write_text("gossip")
        ledger.add(evidence("n2"))
        ledger.release(Release(cluster="mini", node="n1", time=time.time(), reason="repaired"))

    def of_ann() -> None:
        assert {record.node for record in ledger.records()} == {"n1", "n2"}
        assert [one.node for one in standings(ledger.records(), time.time())] == ["n2"]

    as_user(ann, lambda: ledger.add(evidence("n1")))
    as_user(bob, of_bob)
    as_user(ann, of_ann)
    assert ledger.damaged() == 0


def test_which_ledger(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("RELIGHT_HOME", str(tmp_path))
    monkeypatch.delenv("RELIGHT_LEDGER", raising=False)
    assert default_ledger().ledger == Ledger(tmp_path / "ledger")
    monkeypatch.setenv("RELIGHT_LEDGER", "/site/ledger")
    assert default_ledger().ledger == Ledger(Path("/site/ledger"), shared=True)
    for relative in ("ledger", "~nobody-of-this-name/ledger"):
        monkeypatch.setenv("RELIGHT_LEDGER", relative)
        with pytest.raises(UsageError, match="it must be an absolute path"):
            default_ledger()


def test_who_has_no_name_is_known_by_number(monkeypatch: pytest.MonkeyPatch) -> None:
    def nobody() -> str:
        raise KeyError("getpwuid(): uid not found: 4242")

    monkeypatch.setattr(user_name, "getuser", nobody)
    assert user_name.user_name() == str(os.getuid())
