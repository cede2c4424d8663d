#include "occl/bootstrap/store_meeting.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

namespace occl {

// What the store holds of a rank that has left, or that those who come later may miss: of a leader
// only when another takes its place.
struct RankRecord {
  enum class Standing : uint32_t { kLeftUnjoined, kLeftJoined, kJoined };
  ProcessId process;
  Standing standing;
  uint32_t generation;  // of the segment that it has joined; 0 of one that has left
};

namespace {

using Standing = RankRecord::Standing;

constexpr int64_t kLeft = int64_t{1} << 32;

// "set" or so: what the store could not do. It has no words for why.
Status StoreFailed(occlResult_t result, const char* verb, const std::string& key) {
  const char* why = "";
  if (result == occlSystemError) {
    const UniqueFd probe(fcntl(STDIN_FILENO, F_DUPFD_CLOEXEC, 0));
    if (!probe.valid() && errno == EMFILE) why = ": Too many open files";
  }
  return Error(result, "the store could not %s the key %s: %s%s", verb, key.c_str(),
               occlGetErrorString(result), why);
}

}  // namespace

void StoreMeeting::ChooseAddress(LeaderInfo* info) { ChooseRandomAddress(info); }

Status StoreMeeting::Publish(const LeaderInfo& info) {
  const std::string key = prefix_ + "leader";
  const occlResult_t result = store_.set(store_.context, key.c_str(), &info, sizeof(info));
  if (result == occlSuccess) return Status();
  return StoreFailed(result, "set", key);
}

occlResult_t StoreMeeting::Get(const std::string& key, LeaderInfo* info, size_t* size,
                               const Deadline& deadline, Status* aborted) {
  while (true) {
    const int64_t remaining_ns = deadline.RemainingNs();
    int64_t timeout_ms = remaining_ns == INT64_MAX ? -1 : remaining_ns / 1'000'000 + 1;
    const bool last = !slices_ || (timeout_ms >= 0 && timeout_ms <= kSlice_ms);
    if (!last) timeout_ms = kSlice_ms;
    const occlResult_t result =
        store_.get(store_.context, key.c_str(), info, sizeof(*info), size, timeout_ms);
    if (result != occlTimeout || last) return result;
    *aborted = CheckAborted();
    if (!aborted->ok()) return aborted->code();
  }
}

Status StoreMeeting::Find(LeaderInfo* info, const Deadline& deadline) {
  const std::string key = prefix_ + "leader";
  size_t size = 0;
  Status aborted;
  const occlResult_t result = Get(key, info, &size, deadline, &aborted);
  OCCL_RETURN_IF_ERROR(aborted);
  if (result == occlTimeout) {
    return Error(occlTimeout,
                 "rank 0 (or the one that came first) did not come in time: it has not set the "
                 "key %s",
                 key.c_str());
  }
  if (result != occlSuccess) {
    return StoreFailed(result, "get", key);
  }
  if (size != sizeof(*info)) {
    return Error(occlMismatch,
                 "the store's key %s has %zu bytes, expected %zu: another program or "
                 "another version of OCCL uses it",
                 key.c_str(), size, sizeof(*info));
  }
  return Status();
}

// The socket's random name makes the key belong to this very attempt.
std::string StoreMeeting::FailureKey(const LeaderInfo& info) const {
  return prefix_ + "failed/" + PrintableText(info.socket_name, sizeof(info.socket_name));
}

void StoreMeeting::ReportFailure(const LeaderInfo& info, const Status& status) {
  const Notice notice = MakeNotice(status);
  // The caller returns the failure itself; that rank 0 hears of it too is a kindness.
  static_cast<void>(store_.set(store_.context, FailureKey(info).c_str(), &notice, sizeof(notice)));
}

// A unique id is for one init, and is the one place that is asked without slices.
void StoreMeeting::ReportEnd(const LeaderInfo& info, const Status& status) {
  ReportFailure(info, status);
  if (!slices_) static_cast<void>(Publish(info));  // nobody listens there: they look why
}

// One number counts those who have come, and times kLeft those who have left without: of a rank
// that leaves and the first that comes, one sees the other.
Status StoreMeeting::Count(int64_t delta, int64_t* sum) {
  const std::string key = prefix_ + "come";
  const occlResult_t result = store_.add(store_.context, key.c_str(), delta, sum);
  if (result == occlSuccess) return Status();
  return StoreFailed(result, "count in", key);
}

Status StoreMeeting::ComesFirst(bool* first, bool* some_left) {
  int64_t number = 0;
  OCCL_RETURN_IF_ERROR(Count(1, &number));
  *first = number % kLeft == 1;
  *some_left = number >= kLeft;
  return Status();
}

std::string StoreMeeting::RecordKey(int rank) const {
  return prefix_ + "left/" + std::to_string(rank);
}

bool StoreMeeting::FindRecord(int rank, RankRecord* record) {
  size_t size = 0;
  const occlResult_t result = store_.get(store_.context, RecordKey(rank).c_str(), record,
                                         sizeof(*record), &size, /*timeout_ms=*/1);
  return result == occlSuccess && size == sizeof(*record);
}

Status StoreMeeting::SetRecord(int rank, const RankRecord& record) {
  const std::string key = RecordKey(rank);
  const occlResult_t result = store_.set(store_.context, key.c_str(), &record, sizeof(record));
  return result == occlSuccess ? Status() : StoreFailed(result, "set", key);
}

Status StoreMeeting::SayJoined(const LeaderInfo& leader, int rank) {
  return SetRecord(rank, {OwnProcessId(), Standing::kJoined, leader.generation});
}

Status StoreMeeting::Leave(int rank, bool* some_came) {
  OCCL_RETURN_IF_ERROR(SetRecord(rank, {OwnProcessId(), Standing::kLeftUnjoined, 0}));
  int64_t number = 0;
  OCCL_RETURN_IF_ERROR(Count(kLeft, &number));
  *some_came = number % kLeft != 0;
  return Status();
}

Status StoreMeeting::LeaveJoined(int rank) {
  return SetRecord(rank, {OwnProcessId(), Standing::kLeftJoined, 0});
}

Status StoreMeeting::FindLeft(std::vector<LeftRank>* ranks) {
  int64_t number = 0;
  OCCL_RETURN_IF_ERROR(Count(0, &number));
  return number < kLeft ? Status() : FindGone(/*generation=*/0, ranks);
}

Status StoreMeeting::FindGone(uint32_t generation, std::vector<LeftRank>* ranks) {
  for (size_t rank = 0; rank < ranks->size(); ++rank) {
    RankRecord record = {};
    if (!FindRecord(static_cast<int>(rank), &record)) continue;
    const bool said_nothing = record.standing == Standing::kJoined;
    const bool died = said_nothing && HasEnded(record.process);
    if (said_nothing && !died && record.generation >= generation) continue;
    (*ranks)[rank] = {record.process.pid, record.standing != Standing::kLeftUnjoined, died};
  }
  return Status();
}

Status StoreMeeting::Inherits(const LeaderInfo& leader, bool* inherits) {
  const std::string key = prefix_ + "heirs/" + std::to_string(leader.generation);
  int64_t number = 0;
  const occlResult_t result = store_.add(store_.context, key.c_str(), 1, &number);
  *inherits = number == 1;
  if (result != occlSuccess) return StoreFailed(result, "count in", key);
  RankRecord record = {};
  if (!*inherits || FindRecord(leader.rank, &record)) return Status();
  // Its own takes the place of what the leader has published.
  return SetRecord(leader.rank, {leader.process, Standing::kJoined, leader.generation});
}

Status StoreMeeting::CheckFailure(const LeaderInfo& info) {
  Notice notice;
  size_t size = 0;
  const occlResult_t result = store_.get(store_.context, FailureKey(info).c_str(), &notice,
                                         sizeof(notice), &size, /*timeout_ms=*/1);
  if (result != occlSuccess || size != sizeof(notice)) return CheckAborted();
  return FromNotice(notice);
}

Status StoreMeeting::Abort(const Status& why) {
  const std::string key = prefix_ + "aborted";
  const Notice notice = MakeNotice(why);
  const occlResult_t result = store_.set(store_.context, key.c_str(), &notice, sizeof(notice));
  if (result == occlSuccess) return Status();
  return StoreFailed(result, "set", key);
}

Status StoreMeeting::CheckAborted() {
  const std::string key = prefix_ + "aborted";
  Notice notice;
  size_t size = 0;
  const occlResult_t result =
      store_.get(store_.context, key.c_str(), &notice, sizeof(notice), &size, /*timeout_ms=*/1);
  if (result != occlSuccess || size != sizeof(notice)) return Status();
  return FromNotice(notice);
}

}  // namespace occl
