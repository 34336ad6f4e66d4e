"""The shipped table of causes, rule by rule, on what programs really print when they end."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml

from relight.resilience.decide.causes import FaultCause
from relight.resilience.decide.classify import fault_of_exit, fault_of_loss, root
from relight.resilience.decide.events import RankExited, RankLost
from relight.resilience.decide.rules import Blame, Budget, first_match
from relight.resilience.run_folder import RunFolder
from relight.resilience.supervise.rules_file import (
    SHIPPED,
    RulesRefused,
    parse,
    run_rules,
    stored_rules,
)

RULES = parse(yaml.safe_load(SHIPPED.read_text()), SHIPPED)
TRACEBACK = "Traceback (most recent call last):\n"

# rule id, exit code or signal, last lines
RECORDED: list[tuple[str, int | str, str]] = [
    ("gpu-lost", 1, "NVRM: Xid (PCI:0000:1b:00): 79, pid=0, GPU has fallen off the bus."),
    ("gpu-lost", 1, "Unable to determine the device handle for GPU0000:1B:00.0: Unknown Error"),
    (
        "gpu-hardware",
        "SIGABRT",
        "RuntimeError: CUDA error: uncorrectable ECC error encountered\n"
        "CUDA kernel errors might be asynchronously reported at some other API call\n"
        "[rank3]:[E] Watchdog caught collective operation timeout: WorkNCCL(SeqNum=871)",
    ),
    ("gpu-hardware", 1, "NVRM: Xid (PCI:0000:9d:00): 48, pid=4711, DBE (double bit error)"),
    (
        "checkpoint-unfit",
        1,
        "relight.resilience.worker.errors.RestoreMismatch: model does not take what was saved: "
        "Error(s) in loading state_dict for Linear:",
    ),
    (
        "checkpoint-unfit",
        1,
        "relight.storage.errors.WorldChanged: The checkpoint was saved by 2 ranks, it cannot be "
        "restored by 3 ranks: run with 2 ranks.",
    ),
    (
        "refused",
        1,
        "relight.resilience.worker.errors.ProtectRefused: model: too late, protect before the "
        "first step",
    ),
    (
        "command-ended",
        "SIGHUP",
        "relight: the command of this node ended by SIGHUP while its ranks ran",
    ),
    (
        "command-left",
        1,
        "relight: the command of this node ended with 0 before its ranks: it has not waited",
    ),
    ("gpu-contained", 1, "NVRM: Xid (PCI:0000:9d:00): 94, pid=4711, Contained: SM (0x1)"),
    ("gpu-absent", 1, "RuntimeError: No CUDA GPUs\nCUDA error: no CUDA-capable device is detected"),
    (
        "gpu-driver",
        1,
        "RuntimeError: CUDA error: no kernel image is available for execution on the device",
    ),
    ("quota", 1, TRACEBACK + "OSError: [Errno 122] Disk quota exceeded: '/home/a/ckpt/model.pt'"),
    ("disk-full", 1, TRACEBACK + "OSError: [Errno 28] No space left on device"),
    (
        "host-oom",
        "SIGKILL",
        "step 40 loss 3.1\nrelight: oom_kill: the kernel ended a process of this rank for lack of "
        "memory; the program itself held at most 7.9 GiB",
    ),
    (
        "host-oom",
        1,
        TRACEBACK + "numpy._core._exceptions._ArrayMemoryError: Unable to allocate 745. GiB",
    ),
    ("host-oom", 1, TRACEBACK + "MemoryError"),
    (
        "gpu-oom",
        1,
        TRACEBACK + "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 20.00 GiB. "
        "GPU 0 has a total capacity of 79.10 GiB of which 5.31 GiB is free.",
    ),
    ("filesystem", 1, TRACEBACK + "OSError: [Errno 116] Stale file handle: '/scratch/data/0.bin'"),
    ("filesystem", 1, TRACEBACK + "OSError: [Errno 5] Input/output error"),
    (
        "checkpoint-damaged",
        1,
        "OSError: Unable to synchronously open file (truncated file: eof = 96, sblock->base_addr "
        "= 0, stored_eof = 2048)",
    ),
    (
        "checkpoint-damaged",
        1,
        "RuntimeError: PytorchStreamReader failed reading zip archive: failed finding central "
        "directory",
    ),
    ("killed", "SIGKILL", "step 41 loss 3.0"),
    ("killed", "SIGKILL", "warning: Connection reset by peer, retrying"),
    ("killed-in-shell", 137, "/bin/bash: line 1:  4711 Killed   ./solver"),
    ("bus-error", "SIGBUS", ""),
    ("crash", "SIGSEGV", "Fatal Python error: Segmentation fault"),
    ("crash-in-shell", 139, "/bin/bash: line 1:  4711 Segmentation fault (core dumped) ./solver"),
    ("gpu-fault", 1, "RuntimeError: CUDA error: an illegal memory access was encountered"),
    ("gpu-fault", 1, "RuntimeError: CUDA error: device-side assert triggered"),
    ("loss-not-finite", 1, TRACEBACK + "ValueError: loss is NaN at step 1200"),
    ("loss-not-finite", 1, "FloatingPointError: overflow encountered in exp"),
    (
        "rendezvous",
        1,
        "torch.distributed.DistNetworkError: The server socket has failed to listen on any local "
        "network address. port: 29500, useIpv6: false, code: -98, name: EADDRINUSE",
    ),
    (
        "network",
        1,
        "node7:4711:4790 [3] NCCL WARN NET/IB: Got completion from peer 10.0.0.7<39381> with "
        "status=12 opcode=0 len=0 vendor err 129 (Send) localGid fe80:: remoteGids",
    ),
    ("network", 1, "OSError: [Errno 113] No route to host"),
    (
        "nccl-cascade",
        "SIGABRT",
        "[rank0]:[E1129 ProcessGroupNCCL.cpp:632] [Rank 0] Watchdog caught collective operation "
        "timeout: WorkNCCL(SeqNum=12, OpType=ALLREDUCE, Timeout(ms)=600000) ran for 600021 ms\n"
        "terminate called after throwing an instance of 'c10::DistBackendError'",
    ),
    (
        "gloo-cascade",
        1,
        "RuntimeError: [../third_party/gloo/gloo/transport/tcp/pair.cc:534] Connection closed by "
        "peer [10.0.0.2]:53412",
    ),
    ("mpi-cascade", 1, "mpi4py.MPI.Exception: MPI_ERR_PROC_FAILED: Process Failure"),
    ("abort", "SIGABRT", "double free or corruption (!prev)"),
    ("abort-in-shell", 134, "Aborted (core dumped)"),
    ("terminated", "SIGTERM", ""),
    ("command-line", 2, "train.py: error: unrecognized arguments: --epohcs 3"),
    ("command-line", 2, "Usage: train.py [OPTIONS]\nError: No such option: --epohcs"),
    (
        "filesystem",
        127,
        "relight: cannot start python: [Errno 13] Permission denied: '/home/a/run/0.log'\n"
        "relight: the run folder is away: [Errno 13] Permission denied: '/home/a/run/0.log'",
    ),
    ("cannot-start", 127, "relight: cannot start trian.sh: [Errno 2] No such file or directory"),
    ("cannot-start", 127, "/bin/bash: line 1: pyhton: command not found"),
    ("python-error", 1, TRACEBACK + "ModuleNotFoundError: No module named 'tranformers'"),
    ("python-error", 1, "SyntaxError: '(' was never closed"),
    ("python-error", 1, TRACEBACK + "KeyError: 'lr'"),
    ("python-error", 1, "[rank1]: Traceback (most recent call last):\n[rank1]: KeyError: 'lr'"),
    ("python-error", 1, "[default1]:[rank1]: KeyError: 'lr'"),
]


def ended(how: int | str, text: str, rank: int = 0) -> RankExited:
    return RankExited(
        generation=1,
        rank=rank,
        node=f"n{rank + 1}",
        code=how if isinstance(how, int) else None,
        signal=how if isinstance(how, str) else None,
        tail=tuple(text.splitlines()),
    )


@pytest.mark.parametrize(("rule_id", "how", "text"), RECORDED)
def test_the_rule_fits_what_was_recorded(rule_id: str, how: int | str, text: str) -> None:
    match = first_match(RULES, ended(how, text))
    assert match is not None
    assert match.rule.id == rule_id


def test_every_rule_has_a_record() -> None:
    assert {rule.id for rule in RULES} == {rule_id for rule_id, _, _ in RECORDED}
    assert len({rule.id for rule in RULES}) == len(RULES)


@pytest.mark.parametrize(
    "text",
    [
        "loss 3.2, information 7",
        "ValueError: information about loss is missing",
        "infinite scroll",
        "Xid: 794",
        "RuntimeError: no idea",
    ],
)
def test_other_words_fit_no_rule(text: str) -> None:
    assert first_match(RULES, ended(1, text)) is None
    fault = fault_of_exit(ended(1, text), RULES)
    assert (fault.cause, fault.blame, fault.budget) == (
        FaultCause.EXITED,
        Blame.NONE,
        Budget.COUNTED,
    )


@pytest.mark.parametrize("tee", ["", "[default0]:"])
def test_what_relight_itself_has_told_is_no_evidence(tee: str) -> None:
    """A save failed for a full disk, there was room again, and then the rank was killed."""
    told = f"{tee}relight: rank 0: the checkpoint of step 20 failed: No space left on device"
    match = first_match(RULES, ended("SIGKILL", told))
    assert match is not None
    assert match.rule.id == "killed"
    assert first_match(RULES, ended(1, told)) is None


@pytest.mark.parametrize("whose", ["", "[rank3]: "])
def test_the_source_that_a_traceback_quotes_is_no_evidence(whose: str) -> None:
    traceback = (
        '    if "No space left on device" in str(error):',
        '  File "train.py", line 7, in <module>',
        '    raise RuntimeError("fallen off the bus" if lost() else "CUDA out of memory")',
        "    ^^^^^",
        "RuntimeError: CUDA out of memory",
    )
    match = first_match(RULES, ended(1, "\n".join(whose + line for line in traceback)))
    assert match is not None
    assert (match.rule.id, match.line) == ("gpu-oom", "RuntimeError: CUDA out of memory")


def test_who_was_killed_had_gone_on_after_its_last_words() -> None:
    match = first_match(RULES, ended("SIGKILL", "cp: No space left on device"))
    assert match is not None
    assert match.rule.budget is not Budget.STOP


def test_the_evidence_names_cause_rule_rank_and_line() -> None:
    fault = fault_of_exit(ended(1, "x\nOSError: [Errno 28] No space left on device"), RULES)
    assert fault.evidence == (
        "disk full (rule disk-full): rank 0 on n1 exited with code 1: "
        "OSError: [Errno 28] No space left on device"
    )


@pytest.mark.parametrize(
    ("how", "text"),
    [
        (1, "NVRM: Xid (PCI:0000:1b:00): 79, GPU has fallen off the bus."),
        ("SIGKILL", ""),
        (1, "KeyError: 'lr'"),
    ],
)
def test_an_echo_is_never_the_root(how: int | str, text: str) -> None:
    echo = fault_of_exit(ended("SIGABRT", "NCCL communicator was aborted on rank 0."), RULES)
    own = fault_of_exit(ended(how, text, rank=1), RULES)
    assert root(root(None, echo), own) is own
    assert root(root(None, own), echo) is own


def test_a_bad_node_outweighs_a_lost_one_and_that_a_killed_rank() -> None:
    bad = fault_of_exit(ended(1, "uncorrectable ECC error encountered"), RULES)
    lost = fault_of_loss(RankLost(generation=1, rank=1, node="n2", detail="silent"))
    killed = fault_of_exit(ended("SIGKILL", ""), RULES)
    own = fault_of_exit(ended(1, "KeyError: 'lr'"), RULES)
    assert bad.weight > lost.weight > killed.weight > own.weight


# The site's own table


@pytest.fixture
def folder(tmp_path: Path) -> RunFolder:
    root_ = tmp_path / "run"
    root_.mkdir()
    return RunFolder(root_)


@pytest.fixture
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    path = tmp_path / "site.yaml"
    monkeypatch.setenv("RELIGHT_RULES", str(path))
    return path


def test_a_sites_rules_come_first_and_replace_those_of_the_same_id(
    site: Path, folder: RunFolder
) -> None:
    site.write_text(
        "version: 1\n"
        "rules:\n"
        "- {id: licence, cause: user error, budget: stop, lines: [no licence left]}\n"
        "- {id: disk-full, cause: disk full, lines: [No space left on device]}\n"
    )
    rules = run_rules(folder)
    assert [rule.id for rule in rules[:2]] == ["licence", "disk-full"]
    assert len(rules) == len(RULES) + 1
    assert rules[1].budget is Budget.COUNTED


def test_a_run_keeps_the_table_that_it_began_with(site: Path, folder: RunFolder) -> None:
    assert stored_rules(folder) == RULES
    site.write_text("version: 1\nrules: []\n")
    first = run_rules(folder)
    site.write_text("version: 1\nrules: [{id: a, cause: crashed, codes: [9]}]\n")
    assert run_rules(folder) == stored_rules(folder) == first == RULES


@pytest.mark.parametrize(
    "text",
    [
        "version: 2\nrules: []",
        "version: 1\nrules: {}",
        "version: 1\nrules: [{id: a, cause: bad luck, codes: [1]}]",
        "version: 1\nrules: [{id: a, cause: crashed}]",
        "version: 1\nrules: [{id: a, cause: crashed, lines: ['(']}]",
        "version: 1\nrules: [{id: a, cause: crashed, lines: x}]",
        "version: 1\nrules: [{id: a, cause: crashed, codes: [1], colour: red}]",
        "version: 1\nrules: [{id: a, cause: crashed, codes: [1], budget: node}]",
        "rules: [",
    ],
)
def test_a_sites_mistake_is_said_and_keeps_no_job_from_running(
    text: str, site: Path, folder: RunFolder, caplog: pytest.LogCaptureFixture
) -> None:
    site.write_text(text)
    assert run_rules(folder) == RULES
    assert str(site) in caplog.text


def test_a_damaged_table_in_the_run_folder_is_refused(folder: RunFolder) -> None:
    folder.rules.write_text("{")
    with pytest.raises(RulesRefused, match=r"rules\.json"):
        stored_rules(folder)
