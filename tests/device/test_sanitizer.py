"""The sanitizer in one process: wrong programs are found at their two lines, right ones are silent.

sanitizing.py says what the comments in wrong programs mark.
"""

import gc
import io
import linecache
import threading

import pytest
import torch
from helpers import run_python
from sanitizing import N, check, is_marked, ones, settled, side
from torch import nn
from torch.openreg import sanitizer

sanitized = pytest.fixture(autouse=True)(settled)


# ------------------------------------------------------------------------------- wrong programs


def write_then_read():
    x, s = ones(), side()
    x.add_(1)  # first
    with torch.openreg.stream(s):
        x * 2  # second


def read_then_write():
    x, s = ones(), side()
    y = x * 2  # first
    with torch.openreg.stream(s):
        x.zero_()  # second
    return y


def write_then_write():
    x, s = ones(), side()
    with torch.openreg.stream(s):
        x.fill_(2)  # first
    x.fill_(3)  # second


def result_of_a_side_stream():
    x, s = ones(), side()
    with torch.openreg.stream(s):
        y = x * 2  # first
    y.sum()  # second


def out_on_a_side_stream():
    x, s = ones(), side()
    out = torch.empty_like(x)
    s.wait_stream(torch.openreg.current_stream())
    with torch.openreg.stream(s):
        torch.mul(x, 2, out=out)  # first
    out + 1  # second


def views_of_one_storage():
    x, s = ones(), side()
    a, b = x[:200], x.view(4, 64)[3]
    a.mul_(2)  # first
    with torch.openreg.stream(s):
        b.mul_(2)  # second


def a_view_of_another_dtype():
    x, s = ones(), side()
    x.view(torch.int32)[10].fill_(1)  # first
    with torch.openreg.stream(s):
        x[10:11].sum()  # second


def columns_that_overlap():
    x, s = ones(16, 16), side()
    x[:, :9].zero_()  # first
    with torch.openreg.stream(s):
        x[:, 8:].zero_()  # second


def a_transposed_matrix():
    x, s = ones(16, 16), side()
    x.t()[3].zero_()  # first
    with torch.openreg.stream(s):
        x[5].sum()  # second


def foreach_writes_to_its_first_list():
    xs, ys, s = [ones(), ones()], [ones(), ones()], side()
    torch._foreach_add_(xs, ys)  # first
    with torch.openreg.stream(s):
        xs[1].sum()  # second


def foreach_copies():
    xs, ys, s = [ones(), ones()], [ones(), ones()], side()
    with torch.openreg.stream(s):
        torch._foreach_copy_(xs, ys)  # first
    ys[0].zero_()  # second


def running_statistics_of_a_batch_norm():
    norm, s = nn.BatchNorm1d(8).to("openreg"), side()
    x = ones(4, 8)
    s.wait_stream(torch.openreg.current_stream())
    with torch.openreg.stream(s):
        y = norm(x)  # first
    return norm.running_mean + 1, y  # second


def a_result_that_was_resized():
    x, s, out = ones(), side(), torch.empty(0, device="openreg")
    with torch.openreg.stream(s):
        torch.mul(x, 2, out=out)  # first
    return out + 1  # second


def a_range():
    with torch.openreg.stream(side()):
        x = torch.arange(5, device="openreg")  # first
    return x + 1  # second


def concatenation():
    x, y, s = ones(), ones(), side()
    torch.cat([x, y])  # first
    with torch.openreg.stream(s):
        y.zero_()  # second


def an_index_is_read():
    x, i, s = ones(), torch.zeros(3, dtype=torch.long, device="openreg"), side()
    with torch.openreg.stream(s):
        x[i]  # first
    i.add_(1)  # second


def a_copy_within_the_device():
    x, y, s = ones(), ones(), side()
    with torch.openreg.stream(s):
        x.copy_(y)  # first
    x.add_(1)  # second


def a_copy_between_devices():
    x, s = ones(), side()
    with torch.openreg.stream(s):
        x.add_(1)  # first
    x.to("openreg:1")  # second


def an_event_before_the_work():
    x, s, e = ones(), side(), torch.openreg.Event()
    with torch.openreg.stream(s):
        e.record()
        x.add_(1)  # first
    e.wait()
    x.sum()  # second


def the_wrong_event():
    x, s, right, wrong = ones(), side(), torch.openreg.Event(), torch.openreg.Event()
    wrong.record()
    with torch.openreg.stream(s):
        x.add_(1)  # first
        right.record()
    torch.openreg.current_stream().wait_event(wrong)
    x.sum()  # second


