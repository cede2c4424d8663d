#include "openreg/runtime/event.h"

#include <new>
#include <utility>

#include "openreg/runtime/worker.h"

namespace openreg {

void Event::Start(int device, unsigned flags, SharedEvent shared) {
  device_ = device;
  flags_ = flags;
  shared_ = std::move(shared);
  std::lock_guard<FutexLock> guard(lock_);
  uint64_t version = record_.version + 1;
  record_ = Captured();
  record_.version = version;
}

void Event::End() {
  // Its end may talk to the owner's process: not under the lock.
  SharedEvent shared;
  std::lock_guard<FutexLock> guard(lock_);
  ++record_.version;
  record_.stream = nullptr;
  std::swap(shared, shared_);
}

Event::Captured Event::Snapshot() {
  std::lock_guard<FutexLock> guard(lock_);
  return record_;
}

// A mark is a queue entry that notes the time, or tells other processes: data[0] the event,
// data[1] the record's version, data[2] the number of the shared record.
struct EventMark {
  Event* event;
  uint64_t version;
  SharedEvent shared;
  uint64_t number;
};

orError_t Event::RunMark(Work& work) {
  auto* mark = reinterpret_cast<EventMark*>(work.data[0]);
  {
    std::lock_guard<FutexLock> guard(mark->event->lock_);
    Captured& record = mark->event->record_;
    if (record.version == mark->version) record.time_ns = NowNs();
  }
  if (mark->shared.valid()) mark->shared.CompleteRecord(mark->number);
  delete mark;
  return orSuccess;
}

Status Event::Record(Stream* stream) {
  // An imported event is of no device of this process.
  if (stream->device() != device_ && !imported()) {
    return Status(orErrorInvalidResourceHandle,
                  Format("record: the event belongs to device %d, the stream to device %d", device_,
                         stream->device()));
  }
  bool timing = (flags_ & orEventDisableTiming) == 0;
  uint64_t number = shared_.valid() ? shared_.BeginRecord() : 0;
  uint64_t version;
  {
    std::lock_guard<FutexLock> guard(lock_);
    version = ++record_.version;
    record_.stream = stream;
    record_.stream_id = stream->id();
    record_.sequence = stream->issued();
    record_.time_ns = 0;
    record_.shared_number = number;
    if (stream->Passed(record_.sequence)) {
      if (timing) record_.time_ns = NowNs();
      timing = false;
      if (number != 0) shared_.CompleteRecord(number);
      number = 0;
    }
  }
  if (!timing && number == 0) return Status();
  auto* mark = new EventMark{this, version, shared_, number};
  Work work;
  work.name = "event record";
  work.silent = true;
  work.run = RunMark;
  work.data[0] = reinterpret_cast<uint64_t>(mark);
  uint64_t sequence;
  Status status = stream->Queue(std::move(work), &sequence);
  if (!status.ok()) {
    if (number != 0) shared_.CompleteRecord(number);
    delete mark;
    return status;
  }
  // The record is complete when its time is known, so it includes the mark.
  std::lock_guard<FutexLock> guard(lock_);
  if (record_.version == version) record_.sequence = sequence;
  return Status();
}

Status Event::Query() {
  Captured record = Snapshot();
  if (PeerRecorded(record)) return shared_.State(shared_.recorded());
  if (record.stream == nullptr || record.stream->Passed(record.sequence)) return Status();
  return Status::NotReady();
}

Status Event::Synchronize(Deadline deadline) {
  Captured record = Snapshot();
  if (PeerRecorded(record)) {
    return shared_.Wait(shared_.recorded(), deadline, [](void*) { return false; }, nullptr);
  }
  if (record.stream == nullptr) return Status();
  OPENREG_RETURN_IF_ERROR(record.stream->WaitFor(record.sequence, deadline, "event synchronise"));
  return record.stream->id() == record.stream_id ? record.stream->TakeError() : Status();
}

namespace {

struct SharedWait {
  SharedEvent shared;
  uint64_t number;
  WorkerGroup* group;
  Stream* stream;
};

orError_t RunSharedWait(Work& work) {
  std::unique_ptr<SharedWait> wait(reinterpret_cast<SharedWait*>(work.data[0]));
  auto stop = [](void* group) { return static_cast<WorkerGroup*>(group)->stopping(); };
  Status status = wait->shared.Wait(wait->number, Deadline::Infinite(), stop, wait->group);
  if (!status.ok()) wait->stream->SetError(status.code(), status.message());
  return orSuccess;
}

}  // namespace

Status Event::QueueWait(Stream* stream) {
  Work work;
  work.name = "event wait";
  work.silent = true;
  Captured record = Snapshot();
  if (PeerRecorded(record)) {
    uint64_t number = shared_.recorded();
    Status state = shared_.State(number);
    if (state.code() != orErrorNotReady) return state;
    auto* wait = new SharedWait{shared_, number, stream->group(), stream};
    work.run = RunSharedWait;
    work.data[0] = reinterpret_cast<uint64_t>(wait);
    Status status = stream->Queue(std::move(work));
    if (!status.ok()) delete wait;
    return status;
  }
  // In order anyway on the own stream.
  if (record.stream == nullptr || record.stream == stream) return Status();
  if (record.stream->Passed(record.sequence)) {
    if (record.stream->id() == record.stream_id) record.stream->CopyErrorTo(stream);
    return Status();
  }
  work.data[0] = reinterpret_cast<uint64_t>(record.stream);
  work.data[1] = record.sequence;
  work.data[2] = reinterpret_cast<uint64_t>(stream);
  work.run = [](Work& self) {
    auto* source = reinterpret_cast<Stream*>(self.data[0]);
    (void)source->WaitQuietly(self.data[1], Deadline::Infinite());
    source->CopyErrorTo(reinterpret_cast<Stream*>(self.data[2]));
    return orSuccess;
  };
  return stream->Queue(std::move(work));
}

Status Event::ElapsedTime(float* ms, Event* start, Event* end) {
  if (start->device() != end->device()) {
    return Status(
        orErrorInvalidResourceHandle,
        Format("elapsed time: expected two events of one device, got one of device %d and "
               "one of device %d",
               start->device(), end->device()));
  }
  int64_t times_ns[2];
  Event* events[2] = {start, end};
  for (int i = 0; i < 2; ++i) {
    Captured record = events[i]->Snapshot();
    const char* which = i == 0 ? "start" : "end";
    if ((events[i]->flags_ & orEventDisableTiming) != 0 || record.stream == nullptr) {
      return Status(
          orErrorInvalidResourceHandle,
          Format("elapsed time: the %s event %s", which,
                 record.stream == nullptr ? "was never recorded" : "has timing disabled"));
    }
    if (record.time_ns == 0) {
      return Status::NotReady();
    }
    times_ns[i] = record.time_ns;
  }
  *ms = static_cast<float>(static_cast<double>(times_ns[1] - times_ns[0]) * 1e-6);
  return Status();
}

}  // namespace openreg
