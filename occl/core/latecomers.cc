#include "occl/core/latecomers.h"

#include <algorithm>
#include <cstring>

#include "occl/core/op_kind.h"

namespace occl {
namespace {

constexpr size_t kMostText = 500;

bool IsMessage(const occlOpRecord_t& record) {
  return std::strcmp(record.operation, OpName(OpKind::kSend)) == 0 ||
         std::strcmp(record.operation, OpName(OpKind::kRecv)) == 0;
}

// How far `rank` is with this collective, as it says itself: -1 if it has not come.
int StateOf(Comm& comm, int rank, const occlOpRecord_t& collective) {
  int state = -1;
  for (const occlOpRecord_t& record : History::Read(&comm.segment(), rank, kHistoryPlaces)) {
    if (IsMessage(record) || record.sequence < collective.sequence) continue;
    // It issues in order: with a later one it has come to this one.
    state = std::max(state, record.sequence == collective.sequence ? record.state : int{kQueued});
  }
  return state;
}

// The others that are not as far as that.
std::vector<int> Below(int state, const std::vector<int>& states, int own_rank) {
  std::vector<int> ranks;
  for (size_t r = 0; r < states.size(); ++r) {
    if (static_cast<int>(r) != own_rank && states[r] < state) ranks.push_back(static_cast<int>(r));
  }
  return ranks;
}

}  // namespace

std::string TellOf(Comm& comm, const std::vector<int>& ranks) {
  std::string text;
  for (int r : ranks) {
    if (text.size() > kMostText) return text + ", ...";
    text += (text.empty() ? "" : ", ") + comm.peers.Name(r);
    const auto last = History::Read(&comm.segment(), r, 1);
    if (last.empty()) {
      text += " which has begun nothing";
    } else {
      static constexpr const char* kStates[] = {"queued", "started", "complete", "failed"};
      text += std::string(" whose last operation is ") + last[0].operation + " #" +
              std::to_string(last[0].sequence) + " (" + kStates[last[0].state] + ")";
    }
    std::string waits = WaitBoard::Read(&comm.segment(), r);
    if (waits.empty() && !comm.presence.Reach(r)) {  // it has not joined, but may be known
      waits = WaitBoard::ReadProcess(comm.peers.pid(r));
    }
    if (!waits.empty()) text += ", while it waits in " + waits;
  }
  return text;
}

std::string TellAwaited(Comm& comm, const occlOpRecord_t& record) {
  if (IsMessage(record)) {
    if (record.root == OCCL_ANY_SOURCE) return "waiting for a message from any rank";
    return "waiting for rank(s) " + TellOf(comm, {record.root});
  }
  std::vector<int> states;
  for (int r = 0; r < comm.nranks(); ++r) states.push_back(StateOf(comm, r, record));
  // Behind an operation that does not end it does not matter who else has not started.
  const bool behind = states[comm.rank()] == kQueued;
  std::vector<int> missing = Below(behind ? kQueued : kStarted, states, comm.rank());
  if (missing.empty()) missing = Below(kComplete, states, comm.rank());
  if (missing.empty()) return "to which all ranks have come";
  return (behind ? "behind an earlier operation, waiting for rank(s) " : "waiting for rank(s) ") +
         TellOf(comm, missing);
}

}  // namespace occl
