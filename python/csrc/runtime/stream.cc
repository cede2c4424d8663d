#include "python/csrc/runtime/stream.h"

#include <algorithm>
#include <array>
#include <atomic>
#include <cstdlib>
#include <map>
#include <memory>
#include <mutex>
#include <vector>

#include "python/csrc/runtime/blocking.h"
#include "python/csrc/runtime/deferred.h"
#include "python/csrc/runtime/device.h"
#include "python/csrc/sanitizer/order.h"

namespace torch_openreg {
namespace {

constexpr int kPoolSize = 32;

struct Row {
  orStream_t handle = nullptr;
  c10::DeviceIndex device = 0;
};

// Every stream that torch has seen, by StreamId - 1. Rows are written once, under the mutex, before
// their number is handed out, and never change: readers need no lock. Chunks keep rows in place.
class StreamTable {
 public:
  static constexpr std::size_t kChunkRows = 256;
  static constexpr std::size_t kMaxChunks = 1024;

  // nullptr for an id that was never given out.
  const Row* find(c10::StreamId id) const {
    const auto index = static_cast<std::uint64_t>(id - 1);
    if (index >= count_.load(std::memory_order_acquire)) {
      return nullptr;
    }
    return &chunks_[index / kChunkRows].load(std::memory_order_relaxed)[index % kChunkRows];
  }

  c10::StreamId add(orStream_t handle, c10::DeviceIndex device) {
    std::lock_guard<std::mutex> lock(mutex_);
    const std::size_t index = count_.load(std::memory_order_relaxed);
    TORCH_CHECK(index < kChunkRows * kMaxChunks, "openreg: too many streams (", index, ")");
    std::atomic<Row*>& chunk = chunks_[index / kChunkRows];
    if (index % kChunkRows == 0) {
      chunk.store(new Row[kChunkRows], std::memory_order_relaxed);
    }
    chunk.load(std::memory_order_relaxed)[index % kChunkRows] = {handle, device};
    count_.store(index + 1, std::memory_order_release);
    return static_cast<c10::StreamId>(index + 1);
  }

