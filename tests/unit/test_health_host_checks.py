"""Checks of the host, on trees of files that stand for /: good, bad, absent."""

from __future__ import annotations

import dataclasses
import os
import resource
import socket
import threading
import time
from collections.abc import Callable, Mapping
from pathlib import Path

import pytest
from health.roots import ethernet, infiniband, make_root

from relight.resilience.config import RunConfig
from relight.resilience.health import infiniband_errors, mounts, stuck
from relight.resilience.health.check import Candidate, Check
from relight.resilience.health.ethernet import CHECK as ETHERNET
from relight.resilience.health.growth import judge_growth
from relight.resilience.health.infiniband import CHECK as INFINIBAND
from relight.resilience.health.inodes import CHECK as INODES
from relight.resilience.health.load import CHECK as LOAD
from relight.resilience.health.machine import CHECK as MACHINE
from relight.resilience.health.memory_errors import CHECK as MEMORY_ERRORS
from relight.resilience.health.mounts import CHECK as MOUNTS
from relight.resilience.health.mounts import mount_of
from relight.resilience.health.names import CHECK as NAMES
from relight.resilience.health.peers import check_peers, chosen_peers
from relight.resilience.health.result import Outcome
from relight.resilience.health.software import CHECK as SOFTWARE
from relight.resilience.health.software import installed
from relight.resilience.health.swap import CHECK as SWAP
from relight.resilience.health.temporary import CHECK as TEMPORARY
from relight.resilience.health.ulimits import CHECK as ULIMITS
from relight.resilience.health.zombies import CHECK as ZOMBIES

PASS, WARN, FAIL_NODE, _, UNKNOWN = Outcome
PORT = "sys/class/infiniband/mlx5_0/ports/1"
EDAC = "sys/devices/system/edac/mc/mc0"
MEMINFO = "MemTotal: 8 kB\nSwapTotal: 4194304 kB\nSwapFree: {} kB\n"
MOUNTED = "proc/self/mounts"
ADAPTER = "sys/class/infiniband/mlx5_0/device"
ON_LUSTRE = {MOUNTED: "a@o2ib:/fs /lustre lustre rw 0 0\n/dev/sda1 / ext4 rw 0 0\n"}

Look = Callable[..., Candidate]


@pytest.fixture
def look(tmp_path: Path, run_config: RunConfig) -> Look:
    def at(files: Mapping[str, str], peers: tuple[str, ...] = (), **health: object) -> Candidate:
        changed = dataclasses.replace(run_config.health, **health)  # type: ignore[arg-type]
        config = dataclasses.replace(run_config, health=changed)
        return Candidate("n1", config, 0.0, peers, make_root(tmp_path / "root", files))

    return at


@pytest.mark.parametrize(
    ("check", "files", "outcome", "part"),
    [
        (MEMORY_ERRORS, {}, PASS, "not judged"),
        (MEMORY_ERRORS, {f"{EDAC}/ue_count": "0", f"{EDAC}/ce_count": "9"}, PASS, "9 corrected"),
        (MEMORY_ERRORS, {f"{EDAC}/ue_count": "0", f"{EDAC}/ce_count": "1001"}, WARN, "1001"),
        (
            MEMORY_ERRORS,
            {
                f"{EDAC}/ue_count": "1",
                f"{EDAC}/ce_count": "0",
                f"{EDAC[:-1]}1/ue_count": "",
                f"{EDAC[:-1]}1/ce_count": "0",
            },
            FAIL_NODE,
            "1 uncorrected",
        ),
        (
            INFINIBAND,
            {**infiniband("2: INIT"), f"{PORT}/counters/link_downed": "N/A (no PMA)\n"},
            FAIL_NODE,
            "has a link",
        ),
        (MEMORY_ERRORS, {f"{EDAC}/ue_count": "1", f"{EDAC}/ce_count": "0"}, FAIL_NODE, "1 unc"),
        (SWAP, {"proc/meminfo": MEMINFO.format(4194304)}, PASS, "0 MiB"),
        (SWAP, {"proc/meminfo": MEMINFO.format(0)}, WARN, "4096 MiB"),
        (SWAP, {"proc/meminfo": MEMINFO.format(9194304)}, UNKNOWN, "are free"),
        (LOAD, {"proc/loadavg": "0.10 0.2 0.3 1/2 3\n"}, PASS, "load of 0.1"),
        (LOAD, {"proc/loadavg": "9999.0 0.2 0.3 1/2 3\n"}, WARN, "load of 9999.0"),
        (LOAD, {"proc/loadavg": "nan 0.2 0.3 1/2 3\n"}, UNKNOWN, "nan"),
        (INFINIBAND, {}, PASS, "not judged"),
        (INFINIBAND, infiniband(), PASS, "1 active, 400 Gb/sec"),
        (INFINIBAND, infiniband("1: DOWN", "2: Polling"), PASS, "0 active"),
        (INFINIBAND, infiniband("2: INIT"), FAIL_NODE, "mlx5_0/1 has a link and is 2: INIT"),
        (ETHERNET, {}, PASS, "not judged"),
        (ETHERNET, ethernet(), PASS, "no counter grows"),
        (ETHERNET, ethernet(operstate="down"), PASS, "not judged"),
        (MACHINE, {}, PASS, "not judged"),
        (MACHINE, {"sys/devices/system/cpu/online": "0-63\n"}, PASS, "processors 0-63"),
        (INFINIBAND, infiniband(downed=5), WARN, "mlx5_0/1 went down 5 times"),
    ],
)
def test_what_the_kernel_says(
    look: Look, check: Check, files: Mapping[str, str], outcome: Outcome, part: str
) -> None:
    finding = check.run(look(files))
    assert (finding.outcome, part in finding.evidence) == (outcome, True), finding


