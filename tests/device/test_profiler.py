import json

import torch
import torch_openreg  # noqa: F401
from helpers import gate
from torch.profiler import ProfilerActivity, profile


def _trace(tmp_path, prof):
    path = tmp_path / "trace.json"
    prof.export_chrome_trace(str(path))
    return json.loads(path.read_text())["traceEvents"]


def _work():
    a = torch.randn(64, 64, device="openreg")
    b = (a @ a).relu()
    stream = torch.openreg.Stream()
    stream.wait_stream(torch.openreg.current_stream())
    with torch.openreg.stream(stream):
        c = torch.empty_like(b)
        c.copy_(b)
    stream.synchronize()
    host = torch.ones(1 << 12).pin_memory()
    d = torch.empty(1 << 12, device="openreg")
    d.copy_(host, non_blocking=True)
    d.untyped_storage().resize_(1 << 16)  # a plain copy of bytes
    torch.openreg.synchronize()
    return stream


def test_the_devices_track_is_in_the_trace(tmp_path):
    _work()
    with profile(activities=[ProfilerActivity.CPU, ProfilerActivity.PrivateUse1]) as prof:
        stream = _work()
    events = _trace(tmp_path, prof)
    device = [
        event for event in events if event.get("cat") in ("kernel", "gpu_memcpy", "gpu_memset")
    ]
    assert device, "no work of the device in the trace"
    tracks = {event["args"]["stream"] for event in device}
    assert len(tracks) >= 2, tracks
    assert any(event["cat"] == "gpu_memcpy" and event["args"].get("bytes") for event in device)
    names = {
        event["args"]["name"]
        for event in events
        if event.get("ph") == "M" and event["name"] in ("process_name", "thread_name")
    }
    assert "openreg:0" in names
    assert any(name.startswith("stream ") for name in names)
    spans = [event for event in events if event.get("ph") == "X" and "aten::" in event["name"]]
    first = min(event["ts"] for event in spans)
    last = max(event["ts"] + event["dur"] for event in spans)
    margin_us = 1e6
    for event in device:
        assert first - margin_us <= event["ts"] <= last + margin_us, "another clock"
        assert event["dur"] >= 0
    assert stream.device_index == 0


def test_copies_are_shown_as_transfers(tmp_path):
    pinned, pageable = torch.ones(1000).pin_memory(), torch.ones(500)
    large = torch.ones(1 << 19).pin_memory()
    a, b = torch.ones(1000, device="openreg"), torch.ones(1000, device="openreg:1")
    big = torch.zeros(1 << 19, device="openreg")
    with profile(activities=[ProfilerActivity.CPU, ProfilerActivity.PrivateUse1]) as prof:
        a.copy_(pinned)
        a[:500].copy_(pageable)
        pinned.copy_(a)
        pageable.copy_(a[:500])
        a.clone()
        b.copy_(a)
        big.copy_(large, non_blocking=True)
        held = gate()
        a.copy_(pinned, non_blocking=True)  # queued
        held.open()
        a.copy_(torch.ones(1000, device="openreg", dtype=torch.float64))  # converted by a kernel
        torch.openreg.synchronize()
    events = _trace(tmp_path, prof)
    copies = [(e["name"], e["args"]["bytes"]) for e in events if e.get("cat") == "gpu_memcpy"]
    assert sorted(copies) == sorted(
        [
            ("Memcpy HtoD (Pinned -> Device)", 4000),
            ("Memcpy HtoD (Pageable -> Device)", 2000),
            ("Memcpy DtoH (Device -> Pinned)", 4000),
            ("Memcpy DtoH (Device -> Pageable)", 2000),
            ("Memcpy DtoD (Device -> Device)", 4000),
            ("Memcpy PtoP (Device -> Device)", 4000),
            ("Memcpy HtoD (Pinned -> Device)", 1 << 21),
            ("Memcpy HtoD (Pinned -> Device)", 4000),
        ]
    )
    kernels = [event["name"] for event in events if event.get("cat") == "kernel"]
    assert kernels.count("aten::copy_") == 1


def test_queued_work_is_on_its_streams_track(tmp_path):
    with profile(activities=[ProfilerActivity.PrivateUse1, ProfilerActivity.CPU]) as prof:
        held = gate()
        held.open()
        torch.openreg.synchronize()
    assert any(event.get("name") == "gate" for event in _trace(tmp_path, prof))


def test_key_averages_have_device_times():
    with profile(activities=[ProfilerActivity.CPU, ProfilerActivity.PrivateUse1]) as prof:
        _work()
    averages = prof.key_averages()
    assert any(event.device_type == torch.autograd.DeviceType.PrivateUse1 for event in averages)
    assert "aten::mm" in averages.table(sort_by="cpu_time_total")


def test_memory_is_profiled():
    with profile(
        activities=[ProfilerActivity.CPU, ProfilerActivity.PrivateUse1], profile_memory=True
    ) as prof:
        tensor = torch.empty(1 << 20, dtype=torch.uint8, device="openreg")
        del tensor
    sizes = [event.self_device_memory_usage for event in prof.key_averages()]
    assert any(size != 0 for size in sizes)


def test_profiling_twice_and_not_at_all():
    for _ in range(2):
        with profile(activities=[ProfilerActivity.PrivateUse1, ProfilerActivity.CPU]) as prof:
            torch.ones(3, device="openreg").add_(1)
        assert len(prof.events()) > 0
    assert torch.ones(3, device="openreg").add_(1).tolist() == [2, 2, 2]


def test_supported_activities_and_names():
    assert ProfilerActivity.PrivateUse1 in torch.profiler.supported_activities()
    assert ProfilerActivity.PrivateUse1 == ProfilerActivity.OPENREG


def test_the_older_profiler_times_the_device_by_events(capfd):
    a = torch.randn(64, 64, device="openreg")
    with torch.autograd.profiler.profile(use_device="openreg") as prof:
        b = a @ a
        b.cpu()
    assert "Exception" not in capfd.readouterr().err
    times = {event.key: event for event in prof.key_averages()}
    assert times["aten::mm"].device_time_total > 0
    assert times["aten::mm"].count == 1
