// Fences, in a form that ThreadSanitizer understands (it does not know atomic_thread_fence).
#ifndef OCCL_BASE_FENCE_H_
#define OCCL_BASE_FENCE_H_

#include <atomic>

namespace occl {

// Orders every earlier store before every later load.
inline void FullFence() {
#if defined(__SANITIZE_THREAD__)
  static std::atomic<int> word{0};
  word.fetch_add(1, std::memory_order_seq_cst);
#else
  std::atomic_thread_fence(std::memory_order_seq_cst);
#endif
}

// Orders every earlier load before every later one.
inline void LoadFence() {
#if defined(__SANITIZE_THREAD__)
  asm volatile("" ::: "memory");  // all that is left of it on x86-64, where ThreadSanitizer runs
#else
  std::atomic_thread_fence(std::memory_order_acquire);
#endif
}

}  // namespace occl

#endif  // OCCL_BASE_FENCE_H_