def test_another_threshold(look: Look) -> None:
    files = {"proc/loadavg": "0.5 0 0 1/2 3"}
    assert LOAD.run(look(files, limits={"load": {"per_cpu": 0.001}})).outcome is WARN
    assert LOAD.run(look(files, limits={"swap": {"per_cpu": 0.001}})).outcome is PASS


def stat(name: str, state: str, ticks: int, parent: int = 1) -> str:
    return f"7 ({name}) {state} {parent} 7 7 0 -1 4 0 0 0 0 {ticks} 0 0 0 20 0 1 0 5 0 0\n"


@pytest.mark.parametrize(
    ("before", "after", "outcome"),
    [
        (stat("a) D (b", "D", 5), stat("a) D (b", "D", 5), WARN),
        (stat("cp", "D", 5), stat("cp", "D", 6), PASS),
        (stat("cp", "D", 5), stat("cp", "R", 5), PASS),
        (stat("kworker", "D", 5, parent=2), stat("kworker", "D", 5, parent=2), PASS),
    ],
)
def test_stuck_is_who_waits_twice_at_the_same_time(
    look: Look, monkeypatch: pytest.MonkeyPatch, before: str, after: str, outcome: Outcome
) -> None:
    candidate = look({"proc/7/stat": before})
    path = candidate.root / "proc/7/stat"
    monkeypatch.setattr(time, "sleep", lambda _s: path.write_text(after))
    assert stuck.CHECK.run(candidate).outcome is outcome


def test_a_name_that_the_kernel_has_cut_inside_a_letter(look: Look) -> None:
    candidate = look({"proc/uptime": "9000.0 1.0\n"})
    for pid, state in ((7, "D"), *((pid, "Z") for pid in range(8, 30))):
        path = candidate.root / f"proc/{pid}/stat"
        path.parent.mkdir()
        path.write_bytes(stat("NAME", state, 5).encode().replace(b"NAME", b"modelltr\xc3"))
    for check, part in ((stuck.CHECK, "1 process"), (ZOMBIES, "22 zombies, at most 20: modelltr")):
        finding = check.run(candidate)
        assert (finding.outcome, part in finding.evidence) == (WARN, True), finding


@pytest.mark.parametrize(
    ("check", "files", "counter"),
    [
        (infiniband_errors.CHECK, infiniband(), "mlx5_0/1 symbol_error"),
        (infiniband_errors.CHECK, infiniband(), "mlx5_0/1 packet_seq_err"),
        (ETHERNET, ethernet(), "eth0 rx_errors"),
    ],
)
def test_errors_that_grow(
    look: Look,
    monkeypatch: pytest.MonkeyPatch,
    check: Check,
    files: Mapping[str, str],
    counter: str,
) -> None:
    candidate = look(files)
    path = next(candidate.root.rglob(counter.split()[1]))
    monkeypatch.setattr(time, "sleep", lambda _s: path.write_text("9999"))
    finding = check.run(candidate)
    assert finding.outcome is WARN
    assert f"{counter} grows by" in finding.evidence


