"""A program ends while a thread of it waits for other ranks: it is neither held up nor crashed."""

import subprocess
import sys
import textwrap

_DEADLINE_S = 120


def test_in_a_groups_first_use():
    program = """
        import threading
        import torch, torch_openreg
        import torch.distributed as dist

        dist.init_process_group("occl", store=dist.HashStore(), rank=0, world_size=2)
        ones = torch.ones(2, device="openreg")
        threading.Thread(target=dist.all_reduce, args=(ones,), daemon=True).start()
        dist.group.WORLD.get_group_store().wait(["openreg//occl/wait_of_rank_0"])
        raise RuntimeError("the program's own")
    """
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(program)],
        stderr=subprocess.PIPE,
        timeout=_DEADLINE_S,
        check=False,
        text=True,
    )
    assert "the program's own" in done.stderr, done.stderr
    assert done.returncode == 1, f"{done.returncode}: {done.stderr}"
