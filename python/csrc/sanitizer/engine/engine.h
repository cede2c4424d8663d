// The sanitizer's engine: happened-before between streams and the host, and what violates it.
//
// Everything is decided when work is issued, from the order that the program asks for and not from
// the order in which things happened to run, so a race is found whether or not it has done harm.
// The method is that of the dynamic race detectors: vector clocks (DJIT+, Pozniansky and Schuster,
// PPoPP 2003) with epochs (FastTrack, Flanagan and Freund, PLDI 2009), with streams in the place of
// threads and events in the place of locks; ThreadSanitizer (Serebryany and Iskhodzhanov, WBIA
// 2009) does the same for host threads.
//
// The order:
//   * a stream runs its operations as they were issued;
//   * an operation comes after everything that the host had waited for when it was issued;
//   * a wait for an event comes after what the event captured when it was recorded last;
//   * the host comes after what it has synchronised with.
// All threads of the host count as one: how they hand over to each other cannot be seen here, and
// is taken to be right.
#ifndef PYTHON_CSRC_SANITIZER_ENGINE_ENGINE_H_
#define PYTHON_CSRC_SANITIZER_ENGINE_ENGINE_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <unordered_map>
#include <vector>

#include "python/csrc/sanitizer/engine/access.h"
#include "python/csrc/sanitizer/engine/blocks.h"
#include "python/csrc/sanitizer/engine/shadow.h"
#include "python/csrc/sanitizer/engine/vector_clock.h"

namespace torch_openreg::sanitizer {

// Thread-safe. Handles of streams and events are opaque numbers.
class Engine {
 public:
  using Handle = std::uintptr_t;
  // What has happened before a point, kept by whoever may be waited for.
  using Snapshot = std::shared_ptr<const VectorClock>;

  // ---- order
  Timeline timeline(Handle stream);
  Handle handle_of(Timeline timeline);
  void record_event(Handle event, Handle stream);
  void forget_event(Handle event);
  void stream_waits_for_event(Handle stream, Handle event);
  void stream_waits_for_stream(Handle stream, Handle other);
  void host_waits_for_event(Handle event);
  void host_waits_for_stream(Handle stream);
  // Of all streams whose handles `select` picks.
  void host_waits_for_streams(const std::function<bool(Handle)>& select);
  Snapshot snapshot(Handle stream);
  void stream_waits_for(Handle stream, const Snapshot& snapshot);
  void host_waits_for(const Snapshot& snapshot);
  bool host_covers(const Snapshot& snapshot);

  // ---- work
  // Gives `operation` its place on its stream and returns what it is from now on.
  std::shared_ptr<const Operation> begin(Operation operation, Handle stream);
  // An access of an operation that was begun. Returns what is wrong with it.
  std::vector<Finding> access(Access access);
  // The operation did not run after all: it was refused, or has failed at once.
  void withdraw(const Operation& operation);
  // The host reads or writes memory that streams may use too (pinned memory): not remembered, since
  // all that is issued later comes after it.
  std::vector<Finding> host_access(Access access);

  // ---- memory
  void allocate(Address low, std::size_t bytes, Handle stream);
  void free(Address low, Place place);
  // The block containing `at` is not reused before `stream` has passed the work issued until it is
  // freed.
  void record_stream(Address at, Handle stream);
  // Host memory that nobody uses any more.
  void forget_memory(Address low, std::size_t bytes);
  // All of it, and all events: what happens from now on is not told.
  void forget();
  // Streams have used these addresses.
  bool used_by_streams(Address low, Address high);

 private:
  struct Stream {
    Handle handle = 0;
    VectorClock clock;
    std::uint64_t host_version = 0;  // the last of host_ that was joined
  };

  Stream& stream_of(Handle stream);
  Stream& now(Handle stream);
  void join_host(const VectorClock& clock);
  void check_memory(const AccessPtr& access, std::vector<Finding>* findings);
  void check_reuse(const AccessPtr& access, const Block& block, std::vector<Finding>* findings);

  std::mutex mutex_;  // guards everything
  std::unordered_map<Handle, Timeline> timelines_;
  std::vector<Stream> streams_;  // by timeline
  std::unordered_map<Handle, VectorClock> events_;
  VectorClock host_;
  std::uint64_t host_version_ = 1;
  Shadow shadow_;
  Blocks blocks_;
};

}  // namespace torch_openreg::sanitizer

#endif  // PYTHON_CSRC_SANITIZER_ENGINE_ENGINE_H_
