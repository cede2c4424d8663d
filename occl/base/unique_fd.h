// Owner of a file descriptor.
#ifndef OCCL_BASE_UNIQUE_FD_H_
#define OCCL_BASE_UNIQUE_FD_H_

#include <unistd.h>

#include <utility>

#include "common/descriptors.h"

namespace occl {

class UniqueFd {
 public:
  UniqueFd() = default;
  // Never 0, 1 or 2.
  explicit UniqueFd(int fd) : fd_(descriptors::AboveStandard(fd)) {}
  UniqueFd(UniqueFd&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}
  UniqueFd& operator=(UniqueFd&& other) noexcept {
    std::swap(fd_, other.fd_);
    return *this;
  }
  ~UniqueFd() { Reset(); }

  int get() const { return fd_; }
  bool valid() const { return fd_ >= 0; }
  void Reset() {
    if (fd_ >= 0) close(std::exchange(fd_, -1));
  }

 private:
  int fd_ = -1;
};

}  // namespace occl

#endif  // OCCL_BASE_UNIQUE_FD_H_
