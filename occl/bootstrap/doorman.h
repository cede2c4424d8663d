// The one thread of a process that lets ranks in: it hands the control segments of the groups whose
// doors it keeps to those who come and know the secret.
#ifndef OCCL_BOOTSTRAP_DOORMAN_H_
#define OCCL_BOOTSTRAP_DOORMAN_H_

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "occl/base/clock.h"
#include "occl/base/status.h"
#include "occl/base/unique_fd.h"
#include "occl/bootstrap/messages.h"
#include "occl/transport/control_segment.h"

namespace occl {

// A connection that has not said hello.
struct Stranger {
  UniqueFd socket;
  Deadline deadline;
};

// What a rank keeps of its group, for those who come later.
struct Door {
  std::string name;  // of the communicator
  RankCard card;     // of the rank that keeps it here
  Secret secret;
  UniqueFd listener;
  UniqueFd file;  // of the segment
  std::shared_ptr<ControlSegment> segment;
  // Nobody can be let in any more: the group fails. Called once, on the doorman's thread.
  std::function<void(const Status&)> fail;

  // The doorman's own.
  std::vector<Stranger> strangers;
  bool retired = false;   // the rank has left
  Deadline end;           // never, until then
  bool is_short = false;  // of descriptors, until `patience`
  Deadline patience;
  Status failure;  // for all who come from now on
};

// True once every rank has been let in, or has left.
bool AllLetIn(ControlSegment* segment);

// Thread-safe. The thread runs while there are doors, and a while longer. A forked child has none
// of them.
class Doorman {
 public:
  static constexpr int64_t kGrace_ms = 60'000;

  static Doorman& Get();
  // Until all ranks have been let in. Takes *door unless it fails.
  Status Keep(std::unique_ptr<Door>* door, uint64_t* id);
  // At once; nothing if it is closed.
  void Close(uint64_t id);
  // The rank of the door leaves: kGrace_ms more.
  void Retire(uint64_t id);

 private:
  Doorman();
  Status Start();  // unless it runs
  void Run();
  bool RunOnce();  // false: nothing is left to do
  void ForgetAll();

  using Doors = std::map<uint64_t, std::unique_ptr<Door>>;
  Doors::iterator Remove(Doors::iterator door);
  // One door. False: it is to be closed.
  bool Serve(uint64_t id, Door* door);
  void AcceptAll(uint64_t id, Door* door);
  UniqueFd Accept(Door* door);
  bool MakeRoom(Door* door, const Status& shortage);
  void Answer(Door* door, const UniqueFd& socket);
  Status LetIn(Door* door, const Hello& hello, const UniqueFd& socket);

  std::mutex mutex_;  // guards the rest
  bool running_ = false;
  UniqueFd epoll_;
  UniqueFd spare_;  // given up to let a rank in where no descriptor is left
  Doors doors_;
  uint64_t next_id_ = 1;
  Deadline idle_end_;
  Deadline next_round_;
  bool short_ = false;  // in this round
};

}  // namespace occl

#endif  // OCCL_BOOTSTRAP_DOORMAN_H_
