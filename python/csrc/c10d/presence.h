// Which processes the ranks of a group are and what group they make, told through the store before
// the ranks meet in a communicator: a rank that dies before that, or makes a group of other members
// by this one's name, would otherwise be waited for until the timeout.
#ifndef PYTHON_CSRC_C10D_PRESENCE_H_
#define PYTHON_CSRC_C10D_PRESENCE_H_

#include <c10/util/intrusive_ptr.h>

#include <chrono>
#include <cstdint>
#include <functional>
#include <string>
#include <torch/csrc/distributed/c10d/Store.hpp>
#include <vector>

#include "occl/api/occl.h"

namespace torch_openreg {

// The group that a rank makes: two ranks of one world never mean different members by one name.
struct RollEntry {
  std::string world;    // which of those that have met in the store, for all alike; "": unknown
  std::string members;  // their global ranks, "4,7"; "": all of the world
};

// Tells the other ranks of the store's group that this process is the global rank `rank`.
void announce_presence(c10d::Store& store, std::uint64_t rank, const RollEntry& entry);

// Where a rank's announcement is found: one of its group's store, or of another group it is in.
struct Announcement {
  c10::intrusive_ptr<c10d::Store> store;
  std::uint64_t global_rank;
  int rank;            // in the group that waits
  RollEntry expected;  // what it is to have announced there; without a world: anything
};

// Where this process waits for others to join a group, for those that miss it in another one: told
// in the store of the first of the largest groups (`own`). Never throws.
class ToldWait {
 public:
  explicit ToldWait(const Announcement& own) : own_(own) {}
  ToldWait(const ToldWait&) = delete;
  ToldWait& operator=(const ToldWait&) = delete;
  // Tells, once; `what`: "all_reduce #1 on rank 0 of 2 in group '1'".
  void tell(const std::string& what);
  // The ranks have joined.
  void over();
  // This rank has failed. Not where the store is why: each call of one that has gone is logged.
  void given_up();

 private:
  void set(const std::string& text) const;

  const Announcement& own_;
  std::string what_;  // "" if nothing is told
};

// A rank that will not come.
struct NoShow {
  std::string why;  // "": none is known
  occlResult_t result = occlRemoteError;
};

// Watches ranks that have not come yet. Not thread-safe.
class Presence {
 public:
  explicit Presence(std::vector<Announcement> announcements);
  ~Presence();
  Presence(const Presence&) = delete;
  Presence& operator=(const Presence&) = delete;

  // "rank 2 (pid 4711) ended before it came" for a rank whose process has ended (occlRemoteError);
  // or a rank that makes another group by this one's name (occlMismatch). Ranks that have announced
  // nothing, or run where this process cannot see them, are taken to live, and those of whom
  // has_left says so have not died. Does not block; throws what the store throws.
  NoShow find_no_show(const std::function<bool(int rank)>& has_left = {});
  // As far as `rank` has announced another group than this one.
  NoShow find_other_group(int rank);

  // Who `rank` is. pid 0: it has announced nothing, or runs where this process cannot see it. pidfd
  // (this object's) -1: it has ended. Does not block; throws what the store throws.
  struct Process {
    long long pid;
    int pidfd;
  };
  Process find(int rank);
  // The pid of `rank` if it is known to have ended, or ends within `patience`; otherwise 0. Does
  // not ask the store.
  long long find_ended(int rank, std::chrono::milliseconds patience);
  // What ToldWait tells of `rank`: "waits in ...", "has given up ..."; "" if nothing. Does not
  // block; throws what the store throws.
  std::string find_wait(int rank) const;
  // "; rank 1 (pid 4711) runs" + `runs_and` + "; it waits in ...": what is known of ranks that have
  // not come in time. Does not block; throws nothing.
  std::string tell_of(const std::vector<int>& missing, const char* runs_and);

 private:
  struct Peer {
    Announcement announcement;
    std::string text;           // what it has announced
    bool read = false;          // and who it is is known
    bool of_this_world = true;  // or may be
    bool ended = false;
    int pidfd = -1;
    long long pid = 0;
    std::string members;  // that it means, where they are not those expected
  };
  static void read(Peer& peer);
  static std::string tell_other_group(const Peer& peer);

  std::vector<Peer> peers_;
};

}  // namespace torch_openreg

#endif  // PYTHON_CSRC_C10D_PRESENCE_H_
