#include "common/line_writer.h"

#include <fcntl.h>
#include <limits.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cinttypes>
#include <cstdio>

namespace line_writer {
namespace {

constexpr int64_t kPause_ms = 2;

int64_t Now_ms() {
  timespec now = {};
  clock_gettime(CLOCK_MONOTONIC, &now);
  return static_cast<int64_t>(now.tv_sec) * 1000 + now.tv_nsec / 1'000'000;
}

// While it lives, a write of this thread to a pipe without a reader is an error and no signal.
class NoSigPipe {
 public:
  NoSigPipe() {
    sigemptyset(&pipe_);
    sigaddset(&pipe_, SIGPIPE);
    sigset_t pending;
    sigemptyset(&pending);
    sigpending(&pending);
    was_pending_ = sigismember(&pending, SIGPIPE) == 1;
    pthread_sigmask(SIG_BLOCK, &pipe_, &before_);
  }
  ~NoSigPipe() {
    constexpr timespec kNoWait = {};
    while (!was_pending_ && sigtimedwait(&pipe_, nullptr, &kNoWait) < 0 && errno == EINTR) {
    }
    pthread_sigmask(SIG_SETMASK, &before_, nullptr);
    errno = errno_;
  }
  NoSigPipe(const NoSigPipe&) = delete;
  NoSigPipe& operator=(const NoSigPipe&) = delete;

 private:
  const int errno_ = errno;
  sigset_t pipe_;
  sigset_t before_;
  bool was_pending_ = false;
};

enum class Way {
  kWrite,  // does not block
  kSend,   // a socket: send does not block
  kPoll,   // may block: only what there is room for
};

ssize_t WriteSome(int fd, Way way, const char* data, size_t size_bytes) {
  switch (way) {
    case Way::kWrite:
      return write(fd, data, size_bytes);
    case Way::kSend:
      return send(fd, data, size_bytes, MSG_DONTWAIT | MSG_NOSIGNAL);
    case Way::kPoll: {
      pollfd room = {fd, POLLOUT, 0};
      if (poll(&room, 1, 0) == 1) return write(fd, data, std::min<size_t>(size_bytes, PIPE_BUF));
      errno = EAGAIN;
      return -1;
    }
  }
  return -1;
}

// How many bytes were written by the time `end_ms`.
size_t WriteUntil(int fd, Way way, const char* data, size_t size_bytes, int64_t end_ms) {
  size_t done_bytes = 0;
  while (done_bytes < size_bytes) {
    const ssize_t written = WriteSome(fd, way, data + done_bytes, size_bytes - done_bytes);
    if (written > 0) {
      done_bytes += static_cast<size_t>(written);
      continue;
    }
    if (written < 0 && errno == EINTR) continue;
    if (written < 0 && errno != EAGAIN && errno != EWOULDBLOCK) break;
    if (Now_ms() >= end_ms) break;
    constexpr timespec kPause = {0, kPause_ms * 1'000'000};
    nanosleep(&kPause, nullptr);  // poll() may say that there is room where write() sees none
  }
  return done_bytes;
}

// A way to write to `fd` without blocking, whatever it is.
class Target {
 public:
  explicit Target(int fd) : fd_(fd) {
    struct stat status = {};
    if (fstat(fd, &status) != 0) return;  // closed: write() says so
    if (S_ISSOCK(status.st_mode)) way_ = Way::kSend;
    if (S_ISFIFO(status.st_mode) || (S_ISCHR(status.st_mode) && isatty(fd) == 1)) Reopen(status);
  }
  ~Target() {
    if (own_fd_ >= 0) close(own_fd_);
  }
  Target(const Target&) = delete;
  Target& operator=(const Target&) = delete;

  int fd() const { return own_fd_ >= 0 ? own_fd_ : fd_; }
  Way way() const { return way_; }

 private:
  // O_NONBLOCK belongs to the open file, which `fd_` shares with other processes: so one more.
  void Reopen(const struct stat& status) {
    way_ = Way::kPoll;
    if ((fcntl(fd_, F_GETFL) & O_ACCMODE) == O_RDONLY) return;
    char path[32];
    std::snprintf(path, sizeof(path), "/proc/self/fd/%d", fd_);
    const int opened = open(path, O_WRONLY | O_NONBLOCK | O_CLOEXEC | O_NOCTTY);
    if (opened < 0) return;
    struct stat found = {};
    if (fstat(opened, &found) != 0 || found.st_dev != status.st_dev ||
        found.st_ino != status.st_ino) {
      close(opened);
      return;
    }
    own_fd_ = opened;
    way_ = Way::kWrite;
  }

  const int fd_;
  int own_fd_ = -1;
  Way way_ = Way::kWrite;
};

}  // namespace

bool WriteWithin(int fd, const char* data, size_t size_bytes, int64_t limit_ms) {
  const NoSigPipe no_signal;
  return WriteUntil(fd, Way::kWrite, data, size_bytes, Now_ms() + limit_ms) == size_bytes;
}

bool LineWriter::Write(int fd, const char* line, size_t size_bytes) {
  const NoSigPipe no_signal;
  const Target target(fd);
  const int64_t end_ms = Now_ms() + (stuck_.load(std::memory_order_relaxed) ? 0 : kPatience_ms);
  const uint64_t dropped = dropped_.exchange(0, std::memory_order_relaxed);
  if (dropped != 0) {
    char note[160];
    const int note_bytes = std::snprintf(
        note, sizeof(note), "%s%s: %" PRIu64 " log line(s) dropped here: nobody read them\n",
        cut_.load(std::memory_order_relaxed) ? "\n" : "", who_, dropped);
    const size_t told_bytes = WriteUntil(target.fd(), target.way(), note, note_bytes, end_ms);
    if (told_bytes != static_cast<size_t>(note_bytes)) {
      if (told_bytes != 0) cut_.store(true, std::memory_order_relaxed);
      dropped_.fetch_add(dropped + 1, std::memory_order_relaxed);
      stuck_.store(true, std::memory_order_relaxed);
      return false;
    }
    cut_.store(false, std::memory_order_relaxed);
  }
  const size_t done_bytes = WriteUntil(target.fd(), target.way(), line, size_bytes, end_ms);
  const bool written = done_bytes == size_bytes;
  stuck_.store(!written, std::memory_order_relaxed);
  if (!written) {
    if (done_bytes != 0) cut_.store(true, std::memory_order_relaxed);
    dropped_.fetch_add(1, std::memory_order_relaxed);
  }
  return written;
}

}  // namespace line_writer
