"""What can go wrong with checkpoints, each with the values a person needs to act on it."""

from __future__ import annotations

import errno as codes
import os
import sys

from relight.counted import counted
from relight.errors import RelightError, UsageError

_LASTING = frozenset(
    {codes.EACCES, codes.EPERM, codes.EROFS, codes.ENOTDIR, codes.ENAMETOOLONG, codes.ELOOP}
)

_ADVICE = {
    codes.ENOSPC: "free space",
    codes.EDQUOT: "free space, or have the quota raised",
    codes.EACCES: "let this user write there",
    codes.EPERM: "let this user write there",
    codes.EROFS: "mount it to be written to, or name another checkpoint directory",
    codes.EMFILE: "let this process open more files (ulimit -n)",
    codes.ENFILE: "let this node open more files",
    codes.ENOMEM: "give this process more memory",
}


class StateRefused(UsageError):
    """A value cannot be stored bit for bit; nothing was written."""

    def __init__(self, key: str, reason: str) -> None:
        super().__init__(f"Cannot save {key[-200:] or 'the state'}: {reason}. Nothing was written.")
        self.key = key
        self.reason = reason


class RestoreRefused(UsageError):
    """Memory of the program cannot be written to; nothing is wrong with the checkpoint."""

    def __init__(self, file: str) -> None:
        super().__init__(
            f"Cannot restore from {file}: an array of the program lies in memory that cannot be "
            "written to, as a file does that is mapped to be read. Give it memory of its own, or "
            "leave it out of the state (a buffer with persistent=False)."
        )


class UnfitType(UsageError):
    """Only types whose whole content is known can be registered."""

    def __init__(self, name: str) -> None:
        super().__init__(
            f"{name} is no enum, dataclass or named tuple, so it cannot be registered."
        )


class TypeNotRegistered(UsageError):
    """A sound checkpoint holds a value of a type that this program does not allow, or not so."""

    def __init__(self, name: str, reason: str) -> None:
        super().__init__(
            f"The checkpoint holds a {name}, and {reason}: register the type as it was when the "
            "checkpoint was saved."
        )
        self.name = name


class SaveFailed(RelightError):
    """A shard could not be made durable; what was there of it is removed, nothing else changed."""

    def __init__(self, path: str, cause: OSError) -> None:
        text = os.strerror(cause.errno) if cause.errno else str(cause)
        if cause.errno == codes.ENOENT:
            gone = f"{text}: {cause.filename or 'its folder'}"
            what = f"{gone}; was it deleted, moved or unmounted? Bring it back"
        else:
            advice = _ADVICE.get(cause.errno or 0, "mend the file system")
            what = f"{text}. Earlier checkpoints are untouched; {advice}"
        super().__init__(f"Saving {path} failed: {what} before the next save.")
        self.path = path
        self.errno = cause.errno
        self.transient = cause.errno not in _LASTING


class CheckpointDamaged(RelightError):
    """Bytes on disk are not those that were saved.

    Attributes:
        file: path of the shard.
        array: key of the value, or the part of the file (`index`, `pack`, `header`, `file`).
        block: number of the block inside it, None where the part has no blocks.
    """

    def __init__(self, file: str, array: str, block: int | None, reason: str) -> None:
        place = f"{array}, block {block}" if block is not None else array
        self.what = f"{file} is damaged at {place}: {reason}"
        super().__init__(f"{self.what}. Set this checkpoint aside and restore the one before it.")
        self.file = file
        self.array = array
        self.block = block
        self.reason = reason


class ManifestDamaged(RelightError):
    """A commit record that does not say what it said when it was written."""

    def __init__(self, reason: str) -> None:
        super().__init__(f"The manifest is damaged: {reason}.")
        self.reason = reason


class FormatUnknown(RelightError):
    """A whole and sealed record of a format that this version cannot read."""

    def __init__(self, what: str, found: object, known: int) -> None:
        super().__init__(
            f"The {what} has format {found!r}, this relight reads format {known}: "
            "use the relight version that wrote it, or a later one."
        )


