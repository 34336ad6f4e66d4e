"""What the cluster looks like: its settings, its paths, and the text of its files (no IO)."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

USER = "mini"
USER_COMMENT = "relight minicluster"
CONTROLLER = "ctl"
SUBNET = "10.213.7"
PREFIX_LENGTH = 24
MAX_NODES = 200
# Not Slurm's usual 6817 and 6819: another Slurm may run on this machine.
CONTROLLER_PORT = 16817
ACCOUNTING_PORT = 16819
HOSTS_BEGIN = "# BEGIN relight minicluster"
HOSTS_END = "# END relight minicluster"


@dataclass(frozen=True)
class Settings:
    """What `up` was asked for."""

    nodes: int = 6
    grace: int = 20
    kill_wait: int = 10
    cred_expire: int = 30
    requeue: bool = True
    accounting: bool = True
    preempt: str = "requeue"
    send_user_signal: bool = False
    gpus: int = 2
    max_array: int = 1001
    release: str = ""  # of Debian or Ubuntu, when it is not the machine's own
    share: tuple[str, ...] = ()

    @property
    def is_new(self) -> bool:
        """Whether its Slurm is newer than that of Debian 12 (22.05)."""
        return self.release not in ("", "bullseye")

    @property
    def node_names(self) -> list[str]:
        return [node_name(index) for index in range(1, self.nodes + 1)]


@dataclass(frozen=True)
class Layout:
    """Where the cluster keeps its files."""

    root: Path = Path("/var/lib/relight-minicluster")
    cache: Path = Path("/var/cache/relight-minicluster")

    @property
    def etc(self) -> Path:
        return self.root / "etc"

    @property
    def slurm_conf(self) -> Path:
        return self.etc / "slurm.conf"

    @property
    def logs(self) -> Path:
        return self.root / "log"

    @property
    def spool(self) -> Path:
        return self.root / "spool"

    @property
    def hosts(self) -> Path:
        return self.root / "hosts"

    @property
    def munge(self) -> Path:
        return self.root / "munge"

    @property
    def munge_socket(self) -> Path:
        return self.munge / "munge.socket"

    @property
    def mariadb(self) -> Path:
        return self.root / "mariadb"

    @property
    def mariadb_socket(self) -> Path:
        return self.mariadb / "mariadb.socket"

    @property
    def gpus(self) -> Path:
        return self.root / "gpu"

    @property
    def home(self) -> Path:
        return self.root / "home"

    @property
    def shared(self) -> Path:
        return self.root / "shared"

    @property
    def programs(self) -> Path:
        """A link to another release's Slurm; absent where the machine's own is used."""
        return self.root / "slurm"

    def release(self, name: str) -> Path:
        """Where Slurm of another Debian release is unpacked."""
        return self.cache / name


def node_name(index: int) -> str:
    return f"n{index}"


def node_index(name: str) -> int:
    """The number in a host's name; inverse of node_name."""
    return int(name.removeprefix("n"))


def node_address(index: int) -> str:
    return f"{SUBNET}.{10 + index}"


def controller_address() -> str:
    return f"{SUBNET}.1"


def environment(layout: Layout) -> dict[str, str]:
    """What daemons and commands of this cluster find in their environment."""
    return {
        "PATH": f"{layout.programs}/sbin:{layout.programs}/bin:"
        "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
        "SLURM_CONF": str(layout.slurm_conf),
    }


def user_environment(settings: Settings, layout: Layout) -> dict[str, str]:
    """What `env` prints and `run` sets for the ordinary user."""
    return {
        "SLURM_CONF": str(layout.slurm_conf),
        "RELIGHT_MINICLUSTER_USER": USER,
        "RELIGHT_MINICLUSTER_SHARED": str(layout.shared),
        "RELIGHT_MINICLUSTER_LOGS": str(layout.logs),
        "RELIGHT_MINICLUSTER_NODES": " ".join(settings.node_names),
    }


