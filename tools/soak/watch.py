"""One round: starts the ranks, does its part of the misfortune, and judges what they report."""

from __future__ import annotations

import contextlib
import ctypes
import dataclasses
import json
import os
import re
import select
import shutil
import signal
import tempfile
import time
from typing import Any

import rank as rank_program
from plan import DEADLY, LATE, Plan

# A rank that has not ended by now hangs.
_HANG_S = 120.0
# What a stopped rank's peers may take beyond the operation's deadline before it counts as wrong;
# the exact figure is reported. Generous: ranks outnumber processors.
_NOTICED_S = 10.0

_PR_SET_PDEATHSIG = 1
# End the soak in order.
ENDINGS = (signal.SIGTERM, signal.SIGINT)


def _end_with(parent: int) -> None:
    """Sees to it that this rank, even a stopped one, does not outlive the soak, however that ends.

    The signals that end the soak in order end a rank at once.
    """
    for ending in ENDINGS:
        signal.signal(ending, signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, ENDINGS)
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:
        os._exit(1)  # it has ended in between


def is_torn(store: bytes) -> bool:
    """Says whether a rank was killed while torch's FileStore wrote a key and its value.

    It writes each with its length, in four calls. What follows in the file is then misread by all.
    """
    position, fields = 0, 0
    while position < len(store):
        size = int.from_bytes(store[position : position + 4], "little")
        field = store[position + 4 : position + 4 + size]
        is_key = fields % 2 == 0
        if len(field) < size or (is_key and not re.match(rb"-?/|(refcount|cleanup)/", field)):
            return True
        position, fields = position + 4 + size, fields + 1
    return fields % 2 != 0


@dataclasses.dataclass
class Process:
    """A rank's process, seen from outside."""

    pid: int
    pidfd: int
    report: int
    text: bytes = b""
    events: list[dict[str, Any]] = dataclasses.field(default_factory=list)
    code: int | None = None  # as os.waitstatus_to_exitcode
    ended: float = 0.0


@dataclasses.dataclass
class Outcome:
    """What a round gave."""

    faults: list[str]
    reactions_s: list[float]  # from a misfortune (or the call, if later) to each survivor's error
    lateness_s: list[float]  # of deadlines
    operations: int
    shrunk: bool
    torn: bool  # see is_torn
    parted: bool  # a shrink in which a rank died failed on some of the others only
    logs: dict[int, str]


