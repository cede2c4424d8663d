// What profilers see. Off (the default) it costs one relaxed load per piece of work.
#ifndef OPENREG_RUNTIME_ACTIVITY_H_
#define OPENREG_RUNTIME_ACTIVITY_H_

#include <atomic>
#include <shared_mutex>

#include "openreg/api/openreg.h"

namespace openreg {

class ActivityLog {
 public:
  bool enabled() const { return callback_.load(std::memory_order_relaxed) != nullptr; }

  // After return no call of the previous callback runs.
  void SetCallback(orActivityCallback callback, void* context) {
    std::unique_lock<std::shared_mutex> lock(mutex_);
    context_ = context;
    callback_.store(callback, std::memory_order_relaxed);
  }

  void Report(const orActivity& activity) {
    std::shared_lock<std::shared_mutex> lock(mutex_);
    orActivityCallback callback = callback_.load(std::memory_order_relaxed);
    if (callback != nullptr) callback(&activity, context_);
  }

 private:
  std::shared_mutex mutex_;
  std::atomic<orActivityCallback> callback_{nullptr};  // written under mutex_
  void* context_ = nullptr;                            // guarded by mutex_
};

}  // namespace openreg
#endif  // OPENREG_RUNTIME_ACTIVITY_H_
