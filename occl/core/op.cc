#include "occl/core/op.h"

#include <algorithm>
#include <cstring>

#include "occl/base/datatypes.h"
#include "occl/base/fence.h"
#include "occl/base/futex.h"
#include "occl/base/log.h"
#include "occl/core/comm.h"
#include "occl/core/latecomers.h"

namespace occl {

CommOp::CommOp(Ref<Comm> comm, OpKind kind) : kind_(kind), comm_(std::move(comm)) {}

CommOp::~CommOp() = default;

bool CommOp::crowded() const { return comm_->crowded(); }

void CommOp::Issue(bool start_now) {
  comm_->OpIssued();
  DoIssue();
  if (!start_now) Record(kQueued, NowNs());
}

occlOpRecord_t CommOp::Described() const {
  occlOpRecord_t record = {};
  static_assert(sizeof(record.operation) == kOpNameBytes);
  std::memcpy(record.operation, name(), kOpNameBytes);
  Describe(&record);
  return record;
}

void CommOp::Record(int state, int64_t now_ns) {
  occlOpRecord_t record = Described();
  record.state = state;
  record.queued_ns = now_ns;
  if (state == kStarted) record.started_ns = now_ns;
  history_number_ = comm_->history.Add(record);
  recorded_ = true;
  if (LogEnabled(LogLevel::kInfo, Subsystem())) LogIssue(record);
}

unsigned CommOp::Subsystem() const {
  return kind_ == OpKind::kSend || kind_ == OpKind::kRecv ? kLogP2p : kLogColl;
}

void CommOp::LogIssue(const occlOpRecord_t& record) const {
  std::string text = std::to_string(record.count) + " of " + DataTypeName(record.datatype);
  if (kind_ == OpKind::kAllReduce || kind_ == OpKind::kReduce || kind_ == OpKind::kReduceScatter) {
    text += std::string(", ") + RedOpName(record.op);
  }
  const bool message = Subsystem() == kLogP2p;
  if (record.root >= 0) text += (message ? ", peer " : ", root ") + std::to_string(record.root);
  if (record.tag >= 0) text += ", tag " + std::to_string(record.tag);
  OCCL_LOG(kInfo, Subsystem(), "%s: %s", Title().c_str(), text.c_str());
}

void CommOp::Abandon(const Status& status) { static_cast<void>(FailComm(status)); }

void CommOp::Start() {
  start_ns_ = NowNs();
  deadline_ =
      Deadline::From(start_ns_, timeout_ms_ == INT64_MIN ? comm_->timeout_ms() : timeout_ms_);
  if (recorded_) {
    comm_->history.Update(history_number_, kStarted, start_ns_);
  } else {
    Record(kStarted, start_ns_);
  }
}

StepResult CommOp::Advance() {
  if (complete_.load(std::memory_order_relaxed) != 0) return StepResult::kDone;
  if (!comm_->good()) {
    Finish(comm_->failure());
    return StepResult::kDone;
  }
  const StepResult result = Step();
  if (result != StepResult::kDone) Started();
  return result;
}

int64_t CommOp::RemainingNs() const {
  if (start_ns_ == 0) return INT64_MAX;
  const int64_t remaining_ns = deadline_.RemainingNs();
  if (fault_ != faulty::Fault::kDelay) [[likely]]
    return remaining_ns;
  return std::min(remaining_ns, fault_over_.RemainingNs());
}

StepResult CommOp::MeetFaultSlow(int peer, uint64_t number) {
  if (!fault_decided_) {
    fault_decided_ = true;
    const faulty::Decision decision = faulty::Decide({comm_->name(), comm_->rank(), peer, number});
    fault_ = decision.fault;
    if (fault_ == faulty::Fault::kDelay) {
      fault_over_ = Deadline::FromNs(NowNs(), decision.delay_ns);
    } else if (fault_ == faulty::Fault::kReset) {
      return FailComm(Error(occlRemoteError,
                            "%s: the connection of rank %s was reset (a fault on request, seed "
                            "%llu)",
                            Title().c_str(), comm_->peers.Name(comm_->rank()).c_str(),
                            static_cast<unsigned long long>(decision.seed)));
    }
  }
  if (fault_ == faulty::Fault::kDelay) {
    if (!fault_over_.Passed()) return StepResult::kWaiting;
    fault_ = faulty::Fault::kNone;
  }
  return StepResult::kMoved;
}

StepResult CommOp::FailComm(const Status& status) {
  Finish(comm_->FailUnlogged(status));
  Comm::LogFailure(status);  // who waits has been told
  return StepResult::kDone;
}

// Data that was read from a peer counts only if nobody had failed, and so perhaps given up its
// buffers, when the last byte had been read.
StepResult CommOp::FinishOk() {
  LoadFence();
  Finish(comm_->failure());
  return StepResult::kDone;
}

void CommOp::Finish(const Status& status) {
  if (!recorded_) Started();
  if (notice_ != nullptr) [[unlikely]]
    notice_.reset();
  DoFinish(status.ok());
  end_ns_ = NowNs();
  comm_->history.Update(history_number_, status.ok() ? kComplete : kFailed, end_ns_);
  if (LogEnabled(LogLevel::kTrace, Subsystem())) {
    OCCL_LOG(kTrace, Subsystem(), "%s: %s after %.1f us%s", Title().c_str(),
             status.ok() ? "complete" : "failed", 1e-3 * static_cast<double>(end_ns_ - start_ns_),
             inline_ ? ", on the calling thread" : "");
  }
  // Before its request shows it: whoever has seen all requests complete may destroy.
  comm_->OpEnded();
  Publish(status);
}

void CommOp::Cancel(const Status& status) {
  start_ns_ = end_ns_ = NowNs();
  Publish(status);
}

void CommOp::Publish(const Status& status) {
  if (!status.ok()) status_ = status;
  comm_ = Ref<Comm>();
  if (HeldOnce()) {  // by who drives it: nobody else waits for it
    complete_.store(1, std::memory_order_relaxed);
    return;
  }
  // seq_cst on both: either a waiter sees the word or this sees the waiter.
  complete_.store(1, std::memory_order_seq_cst);
  if (waiters_.load(std::memory_order_seq_cst) != 0) FutexWakeAll(&complete_);
}

bool CommOp::WaitComplete(const Deadline& deadline) {
  constexpr int kSpins = 200;
  constexpr int64_t kSlice_ns = 50'000'000;
  for (int i = 0; i < kSpins && !complete(); ++i) CpuPause();
  if (complete()) return true;
  waiters_.fetch_add(1, std::memory_order_seq_cst);
  while (complete_.load(std::memory_order_seq_cst) == 0 && !deadline.Passed()) {
    FutexWait(&complete_, 0, std::min(deadline.RemainingNs(), kSlice_ns));
  }
  waiters_.fetch_sub(1, std::memory_order_relaxed);
  return complete();
}

CommOp::Announcement::Announcement(const Ref<Comm>& comm)
    : comm_(comm), rings_(comm_->bells.Announce()) {}

CommOp::Announcement::~Announcement() { comm_->bells.Leave(); }

void CommOp::Announcement::Sleep(int64_t max_ns) const {
  const int64_t begin_ns = NowNs();
  comm_->bells.Sleep(rings_, max_ns);
  comm_->wait_ns.Add(NowNs() - begin_ns);
}

CommOp::Announcement CommOp::Announce() const { return Announcement(comm_); }

StepResult CommOp::Sleep(int64_t max_ns) {
  TellSleepers();
  const Announcement announcement = Announce();
  const StepResult result = Advance();
  if (result == StepResult::kWaiting) {
    TellSleepers();
    announcement.Sleep(max_ns);
  }
  return result;
}

void CommOp::CheckWait() {
  if (complete_.load(std::memory_order_relaxed) != 0) return;
  const Status ended = EndedPeer();
  if (!ended.ok()) {
    static_cast<void>(FailComm(ended));
  } else if (complete_.load(std::memory_order_relaxed) == 0 && deadline_.Passed()) {
    // This thread may have been kept from running while the peers came: it is not they who are
    // late.
    if (AdvanceAll() == StepResult::kWaiting) static_cast<void>(FailComm(Timeout()));
  }
  if (complete_.load(std::memory_order_relaxed) == 0) ShowWait();
}

void CommOp::ShowWait() {
  constexpr size_t kMostText = 107;
  std::string ranks =
      comm_->peers.Names(kMostText, [this](int r) { return r != comm_->rank() && WaitsFor(r); });
  if (!ranks.empty()) {
    ranks.insert(0, " for rank(s) ");
  } else if (TakesFromAny()) {
    ranks = " for any rank";
  }
  if (ranks.empty()) {  // behind another operation, which tells for itself, or for its own data
    notice_.reset();
    return;
  }
  const occlOpRecord_t record = Described();
  std::string text = std::string(name()) + " #" + std::to_string(record.sequence);
  if (record.tag >= 0) text += " with tag " + std::to_string(record.tag);
  if (notice_ == nullptr) {
    const bool message = Subsystem() == kLogP2p;
    notice_ = std::make_unique<WaitNotice>(
        &comm_->waits, message ? WaitNotice::What::kMessage : WaitNotice::What::kCollective);
  }
  notice_->Show(text + ranks + " in communicator " + comm_->name());
}

StepResult CommOp::AdvanceAll() {
  StepResult result = StepResult::kMoved;
  while (result == StepResult::kMoved) result = Advance();
  return result;
}

// A rank that has ended may have done its part before: look once more after having seen its end.
Status CommOp::EndedPeer() {
  comm_->peers.Refresh();
  for (int r = 0; r < comm_->nranks(); ++r) {
    if (r == comm_->rank() || !WaitsFor(r)) continue;
    const std::string gone = comm_->TellGone(r);
    if (gone.empty()) continue;
    if (AdvanceAll() == StepResult::kDone) return Status();
    if (!WaitsFor(r)) continue;
    return Error(occlRemoteError, "%s: %s", Title().c_str(), gone.c_str());
  }
  return Status();
}

std::string CommOp::Title() const {
  return std::string(name()) + " #" + std::to_string(Described().sequence) + " on rank " +
         std::to_string(comm_->rank()) + " of communicator " + comm_->name();
}

std::string CommOp::TellPending(Comm& comm) const {
  return complete() ? "" : TellAwaited(comm, Described()) + TellUnmatched(comm);
}

// Then it waits for no rank in particular.
bool CommOp::TakesFromAny() const {
  return kind_ == OpKind::kRecv && Described().root == OCCL_ANY_SOURCE;
}

Status CommOp::Timeout() const {
  std::vector<int> missing, slow;
  for (int r = 0; r < comm_->nranks(); ++r) {
    if (r == comm_->rank()) continue;
    if (WaitsFor(r)) missing.push_back(r);
    if (HoldsUp(r)) slow.push_back(r);
  }
  const bool behind = missing.empty();
  if (behind) missing = slow;
  const long long waited_ms = (NowNs() - start_ns_) / 1'000'000;
  return Error(occlTimeout, "%s timed out after %lld ms%s%s%s%s", Title().c_str(), waited_ms,
               !behind          ? ""
               : TakesFromAny() ? " waiting for a message from any rank"
                                : " behind an earlier operation",
               missing.empty() ? "" : " waiting for rank(s) ", TellOf(*comm_, missing).c_str(),
               TellUnmatched(*comm_).c_str());
}

}  // namespace occl
