// A communicator of one rank: what init has set up, the order of its operations and its failure.
#ifndef OCCL_CORE_COMM_H_
#define OCCL_CORE_COMM_H_

#include <atomic>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "occl/base/ref.h"
#include "occl/base/status.h"
#include "occl/bootstrap/rendezvous.h"
#include "occl/core/bells.h"
#include "occl/core/factors.h"
#include "occl/core/history.h"
#include "occl/core/match.h"
#include "occl/core/op.h"
#include "occl/core/peers.h"
#include "occl/core/presence.h"
#include "occl/core/quarantine.h"
#include "occl/core/registrations.h"
#include "occl/core/waits.h"
#include "occl/transport/control_segment.h"
#include "occl/transport/direct/peer_arena.h"

namespace occl {

struct CommSettings {
  int nranks;
  int rank;
  int device;
  std::string name;
  std::string members;               // occlConfig_t's
  std::string key_prefix = "occl/";  // in the store where ranks meet
  int64_t timeout_ms;
  int64_t init_timeout_ms;
};

// What occlCommGetStats shows.
class Counter {
 public:
  void Add(uint64_t n) { value_.fetch_add(n, std::memory_order_relaxed); }
  // Where no other thread adds at the same time.
  void AddAlone(uint64_t n) { value_.store(value() + n, std::memory_order_relaxed); }
  uint64_t value() const { return value_.load(std::memory_order_relaxed); }

 private:
  std::atomic<uint64_t> value_{0};
};
struct CommStats {
  Counter operations, bytes_moved, inline_operations;
};
struct CollectiveStats : CommStats {
  Counter oneshot, direct, staged;
};

// Space for the one collective that runs; sized once so that operations allocate nothing.
struct CollectiveScratch {
  explicit CollectiveScratch(int nranks)
      : heads(nranks), sources(nranks), destinations(nranks), scales(2 * size_t(nranks)) {}
  std::vector<RoundHead> heads;
  std::vector<const void*> sources;
  std::vector<void*> destinations;
  std::vector<double> scales;  // (re, im) of each source
};

class Comm final : public RefCounted {
 public:
  // Blocks until all ranks have joined.
  static Status Create(const CommSettings& settings, Meeting* meeting, Ref<Comm>* comm);
  // Waits for no rank but the one that came first, which is about to be there.
  static Status Join(const CommSettings& settings, Meeting* meeting, Ref<Comm>* comm);
  ~Comm() override;

  // ---- constant after construction
  int rank() const { return settings_.rank; }
  int nranks() const { return settings_.nranks; }
  int device() const { return settings_.device; }
  const CommSettings& settings() const { return settings_; }
  const char* name() const { return settings_.name.c_str(); }
  bool direct() const { return presence.direct(); }
  // That the ranks together may use; more ranks than that: crowded.
  int processors() const { return processors_; }
  bool crowded() const { return nranks() > processors_; }
  orStream_t default_stream() const { return default_stream_; }
  ControlSegment& segment() const { return *segment_; }
  RankBlock& block(int rank) const { return segment_->rank(rank); }
  const PeerArena* arena(int rank) const { return presence.arena(rank); }

  // The kernel address of [device_pointer, + size_bytes) and its offset in this rank's arena; false
  // if that is not all device memory of this communicator's device.
  bool Translate(const void* device_pointer, uint64_t size_bytes,
                 unsigned char** kernel_pointer) const;
  uint64_t OffsetOf(const unsigned char* kernel_pointer) const {
    return static_cast<uint64_t>(kernel_pointer - arena_.base);
  }

  void* DevicePointer(const unsigned char* kernel_pointer) const {
    return const_cast<unsigned char*>(arena_.device_base) + OffsetOf(kernel_pointer);
  }

