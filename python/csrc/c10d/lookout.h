// Tells OCCL which processes ranks are that a message waits for and that have not joined yet: the
// message then fails when such a process ends, or makes another group by the same name, not at its
// timeout.
#ifndef PYTHON_CSRC_C10D_LOOKOUT_H_
#define PYTHON_CSRC_C10D_LOOKOUT_H_

#include <condition_variable>
#include <mutex>
#include <thread>
#include <vector>

#include "occl/api/occl.h"
#include "python/csrc/c10d/presence.h"

namespace torch_openreg {

// A rank's announcement usually is in the store when the first message to or from it is issued.
// Where it is not, a thread asks for it now and then, until all ranks asked for are known.
// Thread-safe.
class Lookout {
 public:
  // `comm` must outlive it. `announcements`: where to find out who a rank is.
  Lookout(occlComm_t comm, std::vector<Announcement> announcements);
  ~Lookout();
  Lookout(const Lookout&) = delete;
  Lookout& operator=(const Lookout&) = delete;

  // Call without the interpreter lock. Throws nothing: without the store the timeout has to do.
  void look_for(int rank);

 private:
  void look();  // with mutex_ held
  void run();
  bool told(int rank);

  const occlComm_t comm_;
  Presence presence_;
  std::mutex mutex_;  // guards presence_ and the rest
  std::condition_variable changed_;
  std::vector<int> wanted_;
  bool stopping_ = false;
  bool running_ = false;
  std::thread thread_;
};

}  // namespace torch_openreg

#endif  // PYTHON_CSRC_C10D_LOOKOUT_H_