def render_slurm_conf(settings: Settings, layout: Layout, plugins: Path | None = None) -> str:
    """slurm.conf for slurmctld, all slurmd and all commands; ``plugins`` of another release."""
    mode = settings.preempt.upper()
    nodes = f"n[1-{settings.nodes}]"
    gres = f" Gres=gpu:{settings.gpus}" if settings.gpus else ""
    lines = [
        "ClusterName=mini",
        f"SlurmctldHost={CONTROLLER}({controller_address()})",
        f"SlurmctldPort={CONTROLLER_PORT}",
        "SlurmUser=root",
        "AuthType=auth/munge",
        f"AuthInfo=socket={layout.munge_socket},cred_expire={settings.cred_expire}",
        "MpiDefault=none",
        # No cgroups: one machine's cgroup tree can't be handed to several hosts.
        "ProctrackType=proctrack/linuxproc",
        "TaskPlugin=task/none",
        "JobAcctGatherType=jobacct_gather/none",
        f"StateSaveLocation={layout.spool}/{CONTROLLER}",
        f"SlurmdSpoolDir={layout.spool}/%n",
        f"SlurmctldPidFile={layout.spool}/slurmctld.pid",
        f"SlurmdPidFile={layout.spool}/%n.pid",
        f"SlurmctldLogFile={layout.logs}/slurmctld.log",
        f"SlurmdLogFile={layout.logs}/slurmd-%n.log",
        "SlurmctldDebug=verbose",
        "SlurmdDebug=verbose",
        "SlurmdTimeout=10",
        "InactiveLimit=0",
        "MinJobAge=300",
        f"MaxArraySize={settings.max_array}",
        "MessageTimeout=5",
        "TCPTimeout=2",
        "CompleteWait=0",
        f"KillWait={settings.kill_wait}",
        f"JobRequeue={int(settings.requeue)}",
        "ReturnToService=2",
        "SchedulerType=sched/backfill",
        # The end of grace is seen only when the scheduler looks again (22.05), so look often.
        "SchedulerParameters=sched_interval=2,sched_min_interval=100000,batch_sched_delay=0,"
        "bf_interval=2",
        "SelectType=select/cons_tres",
        "SelectTypeParameters=CR_Core",
        "PreemptType=preempt/partition_prio",
        f"PreemptMode={mode}",
    ]
    if settings.send_user_signal:
        new = "PreemptParameters=send_user_signal"  # since 23.02
        old = "SlurmctldParameters=preempt_send_user_signal"
        lines.append(new if settings.is_new else old)
    if plugins is not None:
        lines.append(f"PluginDir={plugins}")
    if settings.accounting:
        lines += [
            "AccountingStorageType=accounting_storage/slurmdbd",
            f"AccountingStorageHost={CONTROLLER}",
            f"AccountingStoragePort={ACCOUNTING_PORT}",
            # AuthInfo does not reach connections to slurmdbd (22.05): this is munged's socket.
            f"AccountingStoragePass={layout.munge_socket}",
        ]
        if settings.gpus:
            lines.append("AccountingStorageTRES=gres/gpu")
    if settings.gpus:
        lines.append("GresTypes=gpu")
    lines += [
        "SlurmdParameters=config_overrides",
        f"NodeName={nodes} CPUs=4 Sockets=1 CoresPerSocket=4 ThreadsPerCore=1 "
        f"RealMemory=3000{gres} State=UNKNOWN",
        f"PartitionName=low Nodes={nodes} Default=YES MaxTime=INFINITE PriorityTier=1 "
        f"PreemptMode={mode} GraceTime={settings.grace}",
        f"PartitionName=high Nodes={nodes} MaxTime=INFINITE PriorityTier=10 PreemptMode=OFF",
    ]
    return "\n".join(lines) + "\n"


def render_cgroup_conf(settings: Settings) -> str:
    """cgroup.conf for releases that look for cgroups even where nothing uses them (23.11)."""
    plugin = "cgroup/v1" if settings.release == "noble" else "disabled"  # a word of 24.05
    return f"CgroupPlugin={plugin}\n"


def render_gres_conf(settings: Settings, layout: Layout) -> str:
    """gres.conf: every host sees the same pretend devices."""
    if not settings.gpus:
        return ""
    return f"Name=gpu File={layout.gpus}/gpu[0-{settings.gpus - 1}]\n"


def render_slurmdbd_conf(layout: Layout, plugins: Path | None = None) -> str:
    """slurmdbd.conf; the database's socket comes by MYSQL_UNIX_PORT, it can't be named here."""
    lines = [
        "AuthType=auth/munge",
        f"AuthInfo=socket={layout.munge_socket}",
        f"DbdHost={CONTROLLER}",
        f"DbdAddr={controller_address()}",
        f"DbdPort={ACCOUNTING_PORT}",
        "SlurmUser=root",
        f"LogFile={layout.logs}/slurmdbd.log",
        f"PidFile={layout.spool}/slurmdbd.pid",
        "StorageType=accounting_storage/mysql",
        "StorageHost=localhost",
        "StorageUser=root",
        "StorageLoc=slurm_acct_db",
        *([] if plugins is None else [f"PluginDir={plugins}"]),
    ]
    return "\n".join(lines) + "\n"


def add_hosts_block(text: str, settings: Settings) -> str:
    """The text of /etc/hosts with the cluster's marked block at its end."""
    names = [f"{controller_address()} {CONTROLLER}"]
    names += [f"{node_address(node_index(name))} {name}" for name in settings.node_names]
    block = "\n".join([HOSTS_BEGIN, *names, HOSTS_END]) + "\n"
    rest = remove_hosts_block(text)
    if rest and not rest.endswith("\n"):
        rest += "\n"
    return rest + block


def remove_hosts_block(text: str) -> str:
    """The text of /etc/hosts without the cluster's marked block."""
    kept = []
    inside = False
    for line in text.splitlines(keepends=True):
        if line.strip() == HOSTS_BEGIN:
            inside = True
        if not inside:
            kept.append(line)
        if line.strip() == HOSTS_END:
            inside = False
    return "".join(kept)