def an_event_that_was_never_recorded():
    x, s = ones(), side()
    with torch.openreg.stream(s):
        x.add_(1)  # first
    torch.openreg.Event().wait()
    x.sum()  # second


def a_wait_in_the_wrong_direction():
    x, s = ones(), side()
    with torch.openreg.stream(s):
        x.add_(1)  # first
    s.wait_stream(torch.openreg.current_stream())
    x.sum()  # second


def a_synchronise_of_another_stream():
    x, s = ones(), side()
    with torch.openreg.stream(s):
        x.add_(1)  # first
    torch.openreg.default_stream().synchronize()
    x.sum()  # second


def two_threads_with_streams_of_their_own():
    x, s = ones(), side()
    errors = []

    def work(stream, code):
        try:
            with torch.openreg.stream(stream):
                code(x)
        except Exception as error:
            errors.append(error)

    def one(x):
        x.add_(1)  # first

    def other(x):
        x.mul_(2)  # second

    for stream, code in ((s, one), (side(), other)):
        thread = threading.Thread(target=work, args=(stream, code))
        thread.start()
        thread.join()
    if errors:
        raise errors[0]


def a_pinned_result_read_too_early():
    x = ones()
    host = torch.empty(N, pin_memory=True)
    host.copy_(x, non_blocking=True)  # first
    host.sum()  # second


def a_pinned_result_read_through_a_view():
    host = ones().to("cpu", non_blocking=True)  # first
    host[3].item()  # second


def a_pinned_result_as_numpy():
    host = ones().to("cpu", non_blocking=True)  # first
    host.numpy()  # second


def a_pinned_result_as_a_list():
    host = ones().to("cpu", non_blocking=True)  # first
    host.tolist()  # second


def a_pinned_result_printed():
    host = ones().to("cpu", non_blocking=True)  # first
    str(host)  # second


def a_pinned_result_saved():
    host = ones().to("cpu", non_blocking=True)  # first
    torch.save(host, io.BytesIO())  # second


def a_pinned_source_overwritten():
    host = torch.ones(N, pin_memory=True)
    x = torch.empty(N, device="openreg")
    x.copy_(host, non_blocking=True)  # first
    host.zero_()  # second


def a_pinned_source_overwritten_in_part():
    host = torch.ones(N, pin_memory=True)
    x = host[:100].to("openreg", non_blocking=True)  # first
    host[100:].zero_()
    host[99:].zero_()  # second
    return x


def an_event_before_the_copy():
    x, e = ones(), torch.openreg.Event()
    e.record()
    host = x.to("cpu", non_blocking=True)  # first
    e.synchronize()
    host.sum()  # second


def freed_under_a_side_stream():
    x, s = ones(), side()
    with torch.openreg.stream(s):
        y = x * 2  # first
    del x  # freed
    z = torch.zeros(N, device="openreg")  # second
    return y, z


def freed_under_the_main_stream():
    s = side()
    with torch.openreg.stream(s):
        x = ones()
    torch.openreg.current_stream().wait_stream(s)
    y = x * 2  # first
    del x  # freed
    with torch.openreg.stream(s):
        z = torch.zeros(N, device="openreg")  # second
    return y, z


def freed_and_used_for_a_result():
    x, s, other = ones(), side(), ones()
    with torch.openreg.stream(s):
        y = x * 2  # first
    del x  # freed
    z = other + other  # second
    return y, z


def recorded_on_another_stream():
    x, s = ones(), side()
    with torch.openreg.stream(s):
        y = x * 2  # first
    x.record_stream(side())
    del x  # freed
    z = torch.zeros(N, device="openreg")  # second
    return y, z


