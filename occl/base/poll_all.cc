#include "occl/base/poll_all.h"

#include <unistd.h>

#include <cerrno>

#include "occl/base/clock.h"

namespace occl {
namespace {

constexpr useconds_t kPause_us = 5'000;

}  // namespace

int PollAll(std::vector<pollfd>* polls, int timeout_ms) {
  const int ready = poll(polls->data(), polls->size(), timeout_ms);
  if (ready >= 0 || errno != EINVAL) return ready;
  const Deadline deadline = Deadline::After(timeout_ms);
  while (true) {
    int found = 0;
    for (pollfd& one : *polls) {
      one.revents = 0;
      if (one.fd >= 0 && poll(&one, 1, 0) > 0) ++found;
    }
    if (found > 0 || deadline.Passed()) return found;
    usleep(kPause_us);
  }
}

}  // namespace occl