def test_what_must_be_alike(look: Look) -> None:
    files = {
        **ethernet(),
        **infiniband(),
        f"{ADAPTER}/current_link_width": "16\n",
        f"{ADAPTER}/current_link_speed": "32.0 GT/s PCIe\n",
        "proc/meminfo": f"MemTotal: {251 * 1024**2 + 77} kB\n",
        "proc/driver/nvidia/version": "570",
        "sys/devices/system/clocksource/clocksource0/current_clocksource": "tsc\n",
    }
    candidate = look(files)
    assert MACHINE.run(candidate).facts == {
        "clock source": "tsc",
        "memory": "about 250 GiB",
        "nvidia_peermem": "not loaded",
    }
    assert ETHERNET.run(candidate).facts == {"ethernet ports": "1 up, 25000 Mb/s, MTU 9000"}
    assert INFINIBAND.run(candidate).facts == {
        "infiniband ports": "1 active, 400 Gb/sec (4X NDR)",
        "infiniband firmware": "28.39.1002",
        "infiniband slots": "16 PCIe lanes of 32.0 GT/s PCIe",
    }


@pytest.mark.parametrize(
    ("before", "after", "outcome"),
    [(100, 100, PASS), (100, 120, PASS), (100, 121, WARN), (100, 15, PASS), (100, 30, WARN)],
)
def test_a_counter_that_was_reset_grew_from_zero(before: int, after: int, outcome: Outcome) -> None:
    assert judge_growth({"p": before}, {"p": after}, 2.0, 10.0).outcome is outcome


@pytest.mark.parametrize(
    ("files", "locked", "part"),
    [
        (8192, -1, "wide enough"),
        (1024, -1, "only 1024 open files"),
        (8192, 65536, "only 64 KiB of locked memory"),
    ],
)
def test_ulimits(
    look: Look, monkeypatch: pytest.MonkeyPatch, files: int, locked: int, part: str
) -> None:
    unlimited = {resource.RLIMIT_STACK: (-1, -1)}
    found = {resource.RLIMIT_NOFILE: (0, files), resource.RLIMIT_MEMLOCK: (0, locked), **unlimited}
    monkeypatch.setattr(resource, "getrlimit", lambda which: found[which])
    assert "locked" not in ULIMITS.run(look({})).evidence
    assert part in ULIMITS.run(look(infiniband())).evidence


def test_mounts(look: Look, tmp_path: Path) -> None:
    files = {MOUNTED: f"x {tmp_path} nfs rw 0 0\ny /gone\\040away\\134 nfs rw 0 0\n"}
    assert "names none" in MOUNTS.run(look(files)).evidence
    assert MOUNTS.run(look(files, mounts=(str(tmp_path),))).outcome is PASS
    assert MOUNTS.run(look(files, mounts=(f"/{tmp_path}/",))).outcome is PASS
    missing = MOUNTS.run(look(files, mounts=(str(tmp_path), "/scratch")))
    assert (missing.outcome, missing.evidence) == (FAIL_NODE, "not mounted: /scratch")
    silent = MOUNTS.run(look(files, mounts=("/gone away\\",)))
    assert (silent.outcome, "does not answer" in silent.evidence) == (FAIL_NODE, True)


def test_a_mount_that_hangs_is_named_beside_one_that_is_not_there(
    look: Look, monkeypatch: pytest.MonkeyPatch
) -> None:
    back = threading.Event()
    monkeypatch.setattr(os, "statvfs", lambda path: back.wait(20) if path == "/hang" else None)
    monkeypatch.setattr(mounts, "ANSWER_S", 0.2)
    files = {MOUNTED: "x /hang nfs rw 0 0\ny /good nfs rw 0 0\n"}
    finding = MOUNTS.run(look(files, mounts=("/good/", "/hang", "/no")))
    back.set()
    assert finding.outcome is FAIL_NODE
    assert finding.evidence == "not mounted: /no; /hang does not answer: nothing in 0.2 s"


