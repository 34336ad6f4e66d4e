"""Journal records as sentences for people (pure). Records of no interest to them have none."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final

from relight.counted import counted
from relight.resilience.decide.causes import way_on
from relight.resilience.supervise.journal import Record

from .units import amount

Data = Mapping[str, object]
_OFTEN: Final = ("CheckpointCommitted",)
FOLDED: Final = "CheckpointsCommitted"  # of no journal: a row of saves, told as one


def sentence(record: Record) -> str | None:
    """What a record says; None for one that is only of interest to the machine."""
    tell = _SENTENCES.get(record.name)
    if record.name == "RequestAllocation" and record.attempt.startswith("local-"):
        return f"this attempt ends: {record.data.get('reason')}"  # there are no other nodes
    return None if tell is None else tell(record.data)


def brief(record: Record) -> str | None:
    """The same for a terminal while it happens: what comes often fits into a line of 80 columns."""
    return _checkpoint_saved(record.data) if record.name in _OFTEN else sentence(record)


def _names(value: object) -> str:
    return ", ".join(str(item) for item in value) if isinstance(value, (list, tuple)) else ""


def _items(value: object) -> str:
    if not isinstance(value, dict):
        return ""
    return ", ".join(f"{key} ({reason})" for key, reason in value.items())


def _attempt_started(data: Data) -> str:
    lost = data.get("lost_batch_node")
    after = f"; {lost}, which ran the last one, is down" if lost else ""
    return f"attempt {data.get('attempt')} on {_names(data.get('nodes'))}{after}"


def _preflight_finished(data: Data) -> str:
    bad, fault = _items(data.get("bad")), data.get("job_fault") or data.get("outage")
    alike = "it is not the nodes" in _warnings(data)
    good = "no node is left out" if alike else "all nodes are fit"
    silent = _names(data.get("silent"))
    found = [f"not fit: {bad}"] if bad else []
    found += [f"no answer: {silent}"] if silent else []
    return f"preflight: {fault or '; '.join(found) or good}{_warnings(data)}"


def _nodes_examined(data: Data) -> str:
    bad = _items(data.get("bad"))
    text = f"not fit: {bad}" if bad else "the light checks find no fault"
    return f"after the run: {text}{_warnings(data)}"


def _warnings(data: Data) -> str:
    warnings = data.get("warnings")
    lines = warnings if isinstance(warnings, (list, tuple)) else ()
    return "".join(f"\n      warning: {line}" for line in lines)


def _ranks_started(data: Data) -> str:
    step = data.get("restored_step")
    begin = "from the beginning" if step is None else f"from the checkpoint of step {step}"
    if step is None and data.get("by_resume"):
        begin = "by resume"
    return (
        f"generation {data.get('generation')}: {_counted(data.get('world_size'))} on "
        f"{_names(data.get('nodes'))}, {begin}"
    )


def _rank_exited(data: Data) -> str | None:
    if data.get("stopped") or data.get("code") in (0, 75):
        return None
    rank = f"rank {data.get('rank')} on {data.get('node')}"
    signal = data.get("signal")
    return f"{rank} was killed ({signal})" if signal else f"{rank} exited with {data.get('code')}"


def _ranks_lingered(data: Data) -> str:
    who, be = _ranks(data)
    return f"{who} {be} slow to exit, and ended now: {data.get('detail')}"


def _ranks_hung(data: Data) -> str:
    who, be = _ranks(data)
    return f"hang: {data.get('detail')}; {who} {be} behind"


def _ranks(data: Data) -> tuple[str, str]:
    """Who, and the verb that goes with them."""
    ranks = data.get("ranks")
    one = isinstance(ranks, (list, tuple)) and len(ranks) == 1
    return (f"rank {_names(ranks)}", "is") if one else (f"ranks {_names(ranks)}", "are")


def _counted(world_size: object) -> str:
    return counted(world_size, "rank") if isinstance(world_size, int) else f"{world_size} ranks"


def _nodes_watched(data: Data) -> str:
    return f"seen while ranks run:{_warnings(data) or ' nothing any more'}"


def _finish(data: Data) -> str:
    """With the last words of the rank that failed, unless all went well."""
    text = f"{data.get('outcome')}: {data.get('reason')}"
    tail = data.get("tail")
    if data.get("outcome") not in ("FAILED", "STOPPED") or not isinstance(tail, list):
        return text
    return "".join([text, *(f"\n      | {line}" for line in tail)])


def _tier_read(data: Data) -> str:
    text = f"{_ranks(data)[0]} took step {data.get('step')} from the tiers of their nodes"
    if copies := data.get("by_partner"):
        text += f", {_ranks({'ranks': copies})[0]} from a copy on another node"
    return text


def _tier_failed(data: Data) -> str:
    who, reason = f"rank {data.get('rank')} on {data.get('node')}", data.get("reason")
    if data.get("partner") is not None:
        return f"{who} has no copy on {data.get('partner')}, its partner: {reason}"
    return f"{who} does without its node's tier: {reason}"


def _checkpoint_committed(data: Data) -> str:
    text = f"checkpoint of step {data.get('step')}"
    speed = _speed(data, "bytes")
    if not speed:
        return text
    text += speed
    if data.get("slowest_rank") is not None:
        text += f", rank {data.get('slowest_rank')} the slowest"
    if ranks := data.get("by_partner"):
        text += f", {_ranks({'ranks': ranks})[0]} saved by a copy on another node"
    stall_s = data.get("stall_s")
    if not isinstance(stall_s, float):
        return text
    text += f"; steps waited {_seconds(stall_s)} s"
    if isinstance(staged := data.get("staged_bytes"), int) and staged:
        text += f" for a copy of {amount(staged)}"
    behind_s = data.get("behind_s")
    if isinstance(behind_s, float) and behind_s > 0.1 * stall_s:
        text += f", {_seconds(behind_s)} s of it for the save before to end"
    return text


def _checkpoints_committed(data: Data) -> str:
    first, last = _pair(data, "steps")
    text = f"{data.get('count')} checkpoints, of steps {first} to {last}"
    if sizes := _pair(data, "bytes"):
        text += f": {_between(*map(amount, sizes))}"
    if seconds := _pair(data, "seconds"):
        text += f" in {_between(*(_seconds(one, 2) for one in seconds))} s each"
    if stalls := _pair(data, "stall_s"):
        text += f"; steps waited {_between(*(_seconds(one, 2) for one in stalls))} s"
    later = {"drilled": "read again and whole", "archived": "in the archive too"}
    return text + "".join(f", {data[key]} {what}" for key, what in later.items() if data.get(key))


def _pair(data: Data, key: str) -> tuple[float, ...]:
    values = data.get(key)
    return tuple(values) if isinstance(values, list) else ()


def _between(least: str, most: str) -> str:
    return least if least == most else f"{least} to {most}"


def _metric_missing(data: Data) -> str:
    logged = _names(data.get("logged"))
    return (
        f"checkpoint.keep.best goes by {data.get('metric')!r}, of which rank 0 has logged no "
        f"finite number yet, {f'but of {logged}' if logged else 'nor of anything'}: until then no "
        "checkpoint is kept as the best"
    )


def _checkpoint_restored(data: Data) -> str:
    text = f"checkpoint of step {data.get('step')} restored{_speed(data)}"
    slowest = data.get("slowest_rank")
    return text if slowest is None else f"{text}, rank {slowest} the slowest"


def _checkpoint_saved(data: Data) -> str:
    text = f"checkpoint of step {data.get('step')}{_speed(data, 'bytes', digits=2)}"
    stall_s = data.get("stall_s")
    if isinstance(stall_s, float) and stall_s >= 0.01:
        text += f", waited {_seconds(stall_s, 2)} s"
    return text


def _checkpoint_drilled(data: Data) -> str:
    if data.get("damage"):
        return f"checkpoint {data.get('step')} was read again and is damaged: {data.get('damage')}"
    return f"checkpoint {data.get('step')} was read again and is whole"


def _checkpoint_archived(data: Data) -> str:
    if data.get("failure"):
        return f"checkpoint {data.get('step')} is not in the archive: {data.get('failure')}"
    return f"checkpoint {data.get('step')} is in the archive too{_speed(data)}"


def _speed(data: Data, size_field: str = "size_bytes", digits: int = 3) -> str:
    size, seconds = data.get(size_field), data.get("seconds")
    if not isinstance(size, int) or not isinstance(seconds, float) or not size or not seconds:
        return ""
    return f": {amount(size)} in {_seconds(seconds, digits)} s ({amount(size / seconds)}/s)"


def _seconds(seconds: float, digits: int = 3) -> str:
    """So many digits, and never an exponent for what is long."""
    return f"{seconds:.0f}" if seconds >= 10 ** (digits - 1) else f"{seconds:.{digits}g}"


def _allocation_arranged(data: Data) -> str:
    text = way_on(data.get("mode"), data.get("job_id"))
    released = data.get("released")
    if not released:
        return text
    return f"{text}, which may use {_names(released)} again: too few others are left"


def _await_storage(data: Data) -> str:
    limit_s = data.get("limit_s")
    limit = f", for {limit_s / 60:.0f} min at most" if isinstance(limit_s, int | float) else ""
    return f"waiting for the checkpoint directory{limit}: {data.get('reason')}"


def _gpu_memory_stayed(data: Data) -> str:
    held = data.get("held")
    each = held.items() if isinstance(held, Mapping) else ()
    told = "; ".join(f"{node}: {evidence}" for node, evidence in each)
    return f"GPU memory is not given back: {told}"


def _notified(data: Data) -> str:
    failure = data.get("failure")
    return f"notify by {data.get('by')}: {f'nobody was told: {failure}' if failure else 'done'}"


_SENTENCES: Final[Mapping[str, Callable[[Data], str | None]]] = {
    "AttemptStarted": _attempt_started,
    "PreflightFinished": _preflight_finished,
    "RanksStarted": _ranks_started,
    "StartFailed": lambda d: f"the ranks did not start: {d.get('detail')}",
    "RankExited": _rank_exited,
    "RankLost": lambda d: f"rank {d.get('rank')} on {d.get('node')} is lost: {d.get('detail')}",
    "ProbeUnanswered": lambda d: (
        f"{_names(d.get('nodes'))}: no answer in {d.get('waited_s')} s; it is waited for"
    ),
    "RanksHung": _ranks_hung,
    "RanksLingered": _ranks_lingered,
    "RanksStraggled": lambda d: f"slow: {d.get('detail')}",
    "GpuMemoryStayed": _gpu_memory_stayed,
    "LossNotFinite": lambda d: f"rank {d.get('rank')} on {d.get('node')}: {d.get('detail')}",
    "NodesWatched": _nodes_watched,
    "ExclusionForgotten": lambda d: (
        f"other runs will meet {d.get('node')}, which is not remembered: {d.get('reason')}"
    ),
    "NodesExamined": _nodes_examined,
    "NodeDegraded": lambda d: f"{d.get('node')} turns bad while ranks run: {d.get('evidence')}",
    "StopRequested": lambda d: f"told to stop ({d.get('cause')}): {d.get('evidence')}",
    "ToldToSave": lambda d: f"told to save by itself: sent {d.get('signal')}",
    "SaveFailed": lambda d: f"no checkpoint: {d.get('reason')}",
    "CheckpointCommitted": _checkpoint_committed,
    "CheckpointRefused": lambda d: (
        f"{d.get('node')} cannot read checkpoint {d.get('step')}: {d.get('reason')}"
        if d.get("sound")
        else f"checkpoint {d.get('step')} is damaged: {d.get('reason')}"
    ),
    FOLDED: _checkpoints_committed,
    "MetricMissing": _metric_missing,
    "CheckpointDrilled": _checkpoint_drilled,
    "CheckpointArchived": _checkpoint_archived,
    "CheckpointFetched": lambda d: (
        f"checkpoint {d.get('step')} was brought back from the archive{_speed(d)}"
    ),
    "CheckpointRestored": _checkpoint_restored,
    "TierRead": _tier_read,
    "TierFailed": _tier_failed,
    "RestoreImpossible": lambda d: f"cannot go on: {d.get('reason')}",
    "AllocationArranged": _allocation_arranged,
    "AllocationRefused": lambda d: f"no new allocation: {d.get('reason')}",
    "StartRanks": lambda d: f"starting ranks: {d.get('reason')}",
    "StartAnyway": lambda d: f"starting all the same: {d.get('reason')}",
    "RollBack": lambda d: f"checkpoints of step {d.get('step')} and later are set aside",
    "AwaitStorage": _await_storage,
    "StorageAnswered": lambda d: "the checkpoint directory works",
    "StorageSilent": lambda d: f"the checkpoint directory does not work: {d.get('detail')}",
    "ExcludeNode": lambda d: f"{d.get('node')} is left out: {d.get('reason')}",
    "RequestAllocation": lambda d: f"asking for new nodes: {d.get('reason')}",
    "Notified": _notified,
    "Finish": _finish,
}
