#include "python/csrc/runtime/host_memory.h"

#include <chrono>
#include <cstring>
#include <memory>
#include <mutex>

#include "python/csrc/runtime/device.h"
#include "python/csrc/runtime/event.h"
#include "python/csrc/runtime/status.h"
#include "python/csrc/runtime/stream.h"
#include "python/csrc/sanitizer/order.h"

namespace torch_openreg {
namespace {

// torch's caching host allocator over orHostAlloc; what follows is all it asks of a device.
struct OpenregHostAllocatorImpl : public at::CachingHostAllocatorImpl<c10::Stream, OpenregEvent> {
  void copy_data(void* to, const void* from, std::size_t count) const override {
    std::memcpy(to, from, count);
  }

 private:
  void allocate_host_memory(std::size_t size, void** ptr) override {
    ensure_initialized();
    const auto start = std::chrono::steady_clock::now();
    OR_CHECK(orHostAlloc(ptr, size));
    note_time(&stats_.host_alloc_time, start);
  }

  void free_block(at::HostBlock<c10::Stream>* block) override {
    if (!in_bad_fork()) {
      const auto start = std::chrono::steady_clock::now();
      OR_WARN(orHostFree(block->ptr_));
      note_time(&stats_.host_free_time, start);
    }
  }

  void note_time(c10::CachingAllocator::DurationStat* stat,
                 std::chrono::steady_clock::time_point start) {
    const auto taken = std::chrono::steady_clock::now() - start;
    const std::lock_guard<std::mutex> lock(stats_.timing_mutex_);
    stat->increase(std::chrono::duration_cast<std::chrono::microseconds>(taken).count());
  }

  void record_stream(std::optional<std::vector<OpenregEvent>>& events,
                     c10::Stream stream) override {
    const OpenregStream on = OpenregStream::from(stream);
    OpenregEvent event(on.device, orEventDisableTiming);
    event.record(on);
    events->push_back(std::move(event));
  }

  bool query_event(OpenregEvent& event) override { return event.query(); }

  c10::Stream get_current_stream() const override { return torch_openreg::current_stream(); }

  bool stream_is_capturing(c10::Stream /*stream*/) const override { return false; }
};

void free_host_block(void* block);

struct OpenregHostAllocator final
    : public at::CachingHostAllocatorInterface<OpenregHostAllocatorImpl, free_host_block> {};

OpenregHostAllocator& instance() {
  static auto* allocator = new OpenregHostAllocator;
  return *allocator;
}

void free_host_block(void* block) {
  // In a forked child the copies that the parent queued are not this process's: only drop it.
  if (!in_bad_fork()) {
    if (const auto* known = static_cast<at::HostBlock<c10::Stream>*>(block)) {
      sanitizer::host_memory_freed(known->ptr_, known->size_);
    }
    instance().free(block);
  }
}

}  // namespace

at::HostAllocator* host_allocator() { return &instance(); }

bool is_pinned_ptr(const void* ptr) {
  if (ptr == nullptr || !is_initialized()) {
    return false;
  }
  orPointerAttributes attributes;
  return orPointerGetAttributes(&attributes, ptr) == orSuccess &&
         attributes.type == orMemoryTypeHost;
}

}  // namespace torch_openreg
