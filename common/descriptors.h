// Descriptors that are not taken for stdin, stdout or stderr.
#ifndef COMMON_DESCRIPTORS_H_
#define COMMON_DESCRIPTORS_H_

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>

namespace descriptors {

// `fd`, or a copy of it in its place where it is 0, 1 or 2: a program that has closed its stderr
// would have log lines written into what is opened next. -1 (errno) where that is impossible, and
// for -1 (errno is kept).
inline int AboveStandard(int fd) {
  if (fd < 0 || fd > STDERR_FILENO) return fd;
  const int moved = fcntl(fd, F_DUPFD_CLOEXEC, STDERR_FILENO + 1);
  const int error = errno;
  close(fd);
  errno = error;
  return moved;
}

}  // namespace descriptors

#endif  // COMMON_DESCRIPTORS_H_
