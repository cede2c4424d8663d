#include "openreg/runtime/worker.h"

#include <errno.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <utility>

#include "openreg/runtime/config.h"
#include "openreg/runtime/stream.h"

namespace openreg {

WorkerGroup::WorkerGroup(std::function<void(Stream*)> recycle)
    : recycle_(std::move(recycle)), cpu_count_(CpuCount()) {}

Status WorkerGroup::StartWorker(Stream* stream, pthread_t* thread) {
  std::lock_guard<std::mutex> lock(mutex_);
  int error = StartThread(thread, Stream::WorkerMain, stream);
  if (error != 0) return SystemError("pthread_create for a stream's worker", error);
  running_.push_back(stream);
  return Status();
}

void WorkerGroup::Ended(Stream* stream) {
  {
    std::lock_guard<std::mutex> lock(mutex_);
    auto it = std::find(running_.begin(), running_.end(), stream);
    if (it == running_.end()) return;  // StopAll joins it
    running_.erase(it);
    ended_.push_back(pthread_self());
  }
  if (stream->retired_.load(std::memory_order_acquire)) recycle_(stream);
}

void WorkerGroup::Reap() {
  std::vector<pthread_t> ended;
  {
    std::lock_guard<std::mutex> lock(mutex_);
    ended.swap(ended_);
  }
  for (pthread_t thread : ended) pthread_join(thread, nullptr);
}

void WorkerGroup::StopAll(Deadline deadline) {
  std::vector<pthread_t> threads;
  {
    std::lock_guard<std::mutex> lock(mutex_);
    stopping_.store(true, std::memory_order_release);
    for (Stream* stream : running_) {
      threads.push_back(stream->worker_);
      stream->SignalWorker();
    }
    running_.clear();
    threads.insert(threads.end(), ended_.begin(), ended_.end());
    ended_.clear();
  }
  for (pthread_t thread : threads) JoinOrDetach(thread, deadline);
}

// ---------------------------------------------------------------------------- Stream's side

void* Stream::WorkerMain(void* self) {
  Stream* stream = static_cast<Stream*>(self);
  // Also when the thread is ended from inside (an interpreter that finalises does that).
  struct End {
    Stream* stream;
    ~End() {
      WorkerGroup* group = stream->group_;
      group->Awake(-1);
      {
        std::lock_guard<FutexLock> guard(stream->queue_lock_);
        stream->worker_started_ = false;
      }
      group->Ended(stream);
    }
  } end{stream};
  stream->group_->Awake(1);
  std::string name = Format("openreg-%d-%llu", stream->device_ % 100,
                            static_cast<unsigned long long>(stream->id() % 100000));
  pthread_setname_np(pthread_self(), name.c_str());
  if (stream->priority_ < 0) {
    // Needs a privilege; without it all streams are equal.
    setpriority(PRIO_PROCESS, static_cast<id_t>(syscall(SYS_gettid)), -5);
  }
  stream->WorkerLoop();
  return nullptr;
}

void Stream::WorkerLoop() {
  while (true) {
    uint32_t seen = work_signal_.load(std::memory_order_seq_cst);
    if (group_->stopping()) return;
    Work work;
    uint64_t sequence;
    if (TakeRunnable(&work, &sequence)) {
      RunAs(work, sequence, Runner::kWorker);
      continue;
    }
    if (WorkerMayEnd()) return;
    WaitForWork(seen);
  }
}

bool Stream::WorkerMayEnd() {
  if (!retired_.load(std::memory_order_seq_cst)) return false;
  std::lock_guard<FutexLock> guard(queue_lock_);
  // seq_cst: pairs with Complete, which stores completed_ and then reads retired_.
  uint64_t done = completed_.load(std::memory_order_seq_cst);
  ended_ = front_ == nullptr && issued_.load(std::memory_order_seq_cst) == done;
  return ended_;
}

// A helper (helper_goal > 0) takes only what any thread may run, up to its goal.
bool Stream::TakeRunnable(Work* work, uint64_t* sequence, uint64_t helper_goal) {
  std::lock_guard<FutexLock> guard(queue_lock_);
  SkipCancelledLocked();
  Entry* entry = front_;
  if (helper_goal > 0 &&
      (entry == nullptr || !entry->work.any_thread || entry->sequence > helper_goal)) {
    return false;
  }
  if (entry == nullptr || entry->hold || entry->blocked ||
      entry->sequence != completed_.load(std::memory_order_seq_cst) + 1) {
    return false;
  }
  front_ = entry->next;
  if (front_ == nullptr) back_ = nullptr;
  // More of the same number: it ends with the last part.
  hold_has_rest_ = front_ != nullptr && front_->sequence == entry->sequence;
  *work = std::move(entry->work);
  *sequence = entry->sequence;
  FreeEntry(entry);
  return true;
}

void Stream::WaitForWork(uint32_t seen) {
  int64_t spin_ns = group_->SpinNs();
  if (spin_ns > 0) {
    int64_t until_ns = NowNs() + spin_ns;
    do {
      for (int i = 0; i < 8; ++i) CpuRelax();
      if (work_signal_.load(std::memory_order_relaxed) != seen) return;
    } while (NowNs() < until_ns);
  }
  group_->Awake(-1);
  worker_sleeps_.store(true, std::memory_order_seq_cst);
  while (work_signal_.load(std::memory_order_seq_cst) == seen) {
    FutexWait(&work_signal_, seen, Deadline::Infinite());
  }
  worker_sleeps_.store(false, std::memory_order_relaxed);
  group_->Awake(1);
}

}  // namespace openreg
