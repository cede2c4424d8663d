#include "occl/core/abort_init.h"

#include <memory>

#include "occl/base/log.h"
#include "occl/core/bells.h"

namespace occl {
namespace {

// The keeper's thread answers at once, or its process is stopped: then the store has to do.
constexpr int64_t kKeeper_ms = 500;

Status TellThoseWhoHaveCome(const CommSettings& settings, StoreMeeting* meeting,
                            const Status& why) {
  LeaderInfo leader = {};
  const Status found = meeting->Find(&leader, Deadline::After(0));
  if (found.code() == occlTimeout) return Status();  // nobody has come
  OCCL_RETURN_IF_ERROR(found);
  RendezvousOptions options;
  options.nranks = settings.nranks;
  options.rank = settings.rank;
  options.device = {};
  options.deadline = Deadline::After(kKeeper_ms);
  options.name = settings.name.c_str();
  UniqueFd file;
  std::shared_ptr<ControlSegment> segment;
  OCCL_RETURN_IF_ERROR(FetchSegment(meeting, options, &leader, &file));
  OCCL_RETURN_IF_ERROR(ControlSegment::Map(file, settings.nranks, &segment));
  segment->PostError(settings.rank, why.code(), why.message().c_str());
  Bells(segment.get(), settings.rank).RingAll();
  return Status();
}

}  // namespace

Status AbortInit(const CommSettings& settings, StoreMeeting* meeting, const Status& why) {
  OCCL_RETURN_IF_ERROR(meeting->Abort(why));
  const Status told = TellThoseWhoHaveCome(settings, meeting, why);
  if (!told.ok()) {
    // They look into the store as well, if not as soon.
    OCCL_LOG(kInfo, kLogInit, "%s: rank %d aborts it and cannot tell those who have come: %s",
             settings.name.c_str(), settings.rank, told.message().c_str());
  }
  return Status();
}

}  // namespace occl
