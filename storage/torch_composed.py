"""Sparse and quantised tensors, as the plain tensors and numbers that they are made of."""

from __future__ import annotations

from typing import Any, cast

import torch

_COMPRESSED: dict[str, torch.layout] = {
    "csr": torch.sparse_csr,
    "csc": torch.sparse_csc,
    "bsr": torch.sparse_bsr,
    "bsc": torch.sparse_bsc,
}
_NAMES = {layout: name for name, layout in _COMPRESSED.items()}


def take_apart(value: torch.Tensor) -> tuple[str, dict[str, object]] | None:
    """Spelling and parts; None for a tensor that is not composed. Raises ValueError."""
    if value.layout is torch.strided and not value.is_quantized:
        return None
    if type(value) not in (torch.Tensor, torch.nn.Parameter):
        raise ValueError(f"sparse tensors of type {type(value).__qualname__} are not supported")
    plain = value.detach()
    if value.is_quantized:
        return "quantised", _quantised_parts(plain)
    if value.layout is torch.sparse_coo:
        return "sparse", {
            "layout": "coo",
            "shape": list(plain.shape),
            "coalesced": plain.is_coalesced(),
            "indices": plain._indices(),
            "values": plain._values(),
        }
    if value.layout in _NAMES:
        by_row = value.layout in (torch.sparse_csr, torch.sparse_bsr)
        return "sparse", {
            "layout": _NAMES[value.layout],
            "shape": list(plain.shape),
            "compressed": plain.crow_indices() if by_row else plain.ccol_indices(),
            "indices": plain.col_indices() if by_row else plain.row_indices(),
            "values": plain.values(),
        }
    raise ValueError(f"tensors of layout {value.layout} are not supported")


def sparse(parts: dict[str, object]) -> torch.Tensor:
    """The inverse of `take_apart`."""
    shape = cast(list[int], parts["shape"])
    indices, values = (cast(torch.Tensor, parts[name]) for name in ("indices", "values"))
    if parts["layout"] == "coo":
        coalesced = cast(bool, parts["coalesced"])
        return torch.sparse_coo_tensor(
            indices, values, shape, is_coalesced=coalesced, check_invariants=True
        )
    compressed = cast(torch.Tensor, parts["compressed"])
    layout = _COMPRESSED[cast(str, parts["layout"])]
    return torch.sparse_compressed_tensor(
        compressed, indices, values, shape, layout=layout, check_invariants=True
    )


def quantised(parts: dict[str, Any]) -> torch.Tensor:
    """The inverse of `take_apart`."""
    values, scale, zero_point = (parts[name] for name in ("values", "scale", "zero_point"))
    if "axis" in parts:
        axis = parts["axis"]
        return torch._make_per_channel_quantized_tensor(values, scale, zero_point, axis)
    return torch._make_per_tensor_quantized_tensor(values, scale, zero_point)


def _quantised_parts(value: torch.Tensor) -> dict[str, object]:
    if value.dtype not in (torch.qint8, torch.quint8, torch.qint32):
        raise ValueError(f"tensors of dtype {value.dtype} are not supported")
    if value.qscheme() == torch.per_tensor_affine:
        scale, zero_point = value.q_scale(), value.q_zero_point()
        return {"values": value.int_repr(), "scale": scale, "zero_point": zero_point}
    if value.qscheme() == torch.per_channel_affine:
        return {
            "values": value.int_repr(),
            "scale": value.q_per_channel_scales(),
            "zero_point": value.q_per_channel_zero_points(),
            "axis": value.q_per_channel_axis(),
        }
    raise ValueError(f"tensors quantised by {value.qscheme()} are not supported")
