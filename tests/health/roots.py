"""A file tree that stands for /, with a kernel that says what the test wants."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

UPTIME_S = 100_000.0


def make_root(root: Path, files: Mapping[str, str]) -> Path:
    """Write the files below a root."""
    for name, text in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return root


def kernel_log(*lines: tuple[float, str]) -> dict[str, str]:
    """A kernel log of lines with their age in hours."""
    records = [
        f"6,{number},{int((UPTIME_S - hours * 3600) * 1e6)},-;{text}\n SUBSYSTEM=pci\n"
        for number, (hours, text) in enumerate(lines)
    ]
    return {"dev/kmsg": "".join(records), "proc/uptime": f"{UPTIME_S} 1.0\n"}


def infiniband(
    state: str = "4: ACTIVE", link: str = "5: LinkUp", downed: int = 0
) -> dict[str, str]:
    """One port of 400 Gb/s."""
    port = "sys/class/infiniband/mlx5_0/ports/1"
    return {
        f"{port}/state": f"{state}\n",
        f"{port}/phys_state": f"{link}\n",
        f"{port}/rate": "400 Gb/sec (4X NDR)\n",
        f"{port}/counters/link_downed": f"{downed}\n",
        f"{port}/counters/symbol_error": "7\n",
        f"{port}/hw_counters/packet_seq_err": "3\n",
        "sys/class/infiniband/mlx5_0/fw_ver": "28.39.1002\n",
    }


def ethernet(operstate: str = "up") -> dict[str, str]:
    """A port of 25 Gb/s, and the loopback, which is none."""
    return {
        "sys/class/net/eth0/device/vendor": "0x15b3\n",
        "sys/class/net/eth0/type": "1\n",
        "sys/class/net/eth0/operstate": f"{operstate}\n",
        "sys/class/net/eth0/speed": "25000\n",
        "sys/class/net/eth0/mtu": "9000\n",
        "sys/class/net/eth0/statistics/rx_errors": "5\n",
        "sys/class/net/eth0/statistics/tx_errors": "0\n",
        "sys/class/net/lo/operstate": "unknown\n",
    }
