#include "python/csrc/c10d/watcher.h"

#include <c10/util/StringUtil.h>
#include <c10/util/thread_name.h>

#include <exception>
#include <utility>

#include "python/csrc/c10d/work.h"
#include "python/csrc/runtime/log.h"

namespace torch_openreg {

using Clock = std::chrono::steady_clock;

void Watcher::watch(c10::intrusive_ptr<WorkOCCL> work, Callback callback) {
  const std::lock_guard<std::mutex> lock(mutex_);
  if (stopping_) {
    return;
  }
  items_.push_back({std::move(work), std::move(callback)});
  if (!thread_.joinable()) {
    thread_ = std::thread([this] { run(); });
  }
  changed_.notify_all();
}

bool Watcher::drain(Clock::time_point deadline) {
  const GilReleaseIfHeld no_gil;
  for (;;) {
    {
      std::unique_lock<std::mutex> lock(mutex_);
      const auto slice = std::min(deadline, Clock::now() + kSignalInterval);
      if (changed_.wait_until(lock, slice,
                              [this] { return stopping_ || (items_.empty() && !busy_); })) {
        return true;
      }
    }
    if (Clock::now() >= deadline) {
      return false;
    }
    check_signals();
  }
}

void Watcher::stop() {
  const GilReleaseIfHeld no_gil;
  std::thread thread;
  std::deque<Item> dropped;
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    stopping_ = true;
    dropped.swap(items_);
    thread.swap(thread_);
    changed_.notify_all();
  }
  if (!thread.joinable()) {
    return;
  }
  if (thread.get_id() == std::this_thread::get_id()) {
    thread.detach();  // a callback dropped the last reference to the group
  } else {
    thread.join();
  }
}

void Watcher::run() {
  c10::setThreadName("occl_watcher");
  std::unique_lock<std::mutex> lock(mutex_);
  for (;;) {
    changed_.wait(lock, [this] { return stopping_ || !items_.empty(); });
    if (stopping_) {
      return;
    }
    Item item = std::move(items_.front());
    items_.pop_front();
    busy_ = true;
    lock.unlock();
    bool ended = false;
    while (!ended) {
      ended = item.work->wait_on_host(Clock::now() + kSignalInterval);
      lock.lock();
      const bool stopping = stopping_;
      lock.unlock();
      if (stopping) {
        return;
      }
    }
    call(std::move(item));
    lock.lock();
    busy_ = false;
    changed_.notify_all();
  }
}

void Watcher::call(Item item) {
  try {
    item.callback(*item.work);
  } catch (const std::exception& error) {
    log_line(Severity::kWarning, -1,
             c10::str("a completion callback of an OCCL operation threw: ", error.what()));
  }
}

}  // namespace torch_openreg
