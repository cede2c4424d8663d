#include "occl/reduce/copy.h"

#include <immintrin.h>

#include <cstdint>
#include <cstring>

#include "occl/reduce/reduce.h"

namespace occl::reduce {
namespace {

constexpr size_t kLineBytes = 64;

// Both: dst is aligned to a line, `lines` whole lines are copied.
void StreamSse2(char* dst, const char* src, size_t lines) {
  for (size_t i = 0; i < lines; ++i, dst += kLineBytes, src += kLineBytes) {
    __m128i part[4];
    for (int p = 0; p < 4; ++p) {
      part[p] = _mm_loadu_si128(reinterpret_cast<const __m128i*>(src) + p);
    }
    for (int p = 0; p < 4; ++p) _mm_stream_si128(reinterpret_cast<__m128i*>(dst) + p, part[p]);
  }
}

__attribute__((target("avx512f"))) void StreamAvx512(char* dst, const char* src, size_t lines) {
  for (size_t i = 0; i < lines; ++i, dst += kLineBytes, src += kLineBytes) {
    _mm512_stream_si512(reinterpret_cast<__m512i*>(dst), _mm512_loadu_si512(src));
  }
}

void Stream(char* dst, const char* src, size_t bytes) {
  const size_t head = -reinterpret_cast<uintptr_t>(dst) % kLineBytes;
  if (bytes < head + kLineBytes) {
    std::memcpy(dst, src, bytes);
    return;
  }
  std::memcpy(dst, src, head);
  const size_t lines = (bytes - head) / kLineBytes;
  const auto stream = BestCpuPath() >= CpuPath::kAvx512 ? StreamAvx512 : StreamSse2;
  stream(dst + head, src + head, lines);
  const size_t done = head + lines * kLineBytes;
  std::memcpy(dst + done, src + done, bytes - done);
  _mm_sfence();
}

}  // namespace

size_t StreamFromBytes() {
  static const size_t bytes = size_t{__builtin_cpu_is("amd") ? 16u : 4u} << 20;
  return bytes;
}

void Copy(void* dst, const void* src, size_t bytes, CopyMode mode) {
  if (bytes == 0) return;
  const bool streams =
      mode == CopyMode::kStream || (mode == CopyMode::kAuto && bytes >= StreamFromBytes());
  if (streams) {
    Stream(static_cast<char*>(dst), static_cast<const char*>(src), bytes);
  } else {
    std::memcpy(dst, src, bytes);
  }
}

}  // namespace occl::reduce
