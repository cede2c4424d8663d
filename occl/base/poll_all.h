// poll(2) of many descriptors.
#ifndef OCCL_BASE_POLL_ALL_H_
#define OCCL_BASE_POLL_ALL_H_

#include <poll.h>

#include <vector>

namespace occl {

// As poll(2), which refuses (EINVAL) more entries than this process may have descriptors: that
// limit may have fallen since they were opened (RLIMIT_NOFILE). Then it asks for each by itself.
int PollAll(std::vector<pollfd>* polls, int timeout_ms);

}  // namespace occl

#endif  // OCCL_BASE_POLL_ALL_H_
