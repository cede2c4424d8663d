// openreg streams as c10::Stream, the current stream of a thread, and holding a stream.
#ifndef PYTHON_CSRC_RUNTIME_STREAM_H_
#define PYTHON_CSRC_RUNTIME_STREAM_H_

#include <c10/core/Stream.h>

#include <cstdint>
#include <vector>

#include "openreg/api/openreg.h"
#include "python/csrc/runtime/status.h"

namespace torch_openreg {

// A stream in both of its forms. A value: streams are never destroyed by this binding (they come
// from a pool, as CUDA's in torch), so copies cost nothing and never dangle. An external stream is
// its maker's to keep alive.
//
// StreamId 0 is the device's default stream; any other id is the stream's number in a table of
// this process, so that an id that was made up is told from a real one.
struct OpenregStream {
  orStream_t handle = nullptr;
  c10::StreamId id = 0;
  c10::DeviceIndex device = 0;

  c10::Stream unwrap() const {
    return c10::Stream(c10::Stream::UNSAFE, c10::Device(c10::DeviceType::PrivateUse1, device), id);
  }
  operator c10::Stream() const { return unwrap(); }
  // The runtime's stream of `stream`. Throws if the device is not openreg's or the id is unknown.
  static OpenregStream from(const c10::Stream& stream);

  bool operator==(const OpenregStream& other) const { return handle == other.handle; }
};

// The calling thread's current stream on `device` (-1: the current device). A few nanoseconds.
// A thread that never set one has the default stream.
OpenregStream current_stream(c10::DeviceIndex device = -1);
// Makes it current on its own device for the calling thread; the current device stays.
void set_current_stream(const OpenregStream& stream);
OpenregStream default_stream(c10::DeviceIndex device = -1);

// Round-robin from a pool of 32 streams per (device, priority), made at first use. Priorities as
// CUDA's (lower runs first), clamped to the runtime's range. Does not block.
OpenregStream stream_from_pool(int priority, c10::DeviceIndex device = -1);
// A stream made elsewhere (ExternalStream). Its maker keeps it alive. Throws for a handle that the
// runtime does not know.
OpenregStream external_stream(orStream_t handle);

// The streams of `device` that torch has met: the default one, the pool's, external ones.
std::vector<OpenregStream> known_streams(c10::DeviceIndex device);

// How long the host waits for a device where it has to (StreamHold),
// TORCH_OPENREG_WAIT_TIMEOUT seconds, default 1800 (torch.distributed's own default).
std::int64_t host_wait_timeout_ms();

namespace detail {
// Waits until the stream is empty, then holds it. Releases the interpreter lock if this thread has
// it, lets Ctrl-C through, throws at the deadline with what the stream is busy with.
void acquire_slow(orStream_t stream, const char* name);
// Throws what asynchronous work left on the stream, if anything, and then gives up the hold.
void raise_failure(orStream_t stream, const char* name);
}  // namespace detail

// Makes this thread the stream's worker for the life of the object: everything queued there before
// has run, and what is queued meanwhile waits. Re-entrant. Tens of nanoseconds when the stream is
// empty; otherwise waits without the interpreter lock under the deadline above. Throws what
// asynchronous work left behind on the stream: what is done in a hold reads what it made.
class StreamHold {
 public:
  // `name` is static storage: what profilers and the deadline's message show.
  StreamHold(const OpenregStream& stream, const char* name) : stream_(stream.handle) {
    const orError_t error = orStreamTryAcquire(stream_, name);
    if (error != orSuccess) [[unlikely]] {
      if (error != orErrorNotReady) {
        throw_error(error, "orStreamTryAcquire");
      }
      detail::acquire_slow(stream_, name);
    }
    if (detail::async_failure_noted.load(std::memory_order_relaxed)) [[unlikely]] {
      detail::raise_failure(stream_, name);
    }
  }
  ~StreamHold() {
    if (stream_ != nullptr) {
      OR_WARN(orStreamRelease(stream_));
    }
  }
  StreamHold(const StreamHold&) = delete;
  StreamHold& operator=(const StreamHold&) = delete;

 private:
  friend class TryStreamHold;
  orStream_t stream_;
};

// As StreamHold, but does not wait: false if the stream was not empty.
class TryStreamHold {
 public:
  TryStreamHold(const OpenregStream& stream, const char* name) {
    const orError_t error = orStreamTryAcquire(stream.handle, name);
    if (error == orSuccess) [[likely]] {
      stream_ = stream.handle;
    } else if (error != orErrorNotReady) {
      throw_error(error, "orStreamTryAcquire");
    }
  }
  ~TryStreamHold() {
    if (stream_ != nullptr) {
      OR_WARN(orStreamRelease(stream_));
    }
  }
  TryStreamHold(const TryStreamHold&) = delete;
  TryStreamHold& operator=(const TryStreamHold&) = delete;
  explicit operator bool() const { return stream_ != nullptr; }

 private:
  orStream_t stream_ = nullptr;
};

// Blocks until what is queued on the stream now has run: without the interpreter lock, Ctrl-C ends
// it. Throws what asynchronous work left behind. Never by itself a deadline: as CUDA's.
void synchronize_stream(const OpenregStream& stream);
// True if the stream is empty. Throws what asynchronous work left behind.
bool query_stream(const OpenregStream& stream);
void synchronize_device(c10::DeviceIndex device);

}  // namespace torch_openreg

#endif  // PYTHON_CSRC_RUNTIME_STREAM_H_
