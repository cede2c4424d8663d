"""One rank of the benchmark: contenders take turns, batch by batch."""

from __future__ import annotations

import argparse
import datetime
import json
import mmap
import os
import time
from typing import Any

import torch
import torch.distributed as dist
from contenders import DIVIDED, DTYPES, Runner, bus_factor, pin


class SharedBarrier:
    """A barrier of the ranks in a file that they map: no backend, about 1 us of skew."""

    TIMEOUT_S = 300.0

    def __init__(self, path: str, rank: int, world_size: int):
        with open(path, "r+b") as file:
            self.counters = memoryview(mmap.mmap(file.fileno(), 64 * world_size)).cast("q")
        self.rank, self.world_size, self.passed = rank, world_size, 0

    def __call__(self) -> None:
        """Waits for all ranks."""
        self.passed += 1
        self.counters[self.rank * 8] = self.passed
        deadline = time.monotonic() + self.TIMEOUT_S
        for peer in range(self.world_size):
            polls = 0
            while self.counters[peer * 8] < self.passed:
                polls += 1
                if polls > 50:
                    os.sched_yield()
                if polls % 4096 == 0 and time.monotonic() > deadline:
                    raise TimeoutError(f"rank {peer} did not reach the barrier")


class Session:
    """The runners of all contenders on this rank, and what they have measured."""

    def __init__(self, args: argparse.Namespace, rank: int, world_size: int, folder: str):
        self.args, self.rank, self.world_size = args, rank, world_size
        torch.set_num_threads(args.threads)
        if args.pin:
            pin(rank)
        timeout = datetime.timedelta(seconds=args.timeout)
        dist.init_process_group(
            "gloo",
            init_method=f"file://{folder}/store",
            rank=rank,
            world_size=world_size,
            timeout=timeout,
        )
        self.barrier = SharedBarrier(f"{folder}/barrier", rank, world_size)
        self.runners = [Runner(c, rank, world_size, timeout) for c in args.contenders]
        self.records: list[dict[str, Any]] = []

    def timed(self, runner: Runner, op: str, elements: int, calls: int) -> float:
        """Seconds per call of one batch on this rank."""
        self.barrier()
        start = time.perf_counter()
        runner.repeat(op, elements, calls, self.args.inflight)
        return (time.perf_counter() - start) / calls

    def agreed(self, value: float) -> float:
        """The largest of the ranks' values."""
        tensor = torch.tensor([value], dtype=torch.float64)
        dist.all_reduce(tensor, dist.ReduceOp.MAX)
        return float(tensor)

    def prepare(self, runner: Runner, op: str, elements: int) -> str:
        """Checks and warms up; what went wrong on any rank, or ""."""
        error = ""
        try:
            if self.args.check and not runner.is_right(op, elements):
                error = "wrong result"
            runner.repeat(op, elements, self.args.warmup, self.args.inflight)
        except Exception as e:
            error = f"{type(e).__name__}: {(str(e).splitlines() or [''])[0][:160]}"
        errors: list[str | None] = [None] * self.world_size
        dist.all_gather_object(errors, error)
        return next((e for e in errors if e), "")

    def calibrate(self, runner: Runner, op: str, elements: int) -> tuple[int, float]:
        """Calls per batch, and how long one takes; the same on all ranks."""
        best = 1e9
        for calls in (1, 1, 4, 16):
            if calls > 1 and best > 4e-3 / calls:
                break
            best = self.agreed(min(best, self.timed(runner, op, elements, calls)))
        if self.args.refresh:
            return 1, best
        return max(1, min(2000, round(self.args.batch_us * 1e-6 / best))), best

    def batches(self, round_s: float, contenders: int) -> int:
        """How many rounds of one batch each fit the budget; rank 0's answer."""
        budget = self.args.budget * contenders
        count = int(budget / round_s)
        if round_s * self.args.min_batches > 6 * budget + 2:  # very slow: fewer rounds
            count = max(3, int((6 * budget + 2) / round_s))
        else:
            count = max(self.args.min_batches, min(self.args.max_batches, count))
        tensor = torch.tensor([count])
        dist.broadcast(tensor, 0)
        return int(tensor)

    def measure(self, op: str, size: int, dtype: str) -> None:
        """All contenders at one operation and size."""
        elements = size // DTYPES[dtype].itemsize
        errors = [self.prepare(r, op, elements) for r in self.runners]
        live = [r for r, e in zip(self.runners, errors, strict=True) if not e]
        plans = [self.calibrate(r, op, elements) for r in live]
        times = torch.zeros(len(live), 0, dtype=torch.float64)
        if live:
            rounds = self.batches(sum(calls * once for calls, once in plans), len(live))
            times = torch.zeros(len(live), rounds, dtype=torch.float64)
            for b in range(rounds):
                # A B, B A, A B, ...: noise of a shared machine hits them alike.
                for i in range(len(live)) if b % 2 == 0 else reversed(range(len(live))):
                    if self.args.refresh and op != "barrier":
                        live[i].refresh(op, elements)
                    times[i, b] = self.timed(live[i], op, elements, plans[i][0])
            if op == "sendrecv":
                times = times / 2 if self.rank < 2 else times * 0
            dist.all_reduce(times, dist.ReduceOp.MAX)
        for runner, error in zip(self.runners, errors, strict=True):
            record: dict[str, Any] = {
                "label": runner.contender.label,
                "op": op,
                "ranks": self.world_size,
                "dtype": dtype,
                "bytes": size,
            }
            if error:
                record["error"] = error
            else:
                i = live.index(runner)
                record |= statistics(times[i], size, bus_factor(op, self.world_size))
                record["iters"] = plans[i][0]
                if self.runners[0] in live and i != 0:
                    record["ratio_min"] = float(times[0].min() / times[i].min())
                    record["ratio_paired"] = float((times[0] / times[i]).median())
            self.records.append(record)
            if self.rank == 0:
                print(row(record), flush=True)


