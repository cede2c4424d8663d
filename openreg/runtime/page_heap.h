// Which chunks of an arena belong to no segment. First fit by address, so that the arena stays
// dense; chunks that were never used come last.
#ifndef OPENREG_RUNTIME_PAGE_HEAP_H_
#define OPENREG_RUNTIME_PAGE_HEAP_H_

#include <cstddef>
#include <map>
#include <mutex>

namespace openreg {

class PageHeap {
 public:
  explicit PageHeap(size_t size);
  // Whole chunks for `size` bytes. False if no free range is long enough.
  bool Allocate(size_t size, size_t* offset);
  void Free(size_t offset, size_t size);
  size_t LargestFree() const;

 private:
  mutable std::mutex mutex_;
  std::map<size_t, size_t> free_;  // offset -> bytes, whole chunks; guarded by mutex_
};

}  // namespace openreg
#endif  // OPENREG_RUNTIME_PAGE_HEAP_H_