class Round:
    """Runs one plan."""

    def __init__(self, plan: Plan) -> None:
        self.plan = plan
        self.processes: list[Process] = []
        self.faults: list[str] = []
        self.stopped_at: float | None = None
        self.resume_at: float | None = None

    def run(self) -> Outcome:
        """Runs the ranks to their end."""
        # Not a TemporaryDirectory: a rank that runs its exit handlers would remove it.
        folder = tempfile.mkdtemp(prefix="soak-")
        try:
            store_file = os.path.join(folder, "store")
            try:
                for rank in range(self.plan.world):
                    self.processes.append(self._start(rank, folder, store_file))
                self._watch()
            finally:
                self._reap()
            left = sorted(set(os.listdir(folder)) - {"store"} - set(self._log_names()))
            if left:
                self.faults.append(f"files are left: {left}")
            logs = {}
            for rank, name in enumerate(self._log_names()):
                with open(os.path.join(folder, name), errors="replace") as file:
                    logs[rank] = file.read()
            torn = False
            with contextlib.suppress(FileNotFoundError), open(store_file, "rb") as store:
                torn = is_torn(store.read())
        finally:
            shutil.rmtree(folder)
        judge = Judge(self.plan, self.processes)
        judge.run()
        return Outcome(
            self.faults + judge.faults,
            judge.reactions_s,
            judge.lateness_s,
            len(self.plan.steps) + len(self.plan.makings),
            judge.shrunk,
            torn,
            judge.parted,
            logs,
        )

    def _log_names(self) -> list[str]:
        return [f"rank{rank}.log" for rank in range(self.plan.world)]

    def _start(self, rank: int, folder: str, store_file: str) -> Process:
        log = os.open(os.path.join(folder, f"rank{rank}.log"), os.O_CREAT | os.O_WRONLY, 0o600)
        reader, writer = os.pipe()
        parent = os.getpid()
        # A signal that came in the fork would be handled in a fork handler of Python's library, and
        # what the soak's handler raises is lost there.
        signal.pthread_sigmask(signal.SIG_BLOCK, ENDINGS)
        pid = os.fork()
        if pid == 0:
            _end_with(parent)
            os.close(reader)
            for process in self.processes:
                os.close(process.report)
            rank_program.run_rank(self.plan, rank, store_file, writer, log)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, ENDINGS)
        os.close(writer)
        os.close(log)
        os.set_blocking(reader, False)
        return Process(pid, os.pidfd_open(pid), reader)

    # ---- while it runs

    def _watch(self) -> None:
        end = time.monotonic() + _HANG_S
        while any(process.code is None for process in self.processes):
            now = time.monotonic()
            if now > end:
                self._report_hang()
                return
            self._resume_if_due(now)
            waiting: dict[int, Process] = {}
            for process in self.processes:
                if process.code is None:
                    waiting[process.pidfd] = waiting[process.report] = process
            pause = 0.2 if self.resume_at is None else max(0.0, self.resume_at - now)
            for fd in select.select(list(waiting), [], [], min(0.2, pause))[0]:
                self._handle(waiting[fd], fd)

    def _handle(self, process: Process, fd: int) -> None:
        if fd == process.pidfd and process.code is None:
            process.ended = time.monotonic()
            _, status = os.waitpid(process.pid, 0)
            process.code = os.waitstatus_to_exitcode(status)
        self._read(process)
        rank = self.processes.index(process)
        misfortune = self.plan.misfortune
        if rank == misfortune.victim and misfortune.kind in ("stop", "pause"):
            self._stop_when_it_says(process)

    def _read(self, process: Process) -> None:
        with contextlib.suppress(BlockingIOError):
            while chunk := os.read(process.report, 65536):
                process.text += chunk
        *lines, process.text = process.text.split(b"\n")
        process.events += [json.loads(line) for line in lines]

    def _stop_when_it_says(self, process: Process) -> None:
        said = any(event["event"] == "misfortune" for event in process.events)
        if self.stopped_at is not None or not said or process.code is not None:
            return
        time.sleep(self.plan.misfortune.delay_us / 1e6)
        os.kill(process.pid, signal.SIGSTOP)
        self.stopped_at = time.monotonic()
        process.events.append({"event": "stopped", "time": self.stopped_at})
        # Shorter than the deadline: nobody may notice. Longer: the deadline has to end the others.
        paused = self.plan.misfortune.kind == "pause"
        self.resume_at = self.stopped_at + (0.7 if paused else self.plan.timeout_s * 2 + 2)

    def _resume_if_due(self, now: float) -> None:
        victim = self.processes[self.plan.misfortune.victim]
        if self.resume_at is None or victim.code is not None:
            return
        others = [process for process in self.processes if process is not victim]
        if now >= self.resume_at or all(process.code is not None for process in others):
            os.kill(victim.pid, signal.SIGCONT)
            self.resume_at = None

    def _report_hang(self) -> None:
        for rank, process in enumerate(self.processes):
            if process.code is None:
                self.faults.append(f"rank {rank} hangs")
                with contextlib.suppress(ProcessLookupError):
                    os.kill(process.pid, signal.SIGCONT)
                    os.kill(process.pid, signal.SIGUSR1)  # shows its stacks
        time.sleep(1.0)

    def _reap(self) -> None:
        for process in self.processes:
            if process.code is None:
                with contextlib.suppress(ProcessLookupError):
                    signal.pidfd_send_signal(process.pidfd, signal.SIGKILL)
                with contextlib.suppress(ChildProcessError):
                    _, status = os.waitpid(process.pid, 0)
                    process.code = os.waitstatus_to_exitcode(status)
            self._read(process)
            os.close(process.report)
            os.close(process.pidfd)