def a_storage_that_was_given_up():
    x = ones()
    view = x[N // 2 :]
    x.untyped_storage().resize_(0)
    view.add_(1)  # second


def a_storage_that_became_smaller():
    x = ones()
    x.untyped_storage().resize_(2 * N)
    x.sum()  # second


def a_raw_pointer_after_its_free():
    pointer = torch.openreg.caching_allocator_alloc(4 * N)
    storage = torch._C._construct_storage_from_data_pointer(
        pointer, torch.device("openreg", 0), 4 * N
    )
    x = torch.empty(0, device="openreg").set_(storage, 0, (N,))
    torch.openreg.caching_allocator_delete(pointer)  # freed
    x.zero_()  # second


WRONG = {
    "race": [
        write_then_read,
        read_then_write,
        write_then_write,
        result_of_a_side_stream,
        out_on_a_side_stream,
        views_of_one_storage,
        a_view_of_another_dtype,
        columns_that_overlap,
        a_transposed_matrix,
        foreach_writes_to_its_first_list,
        foreach_copies,
        running_statistics_of_a_batch_norm,
        a_result_that_was_resized,
        a_range,
        concatenation,
        an_index_is_read,
        a_copy_within_the_device,
        a_copy_between_devices,
        an_event_before_the_work,
        the_wrong_event,
        an_event_that_was_never_recorded,
        a_wait_in_the_wrong_direction,
        a_synchronise_of_another_stream,
        two_threads_with_streams_of_their_own,
        a_pinned_result_read_too_early,
        a_pinned_result_read_through_a_view,
        a_pinned_result_as_numpy,
        a_pinned_result_as_a_list,
        a_pinned_result_printed,
        a_pinned_result_saved,
        a_pinned_source_overwritten,
        a_pinned_source_overwritten_in_part,
        an_event_before_the_copy,
    ],
    "reuse": [
        freed_under_a_side_stream,
        freed_under_the_main_stream,
        freed_and_used_for_a_result,
        recorded_on_another_stream,
    ],
    "out-of-bounds": [a_storage_that_was_given_up, a_storage_that_became_smaller],
    "use-after-free": [a_raw_pointer_after_its_free],
}


@pytest.mark.parametrize(
    ("kind", "program"),
    [(kind, program) for kind, programs in WRONG.items() for program in programs],
    ids=lambda value: getattr(value, "__name__", value),
)
def test_wrong(kind, program):
    with pytest.raises(sanitizer.SanitizerError) as caught:
        program()
    check(caught.value.report, kind)
    assert sanitizer.reports() == [caught.value.report]


# ------------------------------------------------------------------------------- right programs


def waits():
    x, s = ones(), side()
    with torch.openreg.stream(s):
        x.add_(1)
    torch.openreg.current_stream().wait_stream(s)
    x.add_(1)
    e = torch.openreg.Event()
    e.record()
    s.wait_event(e)
    with torch.openreg.stream(s):
        x.add_(1)
        e.record()
    e.wait()
    x.add_(1)


def host_synchronises():
    x = ones()
    for synchronise in (
        lambda s: s.synchronize(),
        lambda s: torch.openreg.synchronize(),
        lambda s: s.record_event().synchronize(),
        lambda s: x.cpu(),
        lambda s: x[0].item(),
        lambda s: x.nonzero(),
    ):
        s = side()
        with torch.openreg.stream(s):
            x.add_(1)
            synchronise(s)
        x.add_(1)


def polling():
    x, s = ones(), side()
    with torch.openreg.stream(s):
        x.add_(1)
        e = s.record_event()
    while not e.query():
        pass
    x.add_(1)
    with torch.openreg.stream(s):
        s.wait_stream(torch.openreg.default_stream())
        x.add_(1)
    while not s.query():
        pass
    x.add_(1)


def both_read():
    x, s = ones(), side()
    with torch.openreg.stream(s):
        y = x * 2
    z = x * 3
    torch.openreg.current_stream().wait_stream(s)
    return y, z


def disjoint_parts():
    x, m, s = ones(), ones(16, 16), side()
    s.wait_stream(torch.openreg.current_stream())
    with torch.openreg.stream(s):
        x[: N // 2].zero_()
        m[:, :8].zero_()
        m[::2, 8:].zero_()
    x[N // 2 :].zero_()
    m[1::2, 8:].zero_()
    torch.openreg.current_stream().wait_stream(s)


def memory_goes_back_in_order():
    s = side()
    for _ in range(3):
        x = ones()
        s.wait_stream(torch.openreg.current_stream())
        with torch.openreg.stream(s):
            y = x * 2
        x.record_stream(s)
        del x
        torch.zeros(N, device="openreg")
        torch.openreg.current_stream().wait_stream(s)
        z = y + 1
        y.record_stream(torch.openreg.current_stream())
        del y
    return z


def a_wait_after_the_free_in_time():
    x, s = ones(), side()
    with torch.openreg.stream(s):
        y = x * 2
    del x
    torch.openreg.current_stream().wait_stream(s)
    return torch.zeros(N, device="openreg"), y


def pinned_memory_with_synchronisation():
    x = ones()
    host = x.to("cpu", non_blocking=True)
    torch.openreg.current_stream().synchronize()
    host.sum(), host.numpy(), host.tolist()
    e = torch.openreg.Event()
    for step in range(3):
        host.fill_(step)
        x.copy_(host, non_blocking=True)
        e.record()
        e.synchronize()


def pinned_memory_is_used_again():
    for step in range(10):
        batch = torch.full((N,), float(step)).pin_memory()
        x = batch.to("openreg", non_blocking=True)
        del batch
        x.add_(1)


def pageable_memory():
    for step in range(3):
        host = torch.full((N,), float(step))
        x = host.to("openreg", non_blocking=True)
        host.zero_()
        y = torch.empty(N)
        y.copy_(x, non_blocking=True)
        y.sum()


def a_prefetcher():
    s = torch.openreg.Stream()
    model = nn.Linear(8, 8).to("openreg")
    ahead = None
    for step in range(5):
        batch = torch.full((4, 8), float(step)).pin_memory()
        with torch.openreg.stream(s):
            copied = batch.to("openreg", non_blocking=True)
        if ahead is not None:
            model(ahead).sum().backward()
        torch.openreg.current_stream().wait_stream(s)
        copied.record_stream(torch.openreg.current_stream())
        ahead = copied


def two_streams_evaluate_one_batch_norm():
    norm, x, s = nn.BatchNorm1d(8).to("openreg").eval(), ones(4, 8), side()
    s.wait_stream(torch.openreg.current_stream())
    with torch.openreg.stream(s):
        y = norm(x)
    norm(x)
    torch.openreg.current_stream().wait_stream(s)
    return y


def training():
    torch.manual_seed(0)
    model = nn.Sequential(
        nn.Conv2d(1, 2, 3),
        nn.BatchNorm2d(2),
        nn.ReLU(),
        nn.Flatten(),
        nn.Dropout(),
        nn.Linear(72, 4),
    ).to("openreg")
    for make in (torch.optim.SGD, torch.optim.AdamW):
        optimizer = make(model.parameters(), lr=0.1)
        for _ in range(3):
            optimizer.zero_grad()
            loss = nn.functional.cross_entropy(
                model(torch.randn(4, 1, 8, 8, device="openreg")),
                torch.tensor([0, 1, 2, 3], device="openreg"),
            )
            loss.backward()
            nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()


def backward_of_a_side_stream():
    s = torch.openreg.Stream()
    weight = torch.ones(8, 8, device="openreg", requires_grad=True)
    for _ in range(3):
        x = torch.randn(8, 8, device="openreg")
        s.wait_stream(torch.openreg.current_stream())
        with torch.openreg.stream(s):
            x.record_stream(s)
            y = (x @ weight).relu()
        torch.openreg.current_stream().wait_stream(s)
        y.record_stream(torch.openreg.current_stream())
        (y * weight).sum().backward()
        with torch.no_grad():
            weight -= 0.1 * weight.grad
        weight.grad = None


def growing_storages():
    x = ones()
    x.resize_(4 * N).zero_()
    out = torch.empty(0, device="openreg")
    torch.add(x, 1, out=out)
    out.sum()


def operators_that_fail():
    x, s = ones(), side()
    with torch.openreg.stream(s):
        for fails in (lambda: x @ x.view(1, -1), lambda: x + x[:3], lambda: x.copy_(x[:3])):
            with pytest.raises(RuntimeError):
                fails()
    x.add_(1)


RIGHT = [
    waits,
    host_synchronises,
    polling,
    both_read,
    disjoint_parts,
    memory_goes_back_in_order,
    a_wait_after_the_free_in_time,
    pinned_memory_with_synchronisation,
    pinned_memory_is_used_again,
    pageable_memory,
    a_prefetcher,
    two_streams_evaluate_one_batch_norm,
    training,
    backward_of_a_side_stream,
    growing_storages,
    operators_that_fail,
]


@pytest.mark.parametrize("program", RIGHT, ids=lambda program: program.__name__)
def test_right(program):
    program()
    gc.collect()
    torch.zeros(N, device="openreg")
    assert sanitizer.reports() == []


# ----------------------------------------------------------------------------------- the module


def test_a_race_in_the_backward_names_the_forward_and_the_call():
    x, s = torch.ones(N, device="openreg", requires_grad=True), side()
    scale = ones()
    y = x * scale  # forward
    s.wait_stream(torch.openreg.current_stream())
    with torch.openreg.stream(s):
        scale.data.zero_()  # first
    with pytest.raises(sanitizer.SanitizerError) as caught:
        y.sum().backward()  # second
    report = caught.value.report
    check(report, "race")
    assert report.second.place.node == "MulBackward0"
    assert "# forward" in linecache.getline(*report.second.place.forward)


def test_each_pair_of_places_is_reported_once():
    def program():
        x, s = ones(), side()
        with torch.openreg.stream(s):
            x.add_(1)
        x.add_(1)
        torch.openreg.current_stream().wait_stream(s)

    sanitizer.enable("log")
    program()
    program()
    assert len(sanitizer.reports()) == 1
    sanitizer.clear()
    program()
    assert len(sanitizer.reports()) == 1


def test_one_missing_wait_is_one_report_whatever_follows_from_it():
    sanitizer.enable("log")
    x, y, s = ones(), ones(), side()
    with torch.openreg.stream(s):
        x.add_(1)
        y.add_(1)  # first
    z = y + x  # second
    x.zero_()
    del y
    torch.zeros(N, device="openreg")
    (report,) = sanitizer.reports()
    assert is_marked(report.second.place, "second"), z


@pytest.mark.parametrize("mode", ["raise", "log"])
def test_a_tensor_without_memory_is_refused_each_time(mode):
    sanitizer.enable(mode)
    x = ones()
    x.untyped_storage().resize_(0)
    for _ in range(2):
        with pytest.raises(sanitizer.SanitizerError) as caught:
            x.add_(1)
        assert caught.value.report.kind == "out-of-bounds"
    assert len(sanitizer.reports()) == 1


def test_log_mode_logs_and_goes_on(caplog):
    sanitizer.enable("log")
    write_then_read()
    assert "race (write/read)" in caplog.text
    assert [report.kind for report in sanitizer.reports()] == ["race"]


def test_a_report_says_what_it_knows():
    with pytest.raises(sanitizer.SanitizerError) as caught:
        views_of_one_storage()
    first, second = caught.value.report.first, caught.value.report.second
    assert (first.operator, first.shape, first.dtype, first.writes) == (
        "aten::mul_",
        (200,),
        "float32",
        True,
    )
    assert first.high - first.low == 800 and second.high - second.low == 256
    assert second.low - first.low == 4 * 192
    assert first.stream == "on the default stream of openreg:0"
    assert second.stream.startswith("on stream ")
    assert first.place.function == "views_of_one_storage"
    for text in (
        "aten::mul_",
        f"{first.low:#x}",
        f"{second.high:#x}",
        "float32[200]",
        "float32[64]",
    ):
        assert text in str(caught.value)


def test_a_fault_of_the_host_is_raised_at_its_line():
    host = torch.zeros(N, pin_memory=True)
    statements = {
        "host[3] = 5": "aten::copy_",
        "host + 1": "aten::add",
        "host == 1": "aten::eq",
        "1 - host": "aten::rsub",
        "-host": "aten::neg",
    }
    for statement, operator in statements.items():
        x = ones()
        host.copy_(x, non_blocking=True)
        code = f"try:\n    {statement}\nexcept Fault as error:\n    found.append(error.report)\n"
        found = []
        exec(code, {"host": host, "Fault": sanitizer.SanitizerError, "found": found})
        assert [report.second.operator for report in found] == [operator], statement
        torch.openreg.synchronize()


def test_what_was_refused_has_not_run():
    x, y, s = ones(), ones(), side()
    x.add_(1)
    with torch.openreg.stream(s), pytest.raises(sanitizer.SanitizerError):
        torch.add(y, x, out=y)
    sanitizer.clear()
    y.sum()
    assert sanitizer.reports() == []


def test_a_tensor_is_no_sequence():
    scalar = torch.tensor(2.0)
    assert torch.FloatTensor([scalar, 3.0]).tolist() == [2.0, 3.0]
    assert torch.tensor([scalar, 3.0]).tolist() == [2.0, 3.0]
    assert range(3)[torch.tensor(1)] == 1


def test_switching():
    assert sanitizer.is_enabled()
    sanitizer.disable()
    assert not sanitizer.is_enabled()
    write_then_read()
    assert sanitizer.reports() == []
    with pytest.raises(ValueError, match="expected a mode"):
        sanitizer.enable("sometimes")


@pytest.mark.parametrize(("value", "expected"), [("1", "True"), ("log", "True"), ("0", "False")])
def test_the_environment_switches(value, expected):
    done = run_python(
        "import torch, torch_openreg; print(torch.openreg.sanitizer.is_enabled())",
        env={"OPENREG_SANITIZER": value},
    )
    assert done.stdout.strip() == expected


def test_the_environment_is_checked():
    done = run_python(
        "import torch_openreg",
        env={"OPENREG_SANITIZER": "perhaps", "TORCH_DEVICE_BACKEND_AUTOLOAD": "0"},
        check=False,
    )
    assert done.returncode != 0 and "OPENREG_SANITIZER: expected" in done.stderr
