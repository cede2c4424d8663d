"""A process that checks pairs of the sweep: what crashes it does not take the test down.

Reads one line per pair, operator and dtype, and answers with one line of JSON. Started by Worker,
which also ends it when a pair takes too long.
"""

import json
import os
import signal
import subprocess
import sys
import threading

# What one pair may take. The slowest takes about half a minute on an idle core.
PAIR_TIMEOUT_S = 600


def serve():
    """Answers until standard input ends."""
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # what torch prints is no answer

    import pair
    import torch
    import torch_openreg  # noqa: F401 (registers the device)

    torch.set_num_threads(1)
    operators = pair.operators()
    print(json.dumps({"ready": True}), file=answers, flush=True)
    for line in sys.stdin:
        name, dtype = line.rstrip("\n").split("\t")
        outcome = pair.check(operators[name], dtype)
        print(json.dumps(vars(outcome)), file=answers, flush=True)


class Worker:
    """The other end: asks a worker process, and starts another one when it has died."""

    def __init__(self):
        self._process = None

    def _start(self):
        self._process = subprocess.Popen(
            [sys.executable, "-X", "faulthandler", os.path.abspath(__file__)],
            env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        if not self._answer():
            raise RuntimeError(
                "the worker of the sweep could not be started (see its output above)"
            )

    def _answer(self):
        """Returns the next answer; None if the process has ended or had to be ended."""
        process = self._process
        late = threading.Event()

        def end():
            late.set()
            process.kill()

        timer = threading.Timer(PAIR_TIMEOUT_S, end)
        timer.start()
        line = process.stdout.readline()
        timer.cancel()
        if line:
            return json.loads(line)
        code = process.wait()
        self._process = None
        self.last_exit = (
            f"took more than {PAIR_TIMEOUT_S} s"
            if late.is_set()
            else f"crashed ({signal.Signals(-code).name})"
            if code < 0
            else f"exited with {code}"
        )
        return None

    def check(self, operator, dtype):
        """Returns the outcome of a pair as a dict (see pair.Outcome)."""
        if self._process is None:
            self._start()
        try:
            self._process.stdin.write(f"{operator}\t{dtype}\n")
            self._process.stdin.flush()
        except BrokenPipeError:
            pass  # the answer tells
        answer = self._answer()
        return answer or {"status": "failed", "message": self.last_exit, "samples": 0}

    def close(self):
        """Ends the process."""
        if self._process is not None:
            self._process.stdin.close()
            self._process.wait(timeout=60)
            self._process = None


if __name__ == "__main__":
    serve()