class Judge:
    """Compares what the ranks reported with what the plan's misfortune may do."""

    def __init__(self, plan: Plan, processes: list[Process]) -> None:
        self.plan = plan
        self.processes = processes
        self.faults: list[str] = []
        self.reactions_s: list[float] = []
        self.lateness_s: list[float] = []
        self.shrunk = False
        self.parted = False

    def run(self) -> None:
        """Judges every rank."""
        for rank, process in enumerate(self.processes):
            dies = rank in self.plan.dead
            allowed = (0, 17, -signal.SIGALRM) if dies else (0,)
            if process.code not in allowed:
                self.faults.append(f"rank {rank} ended with {process.code}")
            for event in process.events:
                if event["event"] == "broken":
                    self.faults.append(f"rank {rank}: {event['error']}: {event['message']}")
                elif event["event"] == "went_on":
                    self.shrunk = True
                elif event["event"] == "parted":
                    self.parted = True
                elif event["event"] == "failure" and not dies:
                    self._failure(rank, event)
            told = any(event.get("needed") for event in process.events)
            if (self.plan.makings or self.plan.second) and rank not in self.plan.dead and not told:
                self.faults.append(f"rank {rank} was never told of a death")

    def _victim(self, event: dict[str, Any]) -> int | None:
        """Whose misfortune may have caused the failure; None: nobody's."""
        if event["needed"] is None:
            return self.plan.misfortune.victim if self.plan.affected(event["group"]) else None
        return next((rank for rank in self.plan.dead if rank in event["needed"]), None)

    def _failure(self, rank: int, event: dict[str, Any]) -> None:
        message = event["message"]
        where = f"rank {rank}, step {event['step']} ({event['kind']}, group {event['group']})"
        victim = self._victim(event)
        if victim is None:
            self.faults.append(f"{where} failed though nothing is wrong there: {message}")
            return
        if event["error"] not in ("DistBackendError", "AcceleratorError"):
            self.faults.append(f"{where} raised {event['error']}: {message}")
        pattern = self._expected(self.processes[victim])
        if not re.search(pattern, message) and not self._names_who_left(event):
            self.faults.append(f"{where} does not say /{pattern}/: {message}")
        self._timing(where, rank, event, victim)

    def _names_who_left(self, event: dict[str, Any]) -> bool:
        """Says whether the message names a rank that had left the group.

        After a failure of its own, or because it was through: what a rank told its peers last may
        have been dropped. Where a process has ended, that is to be named as well.
        """
        if self.plan.dead and self.plan.misfortune.kind != "leave":
            return False
        named = {int(pid) for pid in re.findall(r"\(pid (\d+)\)", event["message"])}
        return any(
            other["time"] <= event["time"]
            and (
                other["event"] == "leaves"
                or (other["event"] == "failure" and other["group"] == event["group"])
            )
            for process in self.processes
            if process.pid in named
            for other in process.events
        )

    def _expected(self, victim: Process) -> str:
        kind = self.plan.misfortune.kind
        named = rf"rank(\(s\))? \d+ \(pid {victim.pid}\)"
        if kind in DEADLY:
            return named
        return {
            "stop": rf"timed out.*{named}|{named}",
            "drop": "timed out",
            "mismatch": "disagree",
            "truncate": "disagree",
            "abort": "was aborted",
            "reset": "was reset",
        }[kind]

    def _when(self, victim: Process, group: int) -> float:
        """When a victim that lives on brought its misfortune about.

        It has announced it before it settled what it had in flight, and faults on request wait for
        an operation: where its own failure shows the moment, that counts.
        """
        for event in victim.events:
            if event["event"] == "failure" and event["group"] == group:
                return event["begin"] if self.plan.misfortune.kind == "mismatch" else event["time"]
        return min((e["time"] for e in victim.events if e["event"] == "misfortune"), default=0.0)

    def _timing(self, where: str, rank: int, event: dict[str, Any], victim_rank: int) -> None:
        misfortune = self.plan.misfortune
        victim = self.processes[victim_rank]
        if misfortune.kind in LATE:
            waited = re.search(r"on rank (\d+) of .* timed out after (\d+) ms", event["message"])
            if waited and int(waited[1]) == rank and rank != misfortune.victim:
                self.lateness_s.append(int(waited[2]) / 1e3 - self.plan.timeout_s)
            return
        happened = victim.ended if misfortune.kind in DEADLY else self._when(victim, event["group"])
        reaction = event["time"] - max(happened, event["begin"])
        self.reactions_s.append(max(reaction, 0.0))
        if reaction > _NOTICED_S:
            self.faults.append(f"{where} noticed only after {reaction:.2f} s: {event['message']}")