  // ---- failure. Fast: one load each.
  bool good() const {
    return segment_->header().error.load(std::memory_order_acquire) == 0 &&
           !failed_.load(std::memory_order_acquire);
  }
  // What made it fail; success while it is good. The first failure stays.
  Status failure();
  // Fails this communicator on all ranks. Returns the failure that counts: an earlier one, if any.
  Status Fail(const Status& status);
  // The same in two steps, for who has somebody to tell before the log.
  Status FailUnlogged(const Status& status);
  static void LogFailure(const Status& status);
  // As Fail, for this rank only.
  Status FailLocally(const Status& status);
  // These as of the last Refresh of `peers`.
  bool HasDied(int rank) const;
  // "rank 2 (pid 4711) has died": why nothing comes from that rank any more; "" if it may. Of one
  // that has left it tells the deaths as well.
  std::string TellGone(int rank) const;
  // "; rank 2 (pid 4711) has died": to be told with what ranks do where others have died: they
  // leave, abort, shrink. "" if none has.
  std::string TellDeaths() const;

  // ---- operations
  int64_t timeout_ms() const { return timeout_ms_.load(std::memory_order_relaxed); }
  void set_timeout_ms(int64_t ms) { timeout_ms_.store(ms, std::memory_order_relaxed); }
  uint64_t NextCollective() { return next_collective_.fetch_add(1, std::memory_order_relaxed); }
  // The collective whose turn it is.
  uint64_t turn() const { return turn_.load(std::memory_order_acquire); }
  // By the one whose turn it is.
  void PassTurn() {
    turn_.store(turn_.load(std::memory_order_relaxed) + 1, std::memory_order_release);
  }
  // Rounds that every rank has passed.
  uint64_t slowest_done = 0;         // used by the running collective only
  uint64_t next_round = 1;           // used by the running collective only
  CollectiveScratch scratch;         // used by the running collective only
  CollectiveStats collective_stats;  // added to by the running collective only

  void OpIssued() { pending_.fetch_add(1, std::memory_order_relaxed); }
  void OpEnded();
  uint32_t pending() const { return pending_.load(std::memory_order_acquire); }
  // Waits until no operation of this rank is pending; false: the time is over.
  bool WaitIdle(const Deadline& deadline);

  // ---- parts with their own rules
  Bells bells;
  History history;
  Peers peers;
  Presence presence;
  Quarantine quarantine;
  MessageMatcher matcher;
  Factors factors;
  Registrations registrations;
  WaitBoard waits;
  WaitNotice joining{&waits, WaitNotice::What::kCollective};  // in core/presence

  // Numbers of the splits and shrinks, from 1; equal on all ranks as the calls are collective.
  uint64_t NextSplit() { return splits_.fetch_add(1, std::memory_order_relaxed) + 1; }
  uint64_t NextShrink() { return shrinks_.fetch_add(1, std::memory_order_relaxed) + 1; }

  // Tells the peers that this rank is gone, and ends what is pending.
  void Close();

  CommStats message_stats;
  Counter wait_ns;

 private:
  struct Joining;
  // No arenas: none of the ranks has joined yet.
  Comm(const CommSettings& settings, Gathering* gathering,
       std::vector<std::shared_ptr<PeerArena>> arenas, int processors);
  static Status FindSegment(const RendezvousOptions& options, Meeting* meeting, Joining* joining,
                            Gathering* gathering);
  static Status TryJoin(const CommSettings& settings, Meeting* meeting, Joining* joining,
                        Ref<Comm>* comm);
  Status FindDevice();
  Status ReadPeersError(uint32_t word);

  const CommSettings settings_;
  std::shared_ptr<ControlSegment> segment_;
  const int processors_;
  orStream_t default_stream_ = nullptr;
  struct {
    const unsigned char* device_base;
    unsigned char* base;
    uint64_t size_bytes;
  } arena_ = {};

  std::atomic<int64_t> timeout_ms_;
  std::atomic<bool> failed_{false};
  std::mutex failure_mutex_;
  Status failure_;  // guarded by failure_mutex_

  std::atomic<uint64_t> next_collective_{1};  // as torch counts
  std::atomic<uint64_t> turn_{1};
  std::atomic<uint64_t> splits_{0}, shrinks_{0};
  std::atomic<uint32_t> pending_{0};  // futex word of WaitIdle
  std::atomic<uint32_t> idle_waiters_{0};
};

}  // namespace occl

#endif  // OCCL_CORE_COMM_H_
