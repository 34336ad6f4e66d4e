"""What boards should reach by their makers' data sheets, and how much less is a fault (pure).

The median of the run's nodes is the better measure; the floor is for what is slow everywhere, and
for nodes that are tested alone. It is far below what sound boards reach, so that a cool clock, a
power limit or an older library does not accuse a node.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from .boards import BOARDS, MODEL


@dataclass(frozen=True, slots=True)
class DataSheet:
    """Peaks of one board: bf16 without sparsity in TFLOP/s, the rest in GB/s.

    ``host_gb_s`` and ``link_gb_s`` (NVLink, to all other boards together) are for one direction.
    """

    product_tflop_s: float
    memory_gb_s: float
    host_gb_s: float
    link_gb_s: float | None = None


_PCIE4, _PCIE5 = 31.5, 63.0  # 16 lanes

# By the whole name that the driver gives: what begins alike may be another board, or a part of one
# (MIG). NVIDIA's data sheets of A100 (2021), H100 and H100 NVL (2023), H200 and H200 NVL (2024),
# L40S (2023), HGX B200 (2024). Bridges of NVL boards join two or four: eight are not all linked.
DATA_SHEETS: Final[Mapping[str, DataSheet]] = {
    "NVIDIA A100-SXM4-40GB": DataSheet(312, 1555, _PCIE4, 300),
    "NVIDIA A100-SXM4-80GB": DataSheet(312, 2039, _PCIE4, 300),
    "NVIDIA A100-PCIE-40GB": DataSheet(312, 1555, _PCIE4),
    "NVIDIA A100 80GB PCIe": DataSheet(312, 1935, _PCIE4),
    "NVIDIA H100 80GB HBM3": DataSheet(989, 3350, _PCIE5, 450),
    "NVIDIA H100 PCIe": DataSheet(756, 2000, _PCIE5),
    "NVIDIA H100 NVL": DataSheet(835, 3900, _PCIE5),
    "NVIDIA H200": DataSheet(989, 4800, _PCIE5, 450),
    "NVIDIA H200 NVL": DataSheet(835, 4800, _PCIE5),
    "NVIDIA L40S": DataSheet(362, 864, _PCIE4),
    "NVIDIA B200": DataSheet(2250, 7700, _PCIE5, 900),
}

# Published floors for comparison: gpu-fryer sees 0.74 of the peak on H100 (8192, cuBLAS); DCGM
# asks for 0.49 (H200) to 0.58 (A100) of the memory's; Azure for 0.67 (A100) and 0.76 (H100) of
# PCIe's; Azure and OCI for 0.6 (A100) to 1.0 (H100) of the link's in an all-reduce over eight.
SHARES: Final[Mapping[str, float]] = {
    "gpu_product": 0.5,
    "gpu_memory": 0.45,
    "gpu_copy": 0.55,
    "gpu_peers": 0.4,
    "gpu_sum": 0.45,
}
WHOLE: Final = "8"  # with fewer boards not all links of a board lead to the others


def floor(test: str, facts: Mapping[str, str]) -> float | None:
    """The least rate of a test on a node with these facts; None where none is published."""
    sheet = DATA_SHEETS.get(facts.get(MODEL, ""))
    if sheet is None or test not in SHARES:
        return None
    links = sheet.link_gb_s if facts.get(BOARDS) == WHOLE else None
    peaks = {
        "gpu_product": sheet.product_tflop_s,
        "gpu_memory": sheet.memory_gb_s,
        "gpu_copy": sheet.host_gb_s,
        "gpu_peers": links,
        "gpu_sum": links,
    }
    peak = peaks[test]
    return None if peak is None else SHARES[test] * peak
