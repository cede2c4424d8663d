"""Latency and bus bandwidth over size, as a PNG."""

from __future__ import annotations

from collections import defaultdict
from typing import Any

Curve = list[tuple[int, float, float]]  # bytes, us, busbw in GB/s


def _curves(records: list[dict[str, Any]]) -> dict[tuple[str, int, str], dict[str, Curve]]:
    """By (operation, ranks, dtype), then label."""
    result: dict[tuple[str, int, str], dict[str, Curve]] = defaultdict(lambda: defaultdict(list))
    for record in records:
        if "error" not in record and record["op"] != "barrier":
            key = (record["op"], record["ranks"], record["dtype"])
            point = (record["bytes"], record["min_us"], record["busbw_best"])
            result[key][record["label"]].append(point)
    return result


def plot(records: list[dict[str, Any]], path: str, title: str) -> None:
    """A row per operation, rank count and dtype: best time at the left, bandwidth at the right."""
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    groups = _curves(records)
    if not groups:
        return
    figure, axes = plt.subplots(
        len(groups), 2, figsize=(11, 3.2 * len(groups)), squeeze=False, constrained_layout=True
    )
    labels = list(dict.fromkeys(r["label"] for r in records))
    colors = {label: f"C{i}" for i, label in enumerate(labels)} | {"limit": "black"}
    for (latency, bandwidth), ((op, ranks, dtype), curves) in zip(
        axes, groups.items(), strict=True
    ):
        for label, points in curves.items():
            sizes, times, rates = zip(*sorted(points), strict=True)
            style = "--" if label == "limit" else "o-"
            look = {"markersize": 3, "linewidth": 1.2, "color": colors[label], "label": label}
            latency.plot(sizes, times, style, **look)
            bandwidth.plot(sizes, rates, style, **look)
        name = f"{op}, {ranks} ranks, {dtype}"
        latency.set(title=name, xscale="log", yscale="log", xlabel="bytes", ylabel="us per call")
        bandwidth.set(title=name, xscale="log", xlabel="bytes", ylabel="bus bandwidth, GB/s")
        for axis in (latency, bandwidth):
            axis.grid(True, which="major", alpha=0.3)
            axis.legend(fontsize="small")
    figure.suptitle(title)
    figure.savefig(path, dpi=110)
    plt.close(figure)
