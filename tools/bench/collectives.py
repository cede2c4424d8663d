r"""Compares backends of torch.distributed: latency and bus bandwidth of the collectives.

All contenders run in the same processes, one process group each, and their timed batches take
turns, so that noise of a shared machine hits them alike. Ratios of one run mean something; numbers
of two runs must not be compared.

    tools/bazel run //tools/bench:collectives
    tools/bazel run //tools/bench:collectives -- -c gloo \
        -c occl,import=torch_openreg,device=openreg --ranks 2,4 --sizes 8,1K,1M --json out.json

A contender is NAME[,key=value...]: import=M[+M2], device=D (its tensors; default cpu), label=L,
env=K:V[+K2:V2]. The first one is the baseline of the ratios (above 1: the other is faster).

Sizes and bandwidths are those of nccl-tests: the tensor for all_reduce, broadcast and sendrecv, the
whole gathered, scattered or exchanged tensor of a rank for all_gather, reduce_scatter, all_to_all.
sendrecv is half a ping-pong of ranks 0 and 1. A batch's time is the slowest rank's mean per call;
min, p25 and med are over batches; ratio_min = min(base) / min(this), ratio_paired = the median over
rounds of base / this. "limit" is the same data moved by plain loops without synchronisation, as
//tools/bench:occl_perf measures it (float sums, and all that only moves data).

--bars FILE: [{"label":..,"op":..,"dtype":..,"ranks":..,"bytes":..,"min_ratio":..}], missing keys
match all; exits with 1 if one is missed or was not measured.
"""

from __future__ import annotations

import argparse
import datetime
import json
import os
import platform
import subprocess
import sys
import tempfile
import time
from typing import Any

import measure
import plots
import torch.multiprocessing as mp
from contenders import DTYPES, OPS, Contender, bus_factor

DEFAULT_CONTENDERS = ["gloo", "occl,import=torch_openreg,device=openreg"]


def parse_size(text: str) -> int:
    """8, 64K, 1M, 2G; a trailing B is allowed."""
    plain = text.strip().upper().removesuffix("B")
    unit = {"K": 1 << 10, "M": 1 << 20, "G": 1 << 30}.get(plain[-1:], 1)
    return int(plain.rstrip("KMG")) * unit


def parse_arguments(argv: list[str] | None = None) -> argparse.Namespace:
    """The command line, with lists already split."""
    p = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    p.add_argument("-c", "--contender", action="append", help="may be repeated")
    p.add_argument("--ranks", default="2,4")
    p.add_argument("--ops", default=",".join(OPS))
    p.add_argument("--sizes", default="8,64,1K,8K,64K,256K,1M,4M,16M,64M")
    p.add_argument("--dtypes", default="float32", help=", ".join(DTYPES))
    p.add_argument("--budget", type=float, default=0.6, help="seconds per contender, op and size")
    p.add_argument("--batch-us", type=float, default=500)
    p.add_argument("--min-batches", type=int, default=9)
    p.add_argument("--max-batches", type=int, default=400)
    p.add_argument("--warmup", type=int, default=3, help="calls before the measurement")
    p.add_argument("--inflight", type=int, default=1, help="asynchronous calls at a time")
    p.add_argument("--rotate", type=int, default=1, help="buffers to take in turn (cold caches)")
    p.add_argument("--refresh", action="store_true", help="rewrite the buffers before each call")
    p.add_argument("--threads", type=int, default=1, help="intra-op threads of a rank")
    p.add_argument("--pin", action="store_true", help="rank r on CPU r")
    p.add_argument("--check", action="store_true", help="verify a result per operation and size")
    p.add_argument("--timeout", type=float, default=120, help="of the process groups, s")
    p.add_argument("--run-timeout", type=float, default=1800, help="of one rank count, s")
    p.add_argument("--json", help="write all numbers to this file")
    p.add_argument("--plot", help="write the curves to this PNG")
    p.add_argument("--bars", help="check the ratios against this file")
    p.add_argument("--bar-stat", default="ratio_min", choices=["ratio_min", "ratio_paired"])
    p.add_argument("--limit-program", default=os.environ.get("OCCL_PERF"), help="occl_perf")
    a = p.parse_args(argv)
    try:
        a.contenders = [Contender.parse(c) for c in a.contender or DEFAULT_CONTENDERS]
    except argparse.ArgumentTypeError as e:
        p.error(str(e))
    if len({c.label for c in a.contenders}) < len(a.contenders):
        p.error("two contenders have one label")
    a.ops, a.dtypes = a.ops.split(","), a.dtypes.split(",")
    for known, given in ((OPS, a.ops), (DTYPES, a.dtypes)):
        for name in given:
            if name not in known:
                p.error(f"{name!r} is none of {', '.join(known)}")
    a.sizes = sorted({parse_size(s) for s in a.sizes.split(",")})
    a.ranks = [int(n) for n in a.ranks.split(",")]
    return a


