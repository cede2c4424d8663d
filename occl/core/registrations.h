// The registrations a caller holds. All that registering does is done at once: what is left is the
// handle, so that a wrong one is told apart.
#ifndef OCCL_CORE_REGISTRATIONS_H_
#define OCCL_CORE_REGISTRATIONS_H_

#include <cstdint>
#include <mutex>
#include <set>

namespace occl {

class Registrations {
 public:
  void* Add() {
    std::lock_guard<std::mutex> lock(mutex_);
    live_.insert(++last_);
    return reinterpret_cast<void*>(last_);
  }
  bool Remove(void* handle) {
    std::lock_guard<std::mutex> lock(mutex_);
    return live_.erase(reinterpret_cast<uintptr_t>(handle)) == 1;
  }

 private:
  std::mutex mutex_;
  std::set<uintptr_t> live_;  // guarded by mutex_
  uintptr_t last_ = 0;        // guarded by mutex_
};

}  // namespace occl

#endif  // OCCL_CORE_REGISTRATIONS_H_
