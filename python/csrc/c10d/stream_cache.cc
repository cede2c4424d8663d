#include "python/csrc/c10d/stream_cache.h"

#include <map>
#include <mutex>
#include <utility>
#include <vector>

#include "python/csrc/c10d/event_pool.h"

namespace torch_openreg {
namespace {

struct Cache {
  std::mutex mutex;
  std::map<std::pair<c10::DeviceIndex, bool>, std::vector<OpenregStream>> unused;
};

// Leaked: groups may be destroyed by the interpreter's exit, after static destructors.
Cache& cache() {
  static auto* const instance = new Cache;
  return *instance;
}

OpenregStream make_stream(c10::DeviceIndex device, bool high_priority) {
  int least = 0;
  int greatest = 0;
  OR_CHECK(orDeviceGetStreamPriorityRange(&least, &greatest));
  int current = 0;
  OR_CHECK(orGetDevice(&current));
  OR_CHECK(orSetDevice(device));
  orStream_t handle = nullptr;
  const orError_t made = orStreamCreateWithPriority(&handle, high_priority ? greatest : least);
  OR_WARN(orSetDevice(current));
  OR_CHECK(made);
  return external_stream(handle);
}

}  // namespace

OpenregStream take_stream(c10::DeviceIndex device, bool high_priority) {
  {
    const std::lock_guard<std::mutex> lock(cache().mutex);
    std::vector<OpenregStream>& unused = cache().unused[{device, high_priority}];
    for (std::size_t i = unused.size(); i-- > 0;) {
      if (is_busy(unused[i])) {
        continue;
      }
      const OpenregStream found = unused[i];
      unused.erase(unused.begin() + static_cast<std::ptrdiff_t>(i));
      return found;
    }
  }
  return make_stream(device, high_priority);
}

void give_stream_back(const OpenregStream& stream, bool high_priority) {
  const std::lock_guard<std::mutex> lock(cache().mutex);
  cache().unused[{stream.device, high_priority}].push_back(stream);
}

}  // namespace torch_openreg