def statistics(times: torch.Tensor, size: int, factor: float) -> dict[str, float]:
    """Of the batches' mean times, each the slowest rank's."""
    best, median = float(times.min()), float(times.median())
    return {
        "batches": len(times),
        "min_us": best * 1e6,
        "p25_us": float(times.quantile(0.25)) * 1e6,
        "med_us": median * 1e6,
        "p90_us": float(times.quantile(0.9)) * 1e6,
        "algbw_med": size / median / 1e9,
        "busbw_med": size / median / 1e9 * factor,
        "busbw_best": size / best / 1e9 * factor,
    }


def row(record: dict[str, Any]) -> str:
    """A line of the table."""
    head = (
        f"{record['op']:15s} n={record['ranks']} {record['dtype']:8s} {record['bytes']:>10d} B "
        f"{record['label']:>14s}"
    )
    if "error" in record:
        return f"{head} ERROR {record['error']}"
    text = (
        f"{head} min {record['min_us']:10.2f} med {record['med_us']:10.2f} us"
        f"  busbw best {record['busbw_best']:7.3f} med {record['busbw_med']:7.3f} GB/s"
    )
    if "ratio_min" in record:
        text += f"  ratio min {record['ratio_min']:6.2f} paired {record['ratio_paired']:6.2f}"
    return text


def rank_main(rank: int, args: argparse.Namespace, world_size: int, folder: str) -> None:
    """Body of a rank's process; rank 0 writes {folder}/records.json."""
    os.environ.update(RANK=str(rank), LOCAL_RANK=str(rank), WORLD_SIZE=str(world_size))
    session = Session(args, rank, world_size, folder)
    for dtype in args.dtypes:
        itemsize = DTYPES[dtype].itemsize
        for runner in session.runners:
            runner.allocate(max(args.sizes) // itemsize, DTYPES[dtype], args.rotate)
        for op in args.ops:
            for size in [0] if op == "barrier" else args.sizes:
                elements = size // itemsize
                uneven = elements % world_size != 0 or elements < world_size
                if op != "barrier" and (elements < 1 or (op in DIVIDED and uneven)):
                    continue
                session.measure(op, size, dtype)
    if rank == 0:
        with open(f"{folder}/records.json", "w") as file:
            json.dump(session.records, file)
    dist.barrier()
    os._exit(0)  # the end of a backend is not measured
