// Sleeping on a 32-bit word, in this process's memory or in a segment shared with others.
#ifndef OCCL_BASE_FUTEX_H_
#define OCCL_BASE_FUTEX_H_

#include <atomic>
#include <cstdint>

namespace occl {

static_assert(std::atomic<uint32_t>::is_always_lock_free);

// Sleeps while *word == expected, at most timeout_ns; may return early for no reason.
void FutexWait(std::atomic<uint32_t>* word, uint32_t expected, int64_t timeout_ns);
void FutexWakeAll(std::atomic<uint32_t>* word);

// A pause of the processor between two looks at a word that another core will write.
inline void CpuPause() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  asm volatile("isb" ::: "memory");
#endif
}

}  // namespace occl

#endif  // OCCL_BASE_FUTEX_H_