def run_ranks(args: argparse.Namespace, world_size: int) -> list[dict[str, Any]] | None:
    """The records of one rank count; None if a rank failed or the time was over."""
    with tempfile.TemporaryDirectory() as folder:
        with open(f"{folder}/barrier", "wb") as file:
            file.write(bytes(64 * world_size))
        for contender in args.contenders:
            os.environ.update(contender.env)
        context = mp.get_context("spawn")
        ranks = [
            context.Process(target=measure.rank_main, args=(r, args, world_size, folder))
            for r in range(world_size)
        ]
        for process in ranks:
            process.start()
        deadline = time.monotonic() + args.run_timeout
        try:
            while any(p.exitcode is None for p in ranks):
                if time.monotonic() > deadline or any(p.exitcode not in (None, 0) for p in ranks):
                    break
                ranks[0].join(0.05)
        finally:
            for process in ranks:
                if process.exitcode is None:
                    process.kill()
                process.join()
        if any(p.exitcode != 0 for p in ranks):
            print(f"{world_size} ranks: exit codes {[p.exitcode for p in ranks]}", file=sys.stderr)
            return None
        with open(f"{folder}/records.json") as file:
            records: list[dict[str, Any]] = json.load(file)
            return records


def measure_limit(args: argparse.Namespace, world_size: int) -> list[dict[str, Any]]:
    """The bare kernels' times as records of the label "limit"; none without the program."""
    ops = [op for op in args.ops if op != "barrier"]
    if not args.limit_program or not ops:
        return []
    records = []
    for size in args.sizes:
        command = [args.limit_program, "--limit-only", f"-g{world_size}", f"-b{size}", f"-e{size}"]
        done = subprocess.run(
            [*command, "--op", ",".join(ops), "--timeout", "60"],
            capture_output=True,
            text=True,
            timeout=600,
            check=True,
        )
        for line in done.stdout.splitlines():
            _, op, _, us = line.split()
            rate = size / float(us) / 1e3 * bus_factor(op, world_size)
            common = {"label": "limit", "op": op, "ranks": world_size, "bytes": size}
            for dtype in args.dtypes:
                if dtype in ("float32", "f32") or op not in ("all_reduce", "reduce_scatter"):
                    common |= {"dtype": dtype, "min_us": float(us), "busbw_best": rate}
                    records.append(dict(common))
    return records


def summary(records: list[dict[str, Any]]) -> str:
    """Best times of all labels side by side."""
    labels = list(dict.fromkeys(r["label"] for r in records))
    rows: dict[tuple[Any, ...], dict[str, str]] = {}
    for record in records:
        key = (record["op"], record["ranks"], record["dtype"], record["bytes"])
        cell = "error" if "error" in record else f"{record['min_us']:.2f}"
        if "ratio_min" in record:
            cell += f" ({record['ratio_min']:.1f}x)"
        rows.setdefault(key, {})[record["label"]] = cell
    head = f"{'op':15s} {'n':>2s} {'dtype':8s} {'bytes':>10s}"
    lines = [head + "".join(f" {label + ' us':>20s}" for label in labels)]
    for (op, ranks, dtype, size), cells in rows.items():
        line = f"{op:15s} {ranks:2d} {dtype:8s} {size:10d}"
        lines.append(line + "".join(f" {cells.get(label, '-'):>20s}" for label in labels))
    return "\n".join(lines)


def check_bars(args: argparse.Namespace, records: list[dict[str, Any]]) -> bool:
    """Whether all bars of the file are reached."""
    with open(args.bars) as file:
        bars = json.load(file)
    good = True
    for bar in bars:
        keys = [k for k in ("label", "op", "dtype", "ranks", "bytes") if k in bar]
        rows = [r for r in records if all(r.get(k) == bar[k] for k in keys)]
        rows = [r for r in rows if "error" in r or args.bar_stat in r]
        if not rows:
            print(f"bar not measured: {bar}")
            good = False
        for r in rows:
            reached = "error" not in r and r[args.bar_stat] >= bar["min_ratio"]
            good = good and reached
            got = r.get(args.bar_stat, r.get("error"))
            print(
                f"bar {'reached' if reached else 'MISSED '} {r['label']} {r['op']} n={r['ranks']} "
                f"{r['dtype']} {r['bytes']} B: wanted {bar['min_ratio']}, got {got}"
            )
    return good


def where(path: str) -> str:
    """Relative to the folder that the user called from, under `bazel run` too."""
    return os.path.join(os.environ.get("BUILD_WORKING_DIRECTORY", ""), path)


def main() -> int:
    """The exit code."""
    args = parse_arguments()
    result: dict[str, Any] = {
        "when": datetime.datetime.now().isoformat(timespec="seconds"),
        "host": platform.platform(),
        "cpus": os.cpu_count(),
        "loadavg_start": os.getloadavg(),
        "argv": sys.argv[1:],
    }
    records: list[dict[str, Any]] = []
    failed = False
    for world_size in args.ranks:
        measured = run_ranks(args, world_size)
        failed = failed or measured is None
        records += measured or []
        records += measure_limit(args, world_size)
    result |= {"results": records, "loadavg_end": os.getloadavg()}
    print("\n" + summary(records))
    if args.json:
        with open(where(args.json), "w") as file:
            json.dump(result, file, indent=1)
    if args.plot:
        title = f"{', '.join(c.label for c in args.contenders)} on {os.cpu_count()} CPUs"
        plots.plot(records, where(args.plot), title)
    if args.bars and not check_bars(args, records):
        failed = True
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
