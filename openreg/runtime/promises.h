// What each process of this user has reserved, where the others can see it: device memory takes
// none of the machine's until it is touched, so the system alone does not know what is promised.
#ifndef OPENREG_RUNTIME_PROMISES_H_
#define OPENREG_RUNTIME_PROMISES_H_

#include <cstdint>
#include <vector>

#include "openreg/runtime/config.h"

namespace openreg {

// A process shows its number as the size of an empty file without a name, which the others find
// among its descriptors in /proc; what it has touched of it is the size of its arenas' files.
// Nothing is left when it ends. Processes of other users, and of namespaces that cannot be seen,
// show nothing. Not thread-safe.
class Promises {
 public:
  Promises() = default;
  Promises(const Promises&) = delete;
  Promises& operator=(const Promises&) = delete;
  ~Promises();

  // Where no descriptor is left, nothing is shown.
  void Show(uint64_t reserved_bytes);
  // Of the other processes, what is reserved and not touched yet. A few microseconds for each
  // process of this user.
  std::vector<Promise> OfOthers() const;

 private:
  int fd_ = -1;
};

}  // namespace openreg
#endif  // OPENREG_RUNTIME_PROMISES_H_
