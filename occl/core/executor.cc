#include "occl/core/executor.h"

#include <algorithm>
#include <charconv>
#include <cstring>
#include <system_error>
#include <utility>

#include "occl/base/futex.h"
#include "occl/base/log.h"
#include "occl/core/group_op.h"
#include "occl/transport/direct/peer_arena.h"

namespace occl {
namespace {

// The caller waits for peers for about this many pauses (15 ns each) before it hands over...
constexpr int kInlineSpins = 500;
// ... or, where ranks outnumber processors, spins for a moment and then sleeps for at most this
// long: the peer it waits for may need this very processor. Not by yielding: on a busy machine that
// gives away whole time slices.
constexpr int kCrowdedSpins = 10;
constexpr int64_t kInlineSleep_ns = 200'000;
// The caller moves data, and waits for peers that move theirs, for at most this long: it is not to
// be held up by a large message.
constexpr int64_t kInlineMove_ns = 300'000;
// A worker spins longer, then sleeps until it is woken, and looks at deadline and peers in between.
constexpr int kWorkerSpins = 2000;

int64_t ReadCheckInterval_ns() {
  constexpr int64_t kDefault_ms = 50, kMost_ms = 86'400'000;
  const char* text = ReadEnvironment("OCCL_CHECK_INTERVAL_MS");
  if (text == nullptr) return kDefault_ms * 1'000'000;
  int64_t interval_ms = 0;
  const char* const end = text + std::strlen(text);
  const auto [stop, error] = std::from_chars(text, end, interval_ms);
  if (error == std::errc() && stop == end && interval_ms >= 1 && interval_ms <= kMost_ms) {
    return interval_ms * 1'000'000;
  }
  OCCL_LOG(kWarn, kLogEnv, "OCCL_CHECK_INTERVAL_MS=%s is no number from 1 to %lld: ignored", text,
           static_cast<long long>(kMost_ms));
  return kDefault_ms * 1'000'000;
}

int64_t CheckInterval_ns() {
  static const int64_t interval_ns = ReadCheckInterval_ns();
  return interval_ns;
}

// True when the operation is done.
bool DriveInline(Op* op) {
  StepResult result = op->Advance();
  if (result == StepResult::kDone) return true;
  const bool crowded = op->crowded();
  const int patience_at_first = crowded ? kCrowdedSpins : kInlineSpins;
  int patience = patience_at_first;
  int64_t move_end_ns = 0, sleep_end_ns = 0;  // found when the first block moves, the first sleep
  while (result != StepResult::kDone) {
    if (result == StepResult::kWaiting && --patience >= 0) {
      CpuPause();
    } else {
      const int64_t now_ns = NowNs();
      const bool at_work = result == StepResult::kMoved || op->PeersAtWork();
      int64_t& end_ns = at_work ? move_end_ns : sleep_end_ns;
      if (end_ns == 0) end_ns = now_ns + (at_work ? kInlineMove_ns : crowded ? kInlineSleep_ns : 0);
      if (now_ns >= end_ns) return false;
      if (result == StepResult::kWaiting) {
        if (crowded && op->Sleep(end_ns - now_ns) == StepResult::kDone) return true;
        patience = patience_at_first;
      }
    }
    result = op->Advance();
  }
  return true;
}

void DriveToEnd(Op* op) {
  const int patience_at_first = op->crowded() ? kCrowdedSpins : kWorkerSpins;
  int patience = patience_at_first;
  const int64_t interval_ns = CheckInterval_ns();
  int64_t next_check_ns = NowNs() + interval_ns;
  StepResult result = op->Advance();
  while (result != StepResult::kDone) {
    if (result == StepResult::kMoved) {
      patience = patience_at_first;
    } else if (--patience >= 0) {
      CpuPause();
    } else {
      result = op->Sleep(std::min(interval_ns, std::max<int64_t>(op->RemainingNs(), 1000)));
      if (result == StepResult::kDone) return;
      if (NowNs() >= next_check_ns || op->RemainingNs() <= 0) {
        op->CheckWait();
        next_check_ns = NowNs() + interval_ns;
      }
      patience = kCrowdedSpins;  // it takes longer: wake, look, sleep again
    }
    result = op->Advance();
  }
}

// A failure is the request's and the communicator's; the stream goes on.
orError_t RunOnWorker(void* argument) {
  const Ref<Op> op = Ref<Op>::Adopt(static_cast<Op*>(argument));
  DriveToEnd(op.get());
  return orSuccess;
}

// Drives `op` on a stream that this thread holds.
void StartHeld(Ref<Op> op, orStream_t stream) {
  op->SetInline(true);
  if (DriveInline(op.get())) {
    static_cast<void>(orStreamRelease(stream));
    return;
  }
  op->SetInline(false);
  const char* name = op->name();
  const orError_t error = orStreamReleaseTo(stream, name, RunOnWorker, op.get());
  if (error == orSuccess) {
    static_cast<void>(op.Release());  // the worker's now
  } else {
    op->Abandon(FromRuntime(error, "orStreamReleaseTo"));
  }
}

void StartQueued(Ref<Op> op, orStream_t stream) {
  const orError_t error = orLaunchKernelQueued(op->name(), RunOnWorker, op.get(), stream);
  if (error == orSuccess) {
    static_cast<void>(op.Release());
  } else {
    op->Abandon(FromRuntime(error, "orLaunchKernelQueued"));
  }
}

}  // namespace

Status Launch(Call call) {
  if (!call.async) {
    const orError_t held = orStreamTryAcquire(call.stream, call.op->name());
    if (held == orSuccess) {
      call.op->Issue(/*start_now=*/true);
      StartHeld(std::move(call.op), call.stream);
      return Status();
    }
    if (held != orErrorNotReady) return FromRuntime(held, "orStreamTryAcquire");
  } else {
    int device;
    OCCL_RETURN_IF_ERROR(FromRuntime(orStreamGetDevice(call.stream, &device), "orStreamGetDevice"));
  }
  call.op->Issue(/*start_now=*/false);
  StartQueued(std::move(call.op), call.stream);
  return Status();
}

Status LaunchGroup(std::vector<Call> calls) {
  if (calls.size() == 1) return Launch(std::move(calls[0]));
  for (const Call& call : calls) {
    int device;
    OCCL_RETURN_IF_ERROR(FromRuntime(orStreamGetDevice(call.stream, &device), "orStreamGetDevice"));
  }
  for (const Call& call : calls) call.op->Issue(/*start_now=*/false);
  while (!calls.empty()) {
    const orStream_t stream = calls[0].stream;
    std::vector<Ref<CommOp>> members;
    bool async = false;
    std::erase_if(calls, [&](const Call& call) {
      if (call.stream != stream) return false;
      members.push_back(call.op);
      async = async || call.async;
      return true;
    });
    Ref<Op> op = members.size() == 1 ? Ref<Op>(std::move(members[0]))
                                     : Ref<Op>(MakeRef<GroupOp>(std::move(members)));
    if (!async && orStreamTryAcquire(stream, op->name()) == orSuccess) {
      StartHeld(std::move(op), stream);
    } else {
      StartQueued(std::move(op), stream);
    }
  }
  return Status();
}

}  // namespace occl