 private:
  std::mutex mutex_;
  std::atomic<std::size_t> count_{0};
  std::array<std::atomic<Row*>, kMaxChunks> chunks_{};
};

// Streams of one device and priority, made when their turn comes.
struct Pool {
  std::array<OpenregStream, kPoolSize> streams;
  std::size_t next = 0;
};

struct Streams {
  StreamTable table;
  std::array<std::atomic<orStream_t>, kMaxDevices> defaults{};
  std::mutex mutex;
  // Guarded by mutex. Keys: (device, priority); (handle, device) of external streams.
  std::map<std::pair<int, int>, Pool> pools;
  std::map<std::pair<orStream_t, int>, c10::StreamId> externals;
};

// Never destroyed: worker threads may outlive static destructors.
Streams& streams() {
  static auto* instance = new Streams;
  return *instance;
}

// The thread's current streams; a null handle stands for the device's default stream.
struct Current {
  orStream_t handle;
  c10::StreamId id;
};
thread_local std::array<Current, kMaxDevices> current_streams{};

[[gnu::noinline]] orStream_t default_handle_slow(c10::DeviceIndex device) {
  ensure_initialized();
  orStream_t handle = nullptr;
  OR_CHECK(orDeviceGetDefaultStream(&handle, resolve_device(device)));
  streams().defaults[static_cast<std::size_t>(device)].store(handle, std::memory_order_release);
  return handle;
}

orStream_t default_handle(c10::DeviceIndex device) {
  static Streams& all = streams();
  if (static_cast<std::size_t>(device) < kMaxDevices) [[likely]] {
    orStream_t handle =
        all.defaults[static_cast<std::size_t>(device)].load(std::memory_order_acquire);
    if (handle != nullptr) [[likely]] {
      return handle;
    }
  }
  return default_handle_slow(resolve_device(device));
}

}  // namespace

OpenregStream OpenregStream::from(const c10::Stream& stream) {
  TORCH_CHECK(stream.device_type() == c10::DeviceType::PrivateUse1,
              "expected a stream of openreg, got one of ", stream.device());
  const c10::DeviceIndex device = stream.device_index();
  if (stream.id() == 0) {
    return {default_handle(device), 0, device};
  }
  const Row* row = streams().table.find(stream.id());
  TORCH_CHECK(row != nullptr && row->device == device, "openreg:", static_cast<int>(device),
              " has no stream with the id ", stream.id(),
              row == nullptr
                  ? ": no stream has it"
                  : c10::str(": it is a stream of openreg:", static_cast<int>(row->device)));
  return {row->handle, stream.id(), device};
}

OpenregStream current_stream(c10::DeviceIndex device) {
  if (device == -1) {
    device = current_device();
  }
  if (static_cast<std::size_t>(device) < kMaxDevices) [[likely]] {
    const Current& current = current_streams[static_cast<std::size_t>(device)];
    if (current.handle != nullptr) {
      return {current.handle, current.id, device};
    }
  }
  return {default_handle(device), 0, device};
}

void set_current_stream(const OpenregStream& stream) {
  Current& current = current_streams[static_cast<std::size_t>(stream.device)];
  current = stream.id == 0 ? Current{} : Current{stream.handle, stream.id};
}

OpenregStream default_stream(c10::DeviceIndex device) {
  device = resolve_device(device);
  return {default_handle(device), 0, device};
}

OpenregStream stream_from_pool(int priority, c10::DeviceIndex device) {
  ensure_initialized();
  device = resolve_device(device);
  static const std::pair<int, int> range = [] {
    int least = 0;
    int greatest = 0;
    OR_CHECK(orDeviceGetStreamPriorityRange(&least, &greatest));
    return std::pair(std::min(least, greatest), std::max(least, greatest));
  }();
  priority = std::clamp(priority, range.first, range.second);

  Streams& all = streams();
  std::lock_guard<std::mutex> lock(all.mutex);
  Pool& pool = all.pools[{device, priority}];
  OpenregStream& slot = pool.streams[pool.next];
  if (slot.handle == nullptr) {
    const DeviceScope scope(device);
    orStream_t handle = nullptr;
    OR_CHECK(orStreamCreateWithPriority(&handle, priority));
    slot = {handle, all.table.add(handle, device), device};
  }
  pool.next = (pool.next + 1) % kPoolSize;
  return slot;
}

OpenregStream external_stream(orStream_t handle) {
  ensure_initialized();
  int device = 0;
  OR_CHECK(orStreamGetDevice(handle, &device));
  const auto index = static_cast<c10::DeviceIndex>(device);
  if (handle == default_handle(index)) {
    return {handle, 0, index};
  }
  Streams& all = streams();
  std::lock_guard<std::mutex> lock(all.mutex);
  c10::StreamId& id = all.externals[{handle, device}];
  if (id == 0) {
    id = all.table.add(handle, index);
  }
  return {handle, id, index};
}

std::vector<OpenregStream> known_streams(c10::DeviceIndex device) {
  std::vector<OpenregStream> known{default_stream(device)};
  Streams& all = streams();
  std::lock_guard<std::mutex> lock(all.mutex);
  for (const auto& [key, pool] : all.pools) {
    for (const OpenregStream& stream : pool.streams) {
      if (stream.handle != nullptr && stream.device == device) {
        known.push_back(stream);
      }
    }
  }
  for (const auto& [key, id] : all.externals) {
    if (key.second == device) {
      known.push_back({key.first, id, device});
    }
  }
  return known;
}

std::int64_t host_wait_timeout_ms() {
  static const std::int64_t timeout_ms = [] {
    const char* text = std::getenv("TORCH_OPENREG_WAIT_TIMEOUT");
    if (text == nullptr || *text == '\0') {
      return std::int64_t{1800} * 1000;
    }
    char* end = nullptr;
    const double seconds = std::strtod(text, &end);
    TORCH_CHECK(*end == '\0' && seconds > 0 && seconds < 1e9,
                "TORCH_OPENREG_WAIT_TIMEOUT: expected a positive number of seconds, got '", text,
                "'");
    return std::max<std::int64_t>(1, static_cast<std::int64_t>(seconds * 1000));
  }();
  return timeout_ms;
}

namespace detail {

void acquire_slow(orStream_t stream, const char* name) {
  ensure_initialized();
  const std::int64_t timeout_ms = host_wait_timeout_ms();
  const orError_t error = wait_without_gil(
      timeout_ms, [&](std::int64_t slice_ms) { return orStreamAcquire(stream, name, slice_ms); });
  if (error == orErrorTimeout) {
    const std::string detail = orGetLastErrorMessage();
    throw c10::AcceleratorError(
        {__func__, __FILE__, static_cast<uint32_t>(__LINE__)}, static_cast<int32_t>(error),
        c10::str("openreg error: ", name, " waited ", timeout_ms / 1000.0,
                 " s for its stream to become empty (TORCH_OPENREG_WAIT_TIMEOUT): ", detail));
  }
  if (error != orSuccess) {
    throw_error(error, "orStreamAcquire");
  }
}

void raise_failure(orStream_t stream, const char* name) {
  const orError_t error = orStreamQuery(stream);
  if (error == orSuccess || error == orErrorNotReady) {
    settle_async_failures(stream);
    return;
  }
  try {
    throw_unless_forgotten(error, name, {.stream = stream});
  } catch (...) {
    OR_WARN(orStreamRelease(stream));
    throw;
  }
}

}  // namespace detail

void synchronize_stream(const OpenregStream& stream) {
  const orError_t error = wait_without_gil(-1, [&](std::int64_t slice_ms) {
    return orStreamSynchronizeTimeout(stream.handle, slice_ms);
  });
  sanitizer::host_saw_stream(stream);
  reap_finished();
  if (error != orSuccess) {
    throw_unless_forgotten(error, "orStreamSynchronize", {.stream = stream.handle});
  }
}

bool query_stream(const OpenregStream& stream) {
  while (true) {
    const orError_t error = orStreamQuery(stream.handle);
    if (error == orSuccess || error == orErrorNotReady) {
      return error == orSuccess;
    }
    // What it reports is no answer to whether the stream is empty.
    throw_unless_forgotten(error, "orStreamQuery", {.stream = stream.handle});
  }
}

void synchronize_device(c10::DeviceIndex device) {
  ensure_initialized();
  device = resolve_device(device);
  const orError_t error = wait_without_gil(
      -1, [&](std::int64_t slice_ms) { return orDeviceSynchronizeTimeout(device, slice_ms); });
  sanitizer::host_saw_device(device);
  reap_finished();
  if (error != orSuccess) {
    throw_unless_forgotten(error, "orDeviceSynchronize", {.device = device});
  }
}

}  // namespace torch_openreg
