// One operation in flight: a state machine that never blocks, and what its request shows.
//
// Advance is called by one thread at a time: first perhaps by the caller of the C API, then by the
// worker of the operation's stream (core/executor). The results are read by any thread.
#ifndef OCCL_CORE_OP_H_
#define OCCL_CORE_OP_H_

#include <atomic>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "occl/base/clock.h"
#include "occl/base/ref.h"
#include "occl/base/status.h"
#include "occl/core/op_kind.h"
#include "occl/transport/faulty/faulty.h"

namespace occl {

class Comm;
class WaitNotice;

enum class StepResult {
  kDone,     // finished, successfully or not
  kMoved,    // call again at once
  kWaiting,  // nothing to do until a peer, or an earlier operation of this rank, moves on
};

class Op : public RefCounted {
 public:
  // Moves on as far as it can without waiting.
  virtual StepResult Advance() = 0;
  // Called now and then while waiting: ends the operation if its deadline has passed or a rank that
  // it needs has ended.
  virtual void CheckWait() = 0;
  // Sleeps until something may have changed, at most max_ns; looks again before it sleeps. Returns
  // what that look gave.
  virtual StepResult Sleep(int64_t max_ns) = 0;
  // While waiting: true if the ranks it waits for have begun their part, so that what is left is
  // their moving of data.
  virtual bool PeersAtWork() const = 0;
  // For messages and profiles; static storage.
  virtual const char* name() const = 0;
  // True if waiting must not burn processor time (more ranks than processors).
  virtual bool crowded() const = 0;
  // Until the (first) deadline, which counts from the first step; never negative.
  virtual int64_t RemainingNs() const = 0;
  // Ends an operation that could not be given to its stream.
  virtual void Abandon(const Status& status) = 0;
  // Whether the caller's thread drives it now; for statistics.
  virtual void SetInline(bool on_caller) = 0;
};

// An operation of one communicator, as its request shows it.
class CommOp : public Op {
 public:
  CommOp(Ref<Comm> comm, OpKind kind);
  ~CommOp() override;

  StepResult Advance() final;
  void CheckWait() final;
  StepResult Sleep(int64_t max_ns) final;
  const char* name() const final { return OpName(kind_); }
  bool crowded() const final;
  int64_t RemainingNs() const final;
  void Abandon(const Status& status) final;
  // Ends an operation that was never issued; nobody but its request hears of it.
  void Cancel(const Status& status);
  void SetInline(bool on_caller) final { inline_ = on_caller; }
  bool SameComm(const CommOp& other) const { return comm_.get() == other.comm_.get(); }

  // Before this thread sleeps: rings for all words that have been stored.
  virtual void TellSleepers() {}

  // The parts of Sleep, for a thread that has several operations to look at in between.
  class Announcement;
  Announcement Announce() const;

  // Takes its place in the communicator's order. Called once, in the order of the caller's calls.
  // start_now: the caller advances it at once, and it enters the history when it has told its peers
  // of itself, so that they need not wait for that.
  void Issue(bool start_now);

  OpKind kind() const { return kind_; }
  bool complete() const { return complete_.load(std::memory_order_acquire) != 0; }
  // False: the time is over and the operation still runs.
  bool WaitComplete(const Deadline& deadline);
  // After complete().
  const Status& status() const { return status_; }
  int64_t start_ns() const { return start_ns_; }
  int64_t end_ns() const { return end_ns_; }
  int source() const { return source_; }
  // "waiting for rank(s) 1 (pid 7) whose last operation is ..."; "" once complete. Any thread, when
  // it has been issued; `comm` is its communicator, which the caller keeps open.
  std::string TellPending(Comm& comm) const;

  void set_timeout_ms(int64_t timeout_ms) { timeout_ms_ = timeout_ms; }

 protected:
  // One step while the communicator is good. To fail, returns the communicator's failure through
  // FailComm. Calls Started before it moves data.
  virtual StepResult Step() = 0;
  // Takes a sequence number and a place in queues.
  virtual void DoIssue() = 0;
  // Leaves all queues, and counts a success; called once at the end, before anyone sees it.
  virtual void DoFinish(bool success) = 0;
  // For history and messages.
  virtual void Describe(occlOpRecord_t* record) const = 0;
  // The ranks this operation waits for now (none: an earlier operation of this rank).
  virtual bool WaitsFor(int rank) const = 0;
  // For messages, where it waits for no rank itself: whom the earlier operation waits for, as far
  // as can be seen.
  virtual bool HoldsUp(int) const { return false; }
  // For messages: why nothing has matched, as far as can be seen. Any thread; `comm` is comm().
  virtual std::string TellUnmatched(Comm&) const { return ""; }

  Comm& comm() const { return *comm_; }
  // "all_reduce #12 of communicator world"
  std::string Title() const;
  // From now on its time counts. Calls after the first one have no effect.
  void Started() {
    if (start_ns_ == 0) Start();
  }
  bool on_caller() const { return inline_; }
  StepResult FailComm(const Status& status);
  StepResult FinishOk();
  // Before the operation tells its peers of itself. kMoved: go on; fault() then says what is to be
  // told wrong. `peer`: -1 for a collective; `number`: among those of that kind.
  StepResult MeetFault(int peer, uint64_t number) {
    const bool armed = faulty::armed.load(std::memory_order_relaxed);
    return armed || fault_decided_ ? MeetFaultSlow(peer, number) : StepResult::kMoved;
  }
  faulty::Fault fault() const { return fault_; }

  int source_ = -1;
  OpKind kind_;

 private:
  StepResult MeetFaultSlow(int peer, uint64_t number);
  unsigned Subsystem() const;
  void LogIssue(const occlOpRecord_t& record) const;
  void Finish(const Status& status);
  void Publish(const Status& status);
  void Start();
  occlOpRecord_t Described() const;
  // Enters the history.
  void Record(int state, int64_t now_ns);
  Status Timeout() const;
  bool TakesFromAny() const;
  Status EndedPeer();
  // Tells the peers of all communicators of this process what it waits for.
  void ShowWait();
  // Until it waits or is done.
  StepResult AdvanceAll();

  Ref<Comm> comm_;  // released at the end, so that a request does not keep the communicator alive
  int64_t timeout_ms_ = INT64_MIN;  // the communicator's
  Deadline deadline_;               // set at the first step
  uint64_t history_number_ = 0;
  bool recorded_ = false;
  bool inline_ = false;
  bool fault_decided_ = false;
  faulty::Fault fault_ = faulty::Fault::kNone;
  Deadline fault_over_;                 // kDelay
  std::unique_ptr<WaitNotice> notice_;  // once it has waited for long
  int64_t start_ns_ = 0, end_ns_ = 0;   // 0: not yet
  Status status_;                       // written before complete_
  std::atomic<uint32_t> complete_{0};   // 0 running, 1 complete, futex word
  std::atomic<uint32_t> waiters_{0};
};

class CommOp::Announcement {
 public:
  explicit Announcement(const Ref<Comm>& comm);
  Announcement(const Announcement&) = delete;
  Announcement& operator=(const Announcement&) = delete;
  ~Announcement();
  void Sleep(int64_t max_ns) const;

 private:
  const Ref<Comm> comm_;
  const uint32_t rings_;
};

}  // namespace occl

#endif  // OCCL_CORE_OP_H_
