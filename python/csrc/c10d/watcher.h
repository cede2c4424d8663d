// A thread that waits for operations on behalf of those who want to be called when they end.
#ifndef PYTHON_CSRC_C10D_WATCHER_H_
#define PYTHON_CSRC_C10D_WATCHER_H_

#include <c10/util/intrusive_ptr.h>

#include <chrono>
#include <condition_variable>
#include <deque>
#include <functional>
#include <mutex>
#include <thread>

namespace torch_openreg {

class WorkOCCL;

// Callbacks may take the interpreter lock, so they do not run on a stream's worker. They run in the
// order in which operations were issued. The thread starts with the first call of watch(), so a
// group that nobody watches has none. Thread-safe.
class Watcher {
 public:
  using Callback = std::function<void(WorkOCCL&)>;

  Watcher() = default;
  ~Watcher() { stop(); }
  Watcher(const Watcher&) = delete;
  Watcher& operator=(const Watcher&) = delete;

  // Calls `callback` once `work` has ended. An exception of it is warned about and goes no further.
  void watch(c10::intrusive_ptr<WorkOCCL> work, Callback callback);
  // Blocks, without the interpreter lock, until all callbacks have run, at most until `deadline`.
  // Ctrl-C ends it.
  bool drain(std::chrono::steady_clock::time_point deadline);
  // Calls no more callbacks, and ends the thread (unless it is the caller).
  void stop();

 private:
  struct Item {
    c10::intrusive_ptr<WorkOCCL> work;
    Callback callback;
  };
  void run();
  void call(Item item);

  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<Item> items_;
  bool busy_ = false;
  bool stopping_ = false;
  std::thread thread_;
};

}  // namespace torch_openreg

#endif  // PYTHON_CSRC_C10D_WATCHER_H_
