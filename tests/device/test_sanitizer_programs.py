"""Small programs in one process: wrong ones are found at their two lines, right ones are silent.

They differ from those of test_sanitizer.py in what they go through: views and layouts, operators of
many kinds, copies with pinned memory, memory that is given back, autograd, host threads.
"""

import queue
import threading

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from helpers import gate
from sanitizing import N, check, ones, settled, side
from torch import nn
from torch.utils.checkpoint import checkpoint
from torch_openreg.openreg import sanitizer

WRONG, RIGHT = [], []
sanitized = pytest.fixture(autouse=True)(settled)


def wrong(kind):
    def register(program):
        WRONG.append((kind, program))
        return program

    return register


def right(program):
    RIGHT.append(program)
    return program


# ------------------------------------------------------------------------------ views, operators


@wrong("race")
def slice_inplace_vs_slice_read():
    x, s = ones(), side()
    with torch.openreg.stream(s):
        x[10:20].mul_(3)  # first
    return x[19:30] + 1  # second


@right
def slice_inplace_vs_disjoint_read():
    x, s = ones(), side()
    with torch.openreg.stream(s):
        x[10:20].mul_(3)
    y = x[20:30] + 1
    torch.openreg.current_stream().wait_stream(s)
    return y


@wrong("race")
def as_strided_overlap():
    x, s = ones(), side()
    a = x.as_strided((4, 4), (8, 1))
    b = x.as_strided((4, 4), (8, 1), 3)
    a.zero_()  # first
    with torch.openreg.stream(s):
        b.add_(1)  # second


@right
def as_strided_interleaved():
    x, s = ones(), side()
    a = x.as_strided((4, 4), (8, 1))
    b = x.as_strided((4, 4), (8, 1), 4)
    a.zero_()
    with torch.openreg.stream(s):
        b.add_(1)
    torch.openreg.current_stream().wait_stream(s)


@wrong("race")
def expanded_source_read():
    x, s = ones(1, 16), side()
    e = x.expand(16, 16)
    with torch.openreg.stream(s):
        y = e.sum()  # first
    x.zero_()  # second
    return y


@wrong("race")
def diagonal_vs_row():
    x, s = ones(16, 16), side()
    x.diagonal().fill_(0)  # first
    with torch.openreg.stream(s):
        return x[7] * 2  # second


@right
def diagonal_vs_offdiagonal():
    x, s = ones(16, 16), side()
    x.diagonal().fill_(0)
    with torch.openreg.stream(s):
        y = x.diagonal(1) * 2
    torch.openreg.current_stream().wait_stream(s)
    return y


@wrong("race")
def view_as_real_of_complex():
    x, s = torch.zeros(32, dtype=torch.complex64, device="openreg"), side()
    s.wait_stream(torch.openreg.current_stream())
    torch.view_as_real(x)[:, 1].fill_(1)  # first
    with torch.openreg.stream(s):
        return x[3:4].abs()  # second


@wrong("race")
def real_part_vs_conj():
    x, s = torch.zeros(32, dtype=torch.complex64, device="openreg"), side()
    s.wait_stream(torch.openreg.current_stream())
    x.imag.fill_(1)  # first
    with torch.openreg.stream(s):
        return x.conj() * 2  # second


@right
def real_vs_imag():
    x, s = torch.zeros(32, dtype=torch.complex64, device="openreg"), side()
    s.wait_stream(torch.openreg.current_stream())
    x.imag.fill_(1)
    with torch.openreg.stream(s):
        x.real.fill_(2)
    torch.openreg.current_stream().wait_stream(s)


@wrong("race")
def detached_alias():
    x, s = ones().requires_grad_(), side()
    d = x.detach()
    with torch.openreg.stream(s):
        d.add_(1)  # first
    return x * 2  # second


@wrong("race")
def data_alias():
    p, s = nn.Parameter(ones()), side()
    with torch.openreg.stream(s):
        p.data.add_(1)  # first
    return p.sum()  # second


