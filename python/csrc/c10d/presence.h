// Which processes the ranks of a group are, told through the store before the ranks meet in a
// communicator: a rank that dies before that would otherwise be waited for until the timeout.
#ifndef PYTHON_CSRC_C10D_PRESENCE_H_
#define PYTHON_CSRC_C10D_PRESENCE_H_

#include <c10/util/intrusive_ptr.h>

#include <string>
#include <torch/csrc/distributed/c10d/Store.hpp>
#include <vector>

namespace torch_openreg {

// Tells the other ranks of the store's group that this process is `rank`.
void announce_presence(c10d::Store& store, int rank);

// Where a rank's announcement is found: one of its group's store, or of another group it is in.
struct Announcement {
  c10::intrusive_ptr<c10d::Store> store;
  int rank_in_store;
  int rank;  // in the group that waits
};

// Watches ranks that have not come yet. Not thread-safe.
class Presence {
 public:
  explicit Presence(std::vector<Announcement> announcements);
  ~Presence();
  Presence(const Presence&) = delete;
  Presence& operator=(const Presence&) = delete;

  // "rank 2 (pid 4711) ended before it came" for a rank whose process has ended; "" if none is
  // known to. Ranks that have announced nothing, or run where this process cannot see them, are
  // taken to live. Does not block; throws what the store throws.
  std::string find_gone();

  // Who `rank` is. pid 0: it has announced nothing, or runs where this process cannot see it. pidfd
  // (this object's) -1: it has ended. Does not block; throws what the store throws.
  struct Process {
    long long pid;
    int pidfd;
  };
  Process find(int rank);

 private:
  struct Peer {
    Announcement announcement;
    bool read = false;
    bool ended = false;
    int pidfd = -1;
    long long pid = 0;
  };
  static void read(Peer& peer);

  std::vector<Peer> peers_;
};

}  // namespace torch_openreg

#endif  // PYTHON_CSRC_C10D_PRESENCE_H_
