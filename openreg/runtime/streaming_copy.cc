#include "openreg/runtime/streaming_copy.h"

#include <emmintrin.h>

#include <cstdint>
#include <cstring>

namespace openreg {
namespace {

constexpr size_t kLineBytes = 64;

// From here on the caches do not hold both ranges anyway: behind the second level on Intel, whose
// third is slow, behind the third on AMD (measured).
size_t StreamFromBytes() {
  static const size_t bytes = size_t{__builtin_cpu_is("amd") ? 16u : 4u} << 20;
  return bytes;
}

// `to` is aligned to a line.
void StreamLines(char* to, const char* from, size_t lines) {
  constexpr int kParts = kLineBytes / sizeof(__m128i);
  for (size_t i = 0; i < lines; ++i, to += kLineBytes, from += kLineBytes) {
    __m128i part[kParts];
    for (int p = 0; p < kParts; ++p) {
      part[p] = _mm_loadu_si128(reinterpret_cast<const __m128i*>(from) + p);
    }
    for (int p = 0; p < kParts; ++p) {
      _mm_stream_si128(reinterpret_cast<__m128i*>(to) + p, part[p]);
    }
  }
  _mm_sfence();
}

}  // namespace

void CopyBytes(void* to, const void* from, size_t size) {
  if (size < StreamFromBytes()) {
    std::memcpy(to, from, size);
    return;
  }
  auto* target = static_cast<char*>(to);
  const auto* source = static_cast<const char*>(from);
  const size_t head = -reinterpret_cast<uintptr_t>(target) % kLineBytes;
  const size_t lines = (size - head) / kLineBytes;
  const size_t body = head + lines * kLineBytes;
  std::memcpy(target, source, head);
  StreamLines(target + head, source + head, lines);
  std::memcpy(target + body, source + body, size - body);
}

}  // namespace openreg