def test_a_mount_that_is_not_for_this_user(look: Look, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(_path: str) -> os.statvfs_result:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(os, "statvfs", refuse)
    finding = MOUNTS.run(look({MOUNTED: "x /secret nfs rw 0 0\n"}, mounts=("/secret",)))
    assert (finding.outcome, "not open to this user" in finding.evidence) == (WARN, True)


def test_which_filesystem_holds_a_directory(look: Look) -> None:
    root = look(ON_LUSTRE).root
    assert mount_of(root, Path("/lustre/me/checkpoints")) == ("/lustre", "lustre")
    assert mount_of(root, Path("/home/me")) == ("/", "ext4")
    (root / "work").symlink_to("/lustre/me")
    assert mount_of(root, root / "work" / "checkpoints") == ("/lustre", "lustre")


def test_inodes(look: Look, monkeypatch: pytest.MonkeyPatch) -> None:
    candidate = look({})
    assert INODES.run(candidate).outcome is PASS
    real = os.statvfs("/")
    for free, files, outcome in ((999, 5000, FAIL_NODE), (1000, 5000, PASS), (0, 0, PASS)):
        values = [*real[:5], files, free, free, *real[8:]]
        monkeypatch.setattr(os, "statvfs", lambda _p, v=tuple(values): os.statvfs_result(v))
        assert INODES.run(candidate).outcome is outcome


def test_temporary(look: Look, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    free = {"limits": {"temporary": {"free_fraction": 0.0}}}
    assert TEMPORARY.run(look({}, **free)).outcome is PASS
    full = {"limits": {"temporary": {"free_fraction": 1.1}}}
    assert TEMPORARY.run(look({}, **full)).outcome is WARN
    monkeypatch.setenv("TMPDIR", str(tmp_path / "none"))
    assert TEMPORARY.run(look({})).outcome is WARN
    (tmp_path / "file").touch()
    monkeypatch.setenv("TMPDIR", str(tmp_path / "file"))
    assert TEMPORARY.run(look({})).outcome is WARN


def test_names(look: Look, monkeypatch: pytest.MonkeyPatch) -> None:
    def only_n1(name: str, _port: object) -> list[object]:
        if name != "n1":
            raise socket.gaierror(-2, "Name or service not known")
        return []

    monkeypatch.setattr(socket, "getaddrinfo", only_n1)
    assert NAMES.run(look({}, ("n1",))).outcome is PASS
    finding = NAMES.run(look({}, ("n1", "n2")))
    assert (finding.outcome, "n2 (Name or service" in finding.evidence) == (WARN, True)


def test_each_node_is_asked_by_as_many() -> None:
    nodes = tuple(f"n{number}" for number in range(7))
    asked = [peer for node in nodes for peer in chosen_peers(node, nodes)]
    assert {node: asked.count(node) for node in nodes} == dict.fromkeys(nodes, 3)
    assert chosen_peers("n0", ("n0", "n1")) == ("n1",)
    assert chosen_peers("elsewhere", nodes) == ()


def test_a_refusal_is_an_answer_and_silence_is_none(
    look: Look, monkeypatch: pytest.MonkeyPatch
) -> None:
    def connect(address: tuple[str, int], _timeout: float) -> socket.socket:
        raise {"192.0.2.2": ConnectionRefusedError, "192.0.2.3": TimeoutError}[address[0]]

    def resolve(name: str, _port: int, type: int) -> list[object]:
        if name == "n4":
            raise socket.gaierror(-2, "not known")
        return [(0, 0, 0, "", (f"192.0.2.{name[1]}", 0))]

    monkeypatch.setattr(socket, "create_connection", connect)
    monkeypatch.setattr(socket, "getaddrinfo", resolve)
    finding = check_peers(look({}, ("n1", "n2", "n3", "n4")))
    assert finding.outcome is WARN
    assert finding.facts == {"peers reached": "n2", "peers not reached": "n3"}


def test_peers_of_this_machine_answer(look: Look) -> None:
    finding = check_peers(look({}, ("n1", "127.0.0.1")))
    assert (finding.outcome, finding.facts["peers reached"]) == (PASS, "127.0.0.1")


def test_software_is_a_list_of_facts(look: Look) -> None:
    facts = SOFTWARE.run(look({})).facts
    assert facts["kernel"] == os.uname().release
    assert {"python", "relight", "python packages"} <= set(facts)


def test_another_package_on_one_node_shows(tmp_path: Path) -> None:
    (tmp_path / "torch-2.4.dist-info").mkdir()
    one = installed([str(tmp_path), "/none"])
    (tmp_path / "torch-2.4.dist-info").rename(tmp_path / "torch-2.5.dist-info")
    assert one.startswith("1, digest")
    assert installed([str(tmp_path)]) != one


def test_counters_whose_growth_is_a_sign(look: Look) -> None:
    edac = {f"sys/devices/system/edac/mc/mc{i}/{n}": "4\n" for i in (0, 1) for n in ("ce_count",)}
    edac |= {f"sys/devices/system/edac/mc/mc{i}/ue_count": "0\n" for i in (0, 1)}
    assert MEMORY_ERRORS.run(look(edac)).counts == {"corrected memory errors": 8}
    assert INFINIBAND.run(look(infiniband(downed=3))).counts == {"links gone down": 3}