class CodecMissing(UsageError):
    """Arrays cannot be compressed here, and compressed ones not be read."""

    def __init__(self) -> None:
        super().__init__(
            f"Compressed checkpoints need the package zstandard, which {sys.executable} does not "
            f"have: {sys.executable} -m pip install 'relight[compress]'."
        )


class NoValidCheckpoint(RelightError):
    """Checkpoints were committed here and none can be trusted: starting afresh would lose them."""

    def __init__(self, directory: str, reasons: tuple[str, ...]) -> None:
        listed = "; ".join(reason.rstrip(".") for reason in reasons[:5])
        super().__init__(
            f"{directory} holds committed checkpoints, but none is valid: {listed}. "
            "Repair one, or name another directory to start from scratch."
        )
        self.directory = directory
        self.reasons = reasons


class WorldChanged(RelightError):
    """The checkpoint was written by another number of ranks."""

    def __init__(self, saved: int, wanted: str) -> None:
        super().__init__(
            f"The checkpoint was saved by {counted(saved, 'rank')}, it cannot be restored by "
            f"{wanted}: run with {counted(saved, 'rank')}."
        )


class PartsUnfit(RelightError):
    """What the ranks saved of an array, or are asked for, does not make a whole."""

    def __init__(self, key: str, reason: str) -> None:
        super().__init__(
            f"{key} cannot be restored: {reason}. "
            "Compare the parts that the ranks gave when saving with those that they want."
        )
        self.key = key
        self.reason = reason


class RanksDiffer(RelightError):
    """A value is another one on each rank, so another number of ranks cannot share it out."""

    def __init__(self, key: str, ranks: tuple[int, int], saved: int, wanted: int) -> None:
        super().__init__(
            f"{key} cannot be given to {counted(wanted, 'rank')}: of the {saved} that saved it, "
            f"ranks {ranks[0]} and {ranks[1]} have different values. Run with {saved} ranks, or "
            "protect it as relight.Part when it is a piece of a larger array, as "
            "relight.Replicated when that of any rank will do, as relight.PerRank when each rank "
            "shall keep its own."
        )
        self.key = key


class ExportRefused(UsageError):
    """Arrays cannot be written to this file; nothing of it is left."""


class DeletionRefused(UsageError):
    """A checkpoint must not be deleted; nothing was."""


class SaveIncomplete(RelightError):
    """The shards of a step do not make a whole checkpoint, so it was not committed."""

    def __init__(self, step: int, reason: str) -> None:
        super().__init__(f"Step {step} is not committed: {reason}. The one before it stands.")
        self.reason = reason


class Fenced(RelightError):
    """A later incarnation has taken over this directory: the caller must stop writing to it."""

    def __init__(self, directory: str, held: int, newest: int, run: str = "") -> None:
        of_run = f" of run {run}" if run else ""
        super().__init__(
            f"{directory} belongs to epoch {newest}{of_run} now, this process holds epoch {held}: "
            "another attempt has taken over, stop this one."
        )
        self.directory = directory
        self.held = held
        self.newest = newest
        self.run = run  # that has taken over; empty where it is not known


class CopyRefused(RelightError):
    """A node does not take a copy of another's shard."""

    def __init__(self, reason: str) -> None:
        super().__init__(f"the partner does not take it: {reason}")
        self.reason = reason


class PartnerUnknown(RelightError):
    """Who is at the other end of a connection is none of this attempt's nodes."""

    def __init__(self, reason: str) -> None:
        super().__init__(f"it was no node of this attempt that answered: {reason}")


class ArchiveUnfit(UsageError):
    """An address of an archive cannot be used from here."""

    def __init__(self, url: str, reason: str, advice: str) -> None:
        super().__init__(f"The archive {url} cannot be used: {reason}. {advice}.")


class ArchiveSilent(RelightError):
    """An archive could not be asked; asking again later may help."""

    def __init__(self, url: str, reason: str) -> None:
        super().__init__(
            f"There may be checkpoints in the archive {url}, and it cannot be asked: {reason}. "
            "Its credentials are looked for as its library does, and in `env` and `secrets`. "
            "Nothing is started from scratch meanwhile; without `checkpoint.archive` it would be."
        )
