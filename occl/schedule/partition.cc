#include "occl/schedule/partition.h"

#include <algorithm>

namespace occl::schedule {

Range ShareOf(uint64_t count, uint32_t element_bytes, int nranks, int rank) {
  const uint64_t per_line = kLineBytes / element_bytes;
  const uint64_t lines = count / per_line + (count % per_line != 0 ? 1 : 0);
  const uint64_t n = static_cast<uint64_t>(nranks), r = static_cast<uint64_t>(rank);
  // The first lines % n ranks have one line more.
  const uint64_t each = lines / n, more = lines % n;
  const uint64_t first = each * r + std::min(r, more);
  const uint64_t last = first + each + (r < more ? 1 : 0);
  const uint64_t begin = std::min(first * per_line, count);
  return {begin, std::min(last * per_line, count) - begin};
}

uint64_t BlockElements(uint32_t element_bytes, int nranks) {
  constexpr uint64_t kCacheBytes = 512 * 1024;  // half of it: the other half is for what comes next
  constexpr uint64_t kMinBytes = 16 * 1024, kMaxBytes = 128 * 1024;
  const uint64_t bytes = kCacheBytes / (static_cast<uint64_t>(nranks) + 1);
  const uint64_t whole_lines = std::clamp(bytes, kMinBytes, kMaxBytes) / kLineBytes * kLineBytes;
  return whole_lines / element_bytes;
}

}  // namespace occl::schedule
