"""A process that checks pairs of the sweep: what crashes it does not take the test down.

It is a fork of the test, made before the device comes to life there: so it starts at once, although
torch's op_db takes seconds to import.
"""

import faulthandler
import multiprocessing
import signal

import pair
import torch
import torch_openreg  # noqa: F401 (registers the device)

# What one pair may take. The slowest takes about half a minute on an idle core.
PAIR_TIMEOUT_S = 600


def _serve(connection, others_end):
    """Answers each (operator, dtype) with its pair.Outcome, until the other end is closed."""
    others_end.close()  # or this process would keep it open itself
    faulthandler.enable()
    torch.set_num_threads(1)
    operators = pair.operators()
    while True:
        try:
            name, dtype = connection.recv()
        except EOFError:
            return
        connection.send(pair.check(operators[name], dtype))


class Worker:
    """The other end: asks a worker process, and starts another one when it has died."""

    def __init__(self):
        self._process = None
        self._connection = None

    def _start(self):
        context = multiprocessing.get_context("fork")
        self._connection, theirs = context.Pipe()
        self._process = context.Process(target=_serve, args=(theirs, self._connection), daemon=True)
        self._process.start()
        theirs.close()

    def check(self, operator, dtype):
        """Returns the Outcome of a pair."""
        if self._process is None:
            self._start()
        try:
            self._connection.send((operator, dtype))
            if self._connection.poll(PAIR_TIMEOUT_S):
                return self._connection.recv()
            message = f"took more than {PAIR_TIMEOUT_S} s"
        except (BrokenPipeError, ConnectionResetError, EOFError):
            self._process.join(60)
            code = self._process.exitcode
            crashed = code is not None and code < 0
            message = f"crashed ({signal.Signals(-code).name})" if crashed else f"exited ({code})"
        self.close()
        return pair.Outcome("failed", message)

    def close(self):
        """Ends the process, which waits for a question, or is not to be waited for."""
        if self._process is not None:
            self._connection.close()
            self._process.kill()
            self._process.join()
            self._process = None
