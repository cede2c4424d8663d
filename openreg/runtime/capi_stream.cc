// Streams and events.
#include <utility>

#include "openreg/runtime/capi_error.h"
#include "openreg/runtime/faults.h"

using openreg::current_device;
using openreg::Deadline;
using openreg::Device;
using openreg::Enter;
using openreg::Event;
using openreg::Faults;
using openreg::Runtime;
using openreg::Status;
using openreg::Stream;
using openreg::Work;

namespace {

// Runs body(Stream*) with the stream of a handle.
template <class F>
orError_t WithStream(orStream_t handle, F&& body) {
  return Enter([&](Runtime& runtime) -> Status {
    Stream* stream;
    OPENREG_RETURN_IF_ERROR(runtime.GetStream(handle, current_device, &stream));
    return body(stream);
  });
}

template <class F>
orError_t WithEvent(orEvent_t handle, F&& body) {
  return Enter([&](Runtime& runtime) -> Status {
    Event* event;
    OPENREG_RETURN_IF_ERROR(runtime.GetEvent(handle, &event));
    return body(event);
  });
}

Status NoFunction() { return openreg::InvalidValue("the function to run is NULL"); }

}  // namespace

extern "C" {

orError_t orStreamCreate(orStream_t* stream) { return orStreamCreateWithPriority(stream, 0); }

orError_t orStreamCreateWithPriority(orStream_t* stream, int priority) {
  return Enter([&](Runtime& runtime) -> Status {
    OPENREG_CHECK_OUT(stream);
    return runtime.CreateStream(current_device, priority, stream);
  });
}

orError_t orStreamDestroy(orStream_t stream) {
  return Enter([&](Runtime& runtime) { return runtime.DestroyStream(stream); });
}

orError_t orDeviceGetDefaultStream(orStream_t* stream, int device) {
  return Enter([&](Runtime& runtime) -> Status {
    OPENREG_CHECK_OUT(stream);
    Device* found;
    OPENREG_RETURN_IF_ERROR(runtime.GetDevice(device, &found));
    *stream = found->default_stream->handle();
    return Status();
  });
}

orError_t orStreamGetDevice(orStream_t handle, int* device) {
  return WithStream(handle, [&](Stream* stream) -> Status {
    OPENREG_CHECK_OUT(device);
    *device = stream->device();
    return Status();
  });
}

orError_t orStreamGetPriority(orStream_t handle, int* priority) {
  return WithStream(handle, [&](Stream* stream) -> Status {
    OPENREG_CHECK_OUT(priority);
    *priority = stream->priority();
    return Status();
  });
}

orError_t orStreamGetId(orStream_t handle, uint64_t* id) {
  return WithStream(handle, [&](Stream* stream) -> Status {
    OPENREG_CHECK_OUT(id);
    *id = stream->id();
    return Status();
  });
}

orError_t orStreamQuery(orStream_t handle) {
  return WithStream(handle, [](Stream* stream) -> Status {
    OPENREG_RETURN_IF_ERROR(stream->TakeError());
    return stream->Idle() ? Status() : Status::NotReady();
  });
}

orError_t orStreamSynchronize(orStream_t stream) { return orStreamSynchronizeTimeout(stream, -1); }

orError_t orStreamSynchronizeTimeout(orStream_t handle, int64_t timeout_ms) {
  return WithStream(handle, [&](Stream* stream) -> Status {
    const uint64_t issued = stream->issued();
    if (!stream->Passed(issued)) {
      OPENREG_RETURN_IF_ERROR(
          stream->WaitFor(issued, Deadline::AfterMs(timeout_ms), "stream synchronise"));
    }
    return stream->TakeError();
  });
}

orError_t orStreamWaitEvent(orStream_t handle, orEvent_t event_handle) {
  return Enter([&](Runtime& runtime) -> Status {
    Stream* stream;
    Event* event;
    OPENREG_RETURN_IF_ERROR(runtime.GetStream(handle, current_device, &stream));
    OPENREG_RETURN_IF_ERROR(runtime.GetEvent(event_handle, &event));
    return event->QueueWait(stream);
  });
}

orError_t orLaunchKernel(const char* name, orKernelFn fn, void* arg, orStream_t handle) {
  return WithStream(handle, [&](Stream* stream) {
    if (fn == nullptr) return NoFunction();
    Faults::BeforeLaunch(stream);
    return stream->RunOrQueue(Work::Kernel(name, fn, arg));
  });
}

orError_t orLaunchKernelQueued(const char* name, orKernelFn fn, void* arg, orStream_t handle) {
  return WithStream(handle, [&](Stream* stream) {
    if (fn == nullptr) return NoFunction();
    Faults::BeforeLaunch(stream);
    return stream->Queue(Work::Kernel(name, fn, arg));
  });
}

orError_t orLaunchHostFunc(orStream_t handle, orHostFn fn, void* arg) {
  return WithStream(handle, [&](Stream* stream) {
    if (fn == nullptr) return NoFunction();
    Faults::BeforeLaunch(stream);
    return stream->Queue(Work::HostFunction(fn, arg));
  });
}

orError_t orStreamAcquire(orStream_t handle, const char* name, int64_t timeout_ms) {
  return WithStream(handle, [&](Stream* stream) {
    Faults::BeforeLaunch(stream);
    return stream->Acquire(name, Deadline::AfterMs(timeout_ms));
  });
}

orError_t orStreamTryAcquire(orStream_t handle, const char* name) {
  return WithStream(handle, [&](Stream* stream) {
    Faults::BeforeLaunch(stream);
    return stream->TryAcquire(name) ? Status() : Status::NotReady();
  });
}

orError_t orStreamRelease(orStream_t handle) {
  return WithStream(handle, [](Stream* stream) { return stream->ReleaseHold(); });
}

orError_t orStreamReleaseTo(orStream_t handle, const char* name, orKernelFn fn, void* arg) {
  return WithStream(handle, [&](Stream* stream) {
    if (fn == nullptr) return NoFunction();
    return stream->ReleaseTo(Work::Kernel(name, fn, arg));
  });
}

orError_t orStreamSetActivity(orStream_t handle, orActivityKind kind, const char* name,
                              size_t bytes) {
  return WithStream(handle, [&](Stream* stream) { return stream->SetActivity(kind, name, bytes); });
}

orError_t orEventCreate(orEvent_t* event) { return orEventCreateWithFlags(event, orEventDefault); }

orError_t orEventCreateWithFlags(orEvent_t* event, unsigned flags) {
  return Enter([&](Runtime& runtime) -> Status {
    OPENREG_CHECK_OUT(event);
    return runtime.CreateEvent(current_device, flags, event);
  });
}

orError_t orEventDestroy(orEvent_t event) {
  return Enter([&](Runtime& runtime) { return runtime.DestroyEvent(event); });
}

orError_t orEventRecord(orEvent_t event_handle, orStream_t handle) {
  return Enter([&](Runtime& runtime) -> Status {
    Stream* stream;
    Event* event;
    OPENREG_RETURN_IF_ERROR(runtime.GetStream(handle, current_device, &stream));
    OPENREG_RETURN_IF_ERROR(runtime.GetEvent(event_handle, &event));
    return event->Record(stream);
  });
}

orError_t orEventQuery(orEvent_t event) {
  return WithEvent(event, [](Event* found) { return found->Query(); });
}

orError_t orEventSynchronize(orEvent_t event) { return orEventSynchronizeTimeout(event, -1); }

orError_t orEventSynchronizeTimeout(orEvent_t event, int64_t timeout_ms) {
  return WithEvent(event,
                   [&](Event* found) { return found->Synchronize(Deadline::AfterMs(timeout_ms)); });
}

orError_t orEventElapsedTime(float* ms, orEvent_t start, orEvent_t end) {
  return Enter([&](Runtime& runtime) -> Status {
    OPENREG_CHECK_OUT(ms);
    Event *first, *second;
    OPENREG_RETURN_IF_ERROR(runtime.GetEvent(start, &first));
    OPENREG_RETURN_IF_ERROR(runtime.GetEvent(end, &second));
    return Event::ElapsedTime(ms, first, second);
  });
}

orError_t orEventGetDevice(orEvent_t event, int* device) {
  return WithEvent(event, [&](Event* found) -> Status {
    OPENREG_CHECK_OUT(device);
    *device = found->device();
    return Status();
  });
}

}  // extern "C"
