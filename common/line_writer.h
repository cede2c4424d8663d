// Log lines that never hang the program: stderr may be a pipe that nobody reads, or a stopped
// terminal.
#ifndef COMMON_LINE_WRITER_H_
#define COMMON_LINE_WRITER_H_

#include <atomic>
#include <cstddef>
#include <cstdint>

namespace line_writer {

// Writes to `fd`, which is open with O_NONBLOCK or is a file. False: not all of it within
// `limit_ms`, or an error. Keeps errno, raises no SIGPIPE.
bool WriteWithin(int fd, const char* data, size_t size_bytes, int64_t limit_ms);

// Thread-safe and without a lock, so that it works after fork(), too. Allocates nothing.
class LineWriter {
 public:
  static constexpr int64_t kPatience_ms = 100;

  // `who` is named in the line that tells of dropped ones; it is kept as it is.
  explicit constexpr LineWriter(const char* who) : who_(who) {}

  // Writes a line, with its '\n', with one system call (of a pipe: if it is no longer than
  // PIPE_BUF). False: it was dropped or cut, and the next one that can be written says so. Waits
  // for a reader for kPatience_ms at most, and not again until a line was written. The flags of
  // `fd` stay as they are: other processes share them. `fd` may be closed, or another file than at
  // the last line.
  bool Write(int fd, const char* line, size_t size_bytes);

 private:
  const char* const who_;
  std::atomic<uint64_t> dropped_{0};  // not told yet
  std::atomic<bool> stuck_{false};    // the last line could not be written
  std::atomic<bool> cut_{false};      // and the text so far ends within a line
};

}  // namespace line_writer

#endif  // COMMON_LINE_WRITER_H_
