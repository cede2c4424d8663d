"""A program that talks to every socket of this library in this network until a file appears.

Strangers connect, send garbage of many sizes, half of a message, close at once, or stay and say
nothing. Arguments: a seed, the file. Prints "begun", then how many were let in.
"""

import contextlib
import os
import random
import socket
import sys

_KINDS = (socket.SOCK_SEQPACKET, socket.SOCK_STREAM, socket.SOCK_DGRAM)


def abstract_sockets():
    """The names of this library's sockets in this network."""
    with open("/proc/net/unix") as table:
        names = {line.split()[-1] for line in table if " @" in line}
    return [name for name in names if name.startswith(("@occl-", "@openreg-"))]


def annoy(name, kind, rng, keep):
    """One stranger at one socket; returns whether it got in."""
    stranger = socket.socket(socket.AF_UNIX, kind)
    stranger.settimeout(0.2)
    try:
        stranger.connect("\0" + name[1:])
    except OSError:
        stranger.close()
        return False
    with contextlib.suppress(OSError):
        for _ in range(rng.choice((0, 1, 1, 3))):
            stranger.send(rng.randbytes(rng.choice((1, 3, 8, 64, 200, 1000, 1700, 9000))))
        if rng.random() < 0.3:
            stranger.recv(100)
    if rng.random() < 0.2 and len(keep) < 40:
        keep.append(stranger)  # says nothing more
    else:
        stranger.close()
    return True


def main(seed, end_file):
    """Annoys until the file is there."""
    print("begun", flush=True)
    rng, keep, entered = random.Random(seed), [], 0
    while not os.path.exists(end_file):
        for name in abstract_sockets():
            entered += annoy(name, rng.choice(_KINDS), rng, keep)
        while len(keep) > 30:
            keep.pop(0).close()
    print(entered)


if __name__ == "__main__":
    main(int(sys.argv[1]), sys.argv[2])