@wrong("race")
def unflatten_chunk():
    x, s = ones(), side()
    cs = x.chunk(4)
    with torch.openreg.stream(s):
        cs[2].zero_()  # first
    return x[N // 2 + 5].item()  # second


@right
def unflatten_chunk_ok():
    x, s = ones(), side()
    cs = x.chunk(4)
    with torch.openreg.stream(s):
        cs[2].zero_()
    v = x[5].item()
    torch.openreg.current_stream().wait_stream(s)
    return v


@wrong("race")
def matmul_weight_updated():
    w, x, s = ones(16, 16), ones(4, 16), side()
    with torch.openreg.stream(s):
        y = x @ w  # first
    w.sub_(0.1)  # second
    return y


@wrong("race")
def addmm_bias():
    w, x, b, s = ones(16, 16), ones(4, 16), ones(16), side()
    with torch.openreg.stream(s):
        b.zero_()  # first
    return F.linear(x, w, b)  # second


@wrong("race")
def conv_weight():
    w, x, s = ones(2, 1, 3, 3), ones(1, 1, 8, 8), side()
    with torch.openreg.stream(s):
        w.mul_(2)  # first
    return F.conv2d(x, w)  # second


@wrong("race")
def embedding_weight():
    w, i, s = ones(10, 4), torch.tensor([1, 2], device="openreg"), side()
    with torch.openreg.stream(s):
        w.mul_(2)  # first
    return F.embedding(i, w)  # second


@wrong("race")
def index_put_values():
    x, i, v, s = ones(), torch.tensor([1, 2], device="openreg"), ones(2), side()
    s.wait_stream(torch.openreg.current_stream())
    with torch.openreg.stream(s):
        v.zero_()  # first
    x[i] = v  # second


@wrong("race")
def index_put_target():
    x, i, s = ones(), torch.tensor([1, 2], device="openreg"), side()
    s.wait_stream(torch.openreg.current_stream())
    with torch.openreg.stream(s):
        x[i] = 5.0  # first
    return x[0:3].sum()  # second


@wrong("race")
def scatter_target():
    x, i, v, s = ones(), torch.tensor([1, 2], device="openreg"), ones(2), side()
    s.wait_stream(torch.openreg.current_stream())
    with torch.openreg.stream(s):
        x.scatter_(0, i, v)  # first
    return x.sum()  # second


@wrong("race")
def masked_fill_mask():
    x, m, s = ones(), torch.zeros(N, dtype=torch.bool, device="openreg"), side()
    s.wait_stream(torch.openreg.current_stream())
    with torch.openreg.stream(s):
        m.fill_(True)  # first
    x.masked_fill_(m, 0)  # second


@wrong("race")
def where_condition():
    x, m, s = ones(), torch.zeros(N, dtype=torch.bool, device="openreg"), side()
    s.wait_stream(torch.openreg.current_stream())
    with torch.openreg.stream(s):
        y = torch.where(m, x, 0)  # first
    m.logical_not_()  # second
    return y


@wrong("race")
def setitem_slice():
    x, s = ones(), side()
    with torch.openreg.stream(s):
        x[3:9] = 7  # first
    return x.max()  # second


@wrong("race")
def setitem_tensor():
    x, y, s = ones(), ones(6), side()
    with torch.openreg.stream(s):
        x[3:9] = y  # first
    y.zero_()  # second


@wrong("race")
def stack_input():
    x, y, s = ones(), ones(), side()
    with torch.openreg.stream(s):
        z = torch.stack([x, y])  # first
    y.zero_()  # second
    return z


@wrong("race")
def softmax_out():
    x, s = ones(4, 4), side()
    with torch.openreg.stream(s):
        y = x.softmax(-1)  # first
    return y + 1  # second


@wrong("race")
def sort_two_outputs():
    x, s = ones(64), side()
    with torch.openreg.stream(s):
        v, i = x.sort()  # first
    return i + 1  # second


@wrong("race")
def topk_second_output():
    x, s = ones(64), side()
    with torch.openreg.stream(s):
        v, i = x.topk(3)  # first
    return x.gather(0, i)  # second


@wrong("race")
def dropout_random():
    x, s = ones(), side()
    with torch.openreg.stream(s):
        y = F.dropout(x)  # first
    return y.sum()  # second


@wrong("race")
def random_in_place():
    x, s = ones(), side()
    with torch.openreg.stream(s):
        x.normal_()  # first
    return x.clone()  # second


@wrong("race")
def clone_on_side():
    x, s = ones(), side()
    with torch.openreg.stream(s):
        y = x.clone()  # first
    x.add_(1)  # second
    return y


@wrong("race")
def contiguous_copy():
    x, s = ones(8, 8), side()
    with torch.openreg.stream(s):
        y = x.t().contiguous()  # first
    x[3].zero_()  # second
    return y


@wrong("race")
def dtype_cast():
    x, s = ones(), side()
    with torch.openreg.stream(s):
        y = x.half()  # first
    return y * 2  # second


@wrong("race")
def resize_grow_copy():
    x, s = ones(), side()
    with torch.openreg.stream(s):
        x.add_(1)  # first
    x.resize_(4 * N)  # second


@wrong("race")
def foreach_norm_reads():
    xs, s = [ones(), ones()], side()
    with torch.openreg.stream(s):
        n = torch._foreach_norm(xs)  # first
    xs[1].zero_()  # second
    return n


@wrong("race")
def clip_grad():
    p = nn.Parameter(ones())
    p.grad = ones()
    s = side()
    with torch.openreg.stream(s):
        p.grad.mul_(2)  # first
    nn.utils.clip_grad_norm_([p], 1.0)  # second


@wrong("race")
def optimizer_step_on_side():
    p = nn.Parameter(ones())
    p.grad = ones()
    o = torch.optim.SGD([p], lr=0.1)
    s = side()
    with torch.openreg.stream(s):
        o.step()  # first
    return p.sum()  # second


@wrong("race")
def adamw_fused_state():
    p = nn.Parameter(ones())
    p.grad = ones()
    o = torch.optim.AdamW([p], lr=0.1, foreach=True)
    s = side()
    with torch.openreg.stream(s):
        o.step()  # first
    p.grad.zero_()  # second


@wrong("race")
def zero_grad_before_the_step_is_over():
    p = nn.Parameter(ones())
    p.grad = ones()
    o = torch.optim.SGD([p], lr=0.1)
    s = side()
    with torch.openreg.stream(s):
        o.step()  # first
    o.zero_grad(set_to_none=False)  # second


@wrong("race")
def loss_item_wrong_stream():
    x, s = ones(), side()
    with torch.openreg.stream(s):
        total = x.sum()  # first
    return total.item()  # second


@wrong("race")
def cpu_of_a_side_result():
    x, s = ones(), side()
    with torch.openreg.stream(s):
        total = x * 2  # first
    return total.cpu()  # second


@wrong("race")
def print_side_result():
    x, s = ones(4), side()
    with torch.openreg.stream(s):
        total = x * 2  # first
    return str(total)  # second


@wrong("race")
def bool_of_a_side_result():
    x, s = ones(1), side()
    with torch.openreg.stream(s):
        x.zero_()  # first
    if x:  # second
        pass


@right
def two_side_streams_chained():
    x, a, b = ones(), side(), side()
    with torch.openreg.stream(a):
        x.add_(1)
    b.wait_stream(a)
    with torch.openreg.stream(b):
        x.mul_(2)
    torch.openreg.current_stream().wait_stream(b)
    x.sum()


@right
def transitive_three():
    x, a, b, c = ones(), side(), side(), side()
    with torch.openreg.stream(a):
        x.add_(1)
    e = a.record_event()
    b.wait_event(e)
    c.wait_stream(b)
    with torch.openreg.stream(c):
        x.mul_(2)
    c.synchronize()
    x.zero_()


@wrong("race")
def event_reused_too_early():
    x, s, e = ones(), side(), torch.openreg.Event()
    with torch.openreg.stream(s):
        e.record()
        x.add_(1)  # first
    e.wait()
    with torch.openreg.stream(s):
        e.record()
    return x.sum()  # second


@right
def event_reused():
    x, s, e = ones(), side(), torch.openreg.Event()
    for _ in range(3):
        with torch.openreg.stream(s):
            x.add_(1)
            e.record()
        e.wait()
        x.mul_(2)
        e.record()
        s.wait_event(e)
    torch.openreg.current_stream().wait_stream(s)
    x.sum()


@wrong("race")
def event_waited_by_another_stream():
    x, s, t, e = ones(), side(), side(), torch.openreg.Event()
    with torch.openreg.stream(s):
        x.add_(1)  # first
        e.record()
    t.wait_event(e)
    return x.sum()  # second


@wrong("race")
def wait_inside_with():
    x, s = ones(), side()
    with torch.openreg.stream(s):
        x.add_(1)  # first
        torch.openreg.current_stream().wait_stream(s)
    return x.sum()  # second


@wrong("race")
def synchronize_other_device():
    x, s = ones(), side()
    with torch.openreg.stream(s):
        x.add_(1)  # first
    torch.openreg.synchronize("openreg:1")
    return x.sum()  # second


@wrong("race")
def query_that_is_ignored_on_other_event():
    x, s, e = ones(), side(), torch.openreg.Event()
    e.record()
    e.synchronize()
    with torch.openreg.stream(s):
        x.add_(1)  # first
    return x.sum()  # second


@wrong("race")
def elapsed_time_does_not_order():
    x, s = ones(), side()
    a, b = torch.openreg.Event(enable_timing=True), torch.openreg.Event(enable_timing=True)
    a.record()
    b.record()
    b.synchronize()
    with torch.openreg.stream(s):
        x.add_(1)  # first
    a.elapsed_time(b)
    x.zero_()  # second


# ------------------------------------------------------------------------------- host copies
@wrong("race")
def d2h_pinned_slice_numpy():
    x = ones()
    h = torch.zeros(N, pin_memory=True)
    h[:10].copy_(x[:10], non_blocking=True)  # first
    return h[9:12].numpy()  # second


@right
def d2h_pinned_disjoint():
    x = ones()
    h = torch.zeros(N, pin_memory=True)
    h[:10].copy_(x[:10], non_blocking=True)
    h[10:].add_(1)
    torch.openreg.synchronize()
    h.sum()


@wrong("race")
def d2h_array_protocol():
    h = ones().to("cpu", non_blocking=True)  # first
    return np.asarray(h)  # second


@wrong("race")
def d2h_compare():
    h = ones().to("cpu", non_blocking=True)  # first
    return bool((h == 1).all())  # second


@wrong("race")
def d2h_item():
    h = ones(1).to("cpu", non_blocking=True)  # first
    return float(h)  # second


@wrong("race")
def d2h_iter():
    h = ones(3).to("cpu", non_blocking=True)  # first
    return [float(v) for v in h]  # second


@wrong("race")
def d2h_clone():
    h = ones().to("cpu", non_blocking=True)  # first
    return h.clone()  # second


@wrong("race")
def d2h_pageable_from_pinned():
    h = ones().to("cpu", non_blocking=True)  # first
    return torch.zeros(N).copy_(h)  # second


@wrong("race")
def d2h_to_other_dtype():
    h = ones().to("cpu", non_blocking=True)  # first
    return h.double()  # second


@wrong("race")
def d2h_side_stream_wrong_sync():
    x, s = ones(), side()
    with torch.openreg.stream(s):
        h = x.to("cpu", non_blocking=True)  # first
    torch.openreg.current_stream().synchronize()
    return h.sum()  # second


@right
def d2h_side_stream_ok():
    x, s = ones(), side()
    with torch.openreg.stream(s):
        h = x.to("cpu", non_blocking=True)
    s.synchronize()
    return h.sum()


@wrong("race")
def d2h_then_h2d_on_other_stream():
    x, y, s = ones(), ones(), side()
    h = torch.zeros(N, pin_memory=True)
    h.copy_(x, non_blocking=True)  # first
    with torch.openreg.stream(s):
        y.copy_(h, non_blocking=True)  # second


@right
def d2h_then_h2d_same_stream():
    x, y = ones(), ones()
    h = torch.zeros(N, pin_memory=True)
    h.copy_(x, non_blocking=True)
    y.copy_(h, non_blocking=True)
    torch.openreg.synchronize()


@wrong("race")
def h2d_source_refilled():
    h = torch.zeros(N, pin_memory=True)
    s = side()
    with torch.openreg.stream(s):
        x = h.to("openreg", non_blocking=True)  # first
    h.add_(1)  # second
    return x


@wrong("race")
def h2d_result_used_without_wait():
    h = torch.zeros(N, pin_memory=True)
    s = side()
    with torch.openreg.stream(s):
        x = h.to("openreg", non_blocking=True)  # first
    return x * 2  # second


@wrong("race")
def h2d_source_index_put():
    h = torch.zeros(N, pin_memory=True)
    x = h.to("openreg", non_blocking=True)  # first
    h[3] = 5  # second
    return x


@wrong("race")
def h2d_source_random():
    h = torch.zeros(N, pin_memory=True)
    x = h.to("openreg", non_blocking=True)  # first
    h.normal_()  # second
    return x


@wrong("race")
def h2d_source_out():
    h = torch.zeros(N, pin_memory=True)
    x = h.to("openreg", non_blocking=True)  # first
    torch.add(torch.ones(N), 1, out=h)  # second
    return x


@right
def pinned_pipeline_ok():
    bufs = [torch.zeros(N, pin_memory=True) for _ in range(2)]
    evs = [torch.openreg.Event() for _ in range(2)]
    s = side()
    out = []
    for i in range(6):
        b, e = bufs[i % 2], evs[i % 2]
        e.synchronize()
        b.fill_(i)
        with torch.openreg.stream(s):
            x = b.to("openreg", non_blocking=True)
            e.record()
        torch.openreg.current_stream().wait_stream(s)
        x.record_stream(torch.openreg.current_stream())
        out.append(x.sum())
    return [o.item() for o in out]


@right
def blocking_copies():
    x = ones()
    h = torch.zeros(N, pin_memory=True)
    h.copy_(x)
    h.sum()
    x.copy_(h)
    h.zero_()
    x.to("cpu").sum()


@wrong("race")
def blocking_h2d_then_side_use():
    h = torch.zeros(N)
    x = ones()
    s = side()
    with torch.openreg.stream(s):
        y = x * 2  # first
    x.copy_(h)  # second
    return y


# ---------------------------------------------------------------------------------- lifetime
@wrong("reuse")
def local_freed_at_return():
    s = side()

    def f():
        t = ones()
        s.wait_stream(torch.openreg.current_stream())
        with torch.openreg.stream(s):
            return t + 1  # first

    y = f()  # freed
    z = torch.ones(N, device="openreg")  # second
    return y, z


@wrong("reuse")
def rebinding_frees():
    s = side()
    x = ones()
    s.wait_stream(torch.openreg.current_stream())
    with torch.openreg.stream(s):
        y = x + 1  # first
    x = None  # freed
    z = torch.full((N,), 3.0, device="openreg")  # second
    return y, z


@wrong("reuse")
def list_clear_frees():
    s = side()
    xs = [ones()]
    s.wait_stream(torch.openreg.current_stream())
    with torch.openreg.stream(s):
        y = xs[0] + 1  # first
    xs.clear()  # freed
    z = torch.randn(N, device="openreg")  # second
    return y, z


@wrong("reuse")
def side_stream_temp_used_on_main():
    s = side()
    with torch.openreg.stream(s):
        t = ones()
    torch.openreg.current_stream().wait_stream(s)
    y = t * 2  # first
    del t  # freed
    with torch.openreg.stream(s):
        z = torch.ones(N, device="openreg")  # second
    return y, z


@right
def side_stream_temp_recorded():
    s = side()
    with torch.openreg.stream(s):
        t = ones()
    torch.openreg.current_stream().wait_stream(s)
    y = t * 2
    t.record_stream(torch.openreg.current_stream())
    del t
    with torch.openreg.stream(s):
        z = ones()
    s.wait_stream(torch.openreg.current_stream())
    return y, z


@wrong("reuse")
def freed_with_a_view_alive_on_side():
    s = side()
    x = ones()
    v = x[3:]
    s.wait_stream(torch.openreg.current_stream())
    with torch.openreg.stream(s):
        y = v + 1  # first
    del x
    del v  # freed
    z = torch.ones(N, device="openreg")  # second
    return y, z


@wrong("reuse")
def resize_0_then_reuse():
    s = side()
    x = ones()
    s.wait_stream(torch.openreg.current_stream())
    with torch.openreg.stream(s):
        y = x + 1  # first
    x.untyped_storage().resize_(0)  # freed
    z = torch.ones(N, device="openreg")  # second
    return y, z


@right
def resize_0_recorded():
    s = side()
    x = ones()
    s.wait_stream(torch.openreg.current_stream())
    with torch.openreg.stream(s):
        y = x + 1
    x.record_stream(s)
    x.untyped_storage().resize_(0)
    z = ones()
    torch.openreg.current_stream().wait_stream(s)
    return y, z


@wrong("reuse")
def set_replaces_storage():
    s = side()
    x = ones()
    s.wait_stream(torch.openreg.current_stream())
    with torch.openreg.stream(s):
        y = x + 1  # first
    x.data = torch.empty(0, device="openreg")  # freed
    z = torch.ones(N, device="openreg")  # second
    return y, z


@wrong("reuse")
def h2d_on_side_freed():
    s = side()
    h = torch.zeros(N, pin_memory=True)
    with torch.openreg.stream(s):
        x = h.to("openreg", non_blocking=True)
    torch.openreg.current_stream().wait_stream(s)
    y = x.relu()  # first
    del x  # freed
    with torch.openreg.stream(s):
        x = h.to("openreg", non_blocking=True)  # second
    return x, y


@right
def h2d_on_side_freed_ok():
    s = side()
    h = torch.zeros(N, pin_memory=True)
    for _ in range(3):
        with torch.openreg.stream(s):
            x = h.to("openreg", non_blocking=True)
        torch.openreg.current_stream().wait_stream(s)
        x.record_stream(torch.openreg.current_stream())
        y = x.relu()
        del x
    return y


@wrong("out-of-bounds")
def resize_0_use_after():
    x = ones()
    x.untyped_storage().resize_(0)
    return x + 1  # second


@wrong("out-of-bounds")
def resize_0_write_after():
    x = ones()
    x.untyped_storage().resize_(0)
    x.zero_()  # second


@wrong("out-of-bounds")
def resize_0_copy_to_host():
    x = ones()
    x.untyped_storage().resize_(0)
    return x.cpu()  # second


@right
def resize_0_and_back():
    x = ones()
    x.untyped_storage().resize_(0)
    x.untyped_storage().resize_(4 * N)
    x.zero_()
    return x.sum()


@wrong("out-of-bounds")
def set_beyond_storage():
    x = ones(8)
    st = x.untyped_storage()
    v = torch.empty(0, device="openreg").set_(st, 0, (8,))
    st.resize_(16)
    return v.sum()  # second


# ---------------------------------------------------------------------------------- autograd


@right
def forward_on_side_backward_main_sync():
    s = side()
    w = torch.ones(8, 8, device="openreg", requires_grad=True)
    x = ones(8, 8)
    s.wait_stream(torch.openreg.current_stream())
    with torch.openreg.stream(s):
        total = (x @ w).sum()
    torch.openreg.current_stream().wait_stream(s)
    total.backward()
    return w.grad.sum().item()


@wrong("race")
def backward_on_side_grad_read_on_main():
    s = side()
    w = torch.ones(8, 8, device="openreg", requires_grad=True)
    x = ones(8, 8)
    s.wait_stream(torch.openreg.current_stream())
    with torch.openreg.stream(s):
        (x @ w).sum().backward()  # first
    return w.grad.sum()  # second


@right
def backward_on_side_grad_read_ok():
    s = side()
    w = torch.ones(8, 8, device="openreg", requires_grad=True)
    x = ones(8, 8)
    s.wait_stream(torch.openreg.current_stream())
    with torch.openreg.stream(s):
        (x @ w).sum().backward()
    torch.openreg.current_stream().wait_stream(s)
    return w.grad.sum()


@wrong("race")
def weight_updated_between_forward_and_backward_on_side():
    w = torch.ones(8, 8, device="openreg", requires_grad=True)
    x = ones(8, 8).requires_grad_()
    s = side()
    y = (x @ w).sum()
    s.wait_stream(torch.openreg.current_stream())
    with torch.openreg.stream(s):
        w.data.mul_(2)  # first
    y.backward()  # second


@wrong("race")
def hook_on_side_stream():
    s = side()
    w = torch.ones(8, device="openreg", requires_grad=True)

    def hook(g):
        with torch.openreg.stream(s):
            return g * 2  # second

    w.register_hook(hook)
    s.wait_stream(torch.openreg.current_stream())
    (w * 3).sum().backward()  # first


@wrong("race")
def post_accumulate_hook_on_side():
    s = side()
    w = torch.ones(8, device="openreg", requires_grad=True)
    w.grad = ones(8)

    def hook(p):
        s.wait_stream(torch.openreg.current_stream())
        with torch.openreg.stream(s):
            p.grad.mul_(0.5)  # first

    w.register_post_accumulate_grad_hook(hook)
    s.wait_stream(torch.openreg.current_stream())
    (w * 3).sum().backward()
    return w.grad.sum()  # second


@wrong("race")
def checkpoint_recompute():
    s = side()
    w = torch.ones(8, device="openreg", requires_grad=True)

    def f(a):
        return (a * a).relu()  # second

    y = checkpoint(f, w, use_reentrant=False).sum()
    s.wait_stream(torch.openreg.current_stream())
    with torch.openreg.stream(s):
        w.data.add_(1)  # first
    y.backward()


# ----------------------------------------------------------------------------------- threads
@wrong("race")
def worker_thread_result_without_wait():
    x, s = ones(), side()
    q = queue.Queue()

    def work():
        with torch.openreg.stream(s):
            q.put(x * 2)  # first

    t = threading.Thread(target=work)
    t.start()
    t.join()
    return q.get() + 1  # second


@right
def worker_thread_result_with_event():
    x, s = ones(), side()
    q = queue.Queue()

    def work():
        with torch.openreg.stream(s):
            y = x * 2
            q.put((y, s.record_event()))

    t = threading.Thread(target=work)
    t.start()
    t.join()
    y, e = q.get()
    e.wait()
    return y + 1


@wrong("race")
def worker_thread_current_stream_is_its_own():
    x, s = ones(), side()
    q = queue.Queue()

    def work():
        q.put(x * 2)  # first

    t = threading.Thread(target=work)
    t.start()
    t.join()
    with torch.openreg.stream(s):
        return q.get() + 1  # second


@pytest.mark.parametrize(
    ("kind", "program"), WRONG, ids=lambda value: getattr(value, "__name__", value)
)
def test_wrong(kind, program):
    with pytest.raises(sanitizer.SanitizerError) as caught:
        program()
    check(caught.value.report, kind)
    assert sanitizer.reports() == [caught.value.report]


# What is queued uses memory for longer than the program does: that must not hide when it was freed.
@pytest.mark.parametrize(
    "program",
    [program for kind, program in WRONG if kind == "reuse"],
    ids=lambda program: program.__name__,
)
def test_memory_is_freed_where_the_program_says_though_streams_are_busy(program):
    held = gate()
    opener = threading.Timer(0.1, held.open)
    opener.start()
    with pytest.raises(sanitizer.SanitizerError) as caught:
        program()
    opener.join()
    check(caught.value.report, "reuse")


@pytest.mark.parametrize("program", RIGHT, ids=lambda program: program.__name__)
def test_right(program):
    kept = program()
    assert sanitizer.reports() == [], kept
