#include "occl/core/abort_init.h"

#include <unistd.h>

#include <memory>
#include <vector>

#include "occl/base/log.h"
#include "occl/core/bells.h"

namespace occl {
namespace {

// The keeper's thread answers at once, or its process is stopped: then the store has to do. So does
// the first rank, which may not be there yet.
constexpr int64_t kKeeper_ms = 500;

// NULL: all who have come have gone. Who comes next looks into the store.
Status MapSegment(const CommSettings& settings, StoreMeeting* meeting,
                  std::shared_ptr<ControlSegment>* segment) {
  RendezvousOptions options;
  options.nranks = settings.nranks;
  options.rank = settings.rank;
  options.device = {};
  options.deadline = Deadline::After(kKeeper_ms);
  options.name = settings.name.c_str();
  options.members = MakeMembers(settings.members);
  LeaderInfo leader = {};
  Kept kept;
  OCCL_RETURN_IF_ERROR(FetchSegment(meeting, options, &leader, &kept));
  if (!kept.file.valid()) return Status();
  return ControlSegment::Map(kept.file, settings.nranks, segment);
}

Status TellThoseWhoHaveCome(const CommSettings& settings, StoreMeeting* meeting,
                            const Status& why) {
  LeaderInfo leader = {};
  const Status found = meeting->Find(&leader, Deadline::After(0));
  if (found.code() == occlTimeout) return Status();  // nobody has come
  OCCL_RETURN_IF_ERROR(found);
  std::shared_ptr<ControlSegment> segment;
  OCCL_RETURN_IF_ERROR(MapSegment(settings, meeting, &segment));
  if (segment == nullptr) return Status();
  segment->PostError(settings.rank, why.code(), why.message().c_str());
  Bells(segment.get(), settings.rank).RingAll();
  return Status();
}

Status LeaveThoseWhoHaveCome(const CommSettings& settings, StoreMeeting* meeting) {
  std::shared_ptr<ControlSegment> segment;
  OCCL_RETURN_IF_ERROR(MapSegment(settings, meeting, &segment));
  if (segment == nullptr) return Status();
  std::vector<LeftRank> left(settings.nranks);
  left[settings.rank].pid = getpid();
  MarkLeft(segment.get(), left);
  Bells(segment.get(), settings.rank).RingAll();
  return Status();
}

void LogUntold(const CommSettings& settings, const char* what, const Status& told) {
  if (told.ok()) return;
  // They look into the store as well, if not as soon.
  OCCL_LOG(kInfo, kLogInit, "%s: rank %d %s it and cannot tell those who have come: %s",
           settings.name.c_str(), settings.rank, what, told.message().c_str());
}

}  // namespace

Status AbortInit(const CommSettings& settings, StoreMeeting* meeting, const Status& why) {
  OCCL_RETURN_IF_ERROR(meeting->Abort(why));
  LogUntold(settings, "aborts", TellThoseWhoHaveCome(settings, meeting, why));
  return Status();
}

Status LeaveInit(const CommSettings& settings, StoreMeeting* meeting, bool has_joined) {
  if (has_joined) return meeting->LeaveJoined(settings.rank);
  bool some_came = false;
  OCCL_RETURN_IF_ERROR(meeting->Leave(settings.rank, &some_came));
  if (some_came) LogUntold(settings, "leaves", LeaveThoseWhoHaveCome(settings, meeting));
  return Status();
}

}  // namespace occl
