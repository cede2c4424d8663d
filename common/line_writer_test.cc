#include "common/line_writer.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <termios.h>
#include <unistd.h>

#include <cerrno>
#include <fstream>
#include <sstream>
#include <string>
#include <thread>

#include "gtest/gtest.h"

namespace line_writer {
namespace {

bool Write(LineWriter* writer, int fd, const std::string& line) {
  return writer->Write(fd, line.data(), line.size());
}

// What comes out of `fd` up to `end`, which comes for sure: a terminal takes its time.
std::string ReadUpTo(int fd, const std::string& end) {
  std::string text;
  char part[4096];
  while (!text.ends_with(end)) {
    const ssize_t n = read(fd, part, sizeof(part));
    if (n <= 0) return text + " and then the end";
    text.append(part, n);
  }
  return text;
}

// What lies in `fd`, perhaps not all of it.
std::string Drain(int fd) {
  std::string text;
  char part[4096];
  pollfd ready = {fd, POLLIN, 0};
  while (poll(&ready, 1, 100) == 1) {
    const ssize_t n = read(fd, part, sizeof(part));
    if (n <= 0) break;
    text.append(part, n);
  }
  return text;
}

// Two ends; what is written to out() comes out of in(). A blocking one, as stderr is.
class Ends {
 public:
  enum Kind { kPipe, kSocket, kTerminal };

  explicit Ends(Kind kind) {
    int made[2] = {-1, -1};
    if (kind == kPipe) {
      EXPECT_EQ(pipe2(made, O_CLOEXEC), 0);
    } else if (kind == kSocket) {
      EXPECT_EQ(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, made), 0);
    } else {
      made[0] = posix_openpt(O_RDWR | O_NOCTTY | O_CLOEXEC);
      EXPECT_TRUE(grantpt(made[0]) == 0 && unlockpt(made[0]) == 0);
      made[1] = open(ptsname(made[0]), O_RDWR | O_NOCTTY | O_CLOEXEC);
      termios raw = {};
      EXPECT_EQ(tcgetattr(made[1], &raw), 0);
      cfmakeraw(&raw);
      EXPECT_EQ(tcsetattr(made[1], TCSANOW, &raw), 0);
    }
    in_ = made[0];
    out_ = made[1];
  }
  ~Ends() {
    CloseIn();
    close(out_);
  }
  Ends(const Ends&) = delete;
  Ends& operator=(const Ends&) = delete;

  int in() const { return in_; }
  int out() const { return out_; }
  void CloseIn() {
    if (in_ >= 0) close(in_);
    in_ = -1;
  }
  // With this many 'x'.
  size_t Fill() const {
    const int flags = fcntl(out_, F_GETFL);
    EXPECT_EQ(fcntl(out_, F_SETFL, flags | O_NONBLOCK), 0);
    const std::string part(512, 'x');
    size_t filled_bytes = 0;
    pollfd room = {out_, POLLOUT, 0};
    do {
      for (ssize_t n = 0; (n = write(out_, part.data(), part.size())) > 0;) filled_bytes += n;
    } while (errno == EAGAIN && poll(&room, 1, 200) == 1);
    EXPECT_EQ(fcntl(out_, F_SETFL, flags), 0);
    return filled_bytes;
  }

 private:
  int in_ = -1;
  int out_ = -1;
};

class OfEachKind : public testing::TestWithParam<Ends::Kind> {};
INSTANTIATE_TEST_SUITE_P(LineWriter, OfEachKind,
                         testing::Values(Ends::kPipe, Ends::kSocket, Ends::kTerminal));

TEST_P(OfEachKind, ALineArrivesAndTheFlagsStay) {
  const Ends ends(GetParam());
  const int flags = fcntl(ends.out(), F_GETFL);
  LineWriter writer("test");
  EXPECT_TRUE(Write(&writer, ends.out(), "hello\n"));
  EXPECT_EQ(ReadUpTo(ends.in(), "\n"), "hello\n");
  EXPECT_EQ(fcntl(ends.out(), F_GETFL), flags);
}

// A writer that blocks hangs here: the test's own deadline ends it.
TEST_P(OfEachKind, WhatNobodyReadsIsDroppedAndCounted) {
  const Ends ends(GetParam());
  const size_t filled_bytes = ends.Fill();
  const int flags = fcntl(ends.out(), F_GETFL);
  LineWriter writer("test");
  errno = 0;
  for (int i = 0; i < 100; ++i) EXPECT_FALSE(Write(&writer, ends.out(), "lost\n"));
  EXPECT_EQ(errno, 0);
  EXPECT_EQ(fcntl(ends.out(), F_GETFL), flags);
  std::string text = Drain(ends.in());
  EXPECT_TRUE(Write(&writer, ends.out(), "hello\n"));
  EXPECT_TRUE(Write(&writer, ends.out(), "again\n"));
  text += ReadUpTo(ends.in(), "again\n");
  ASSERT_GT(text.size(), filled_bytes);
  EXPECT_EQ(text.substr(filled_bytes),
            "test: 100 log line(s) dropped here: nobody read them\nhello\nagain\n");
}

TEST_P(OfEachKind, ALongLineIsReadWhileItIsWritten) {
  const Ends ends(GetParam());
  const std::string line = std::string(300'000, 'y') + '\n';
  std::string text;
  std::thread reader([&] { text = ReadUpTo(ends.in(), "hello\n"); });
  LineWriter writer("test");
  const bool written = Write(&writer, ends.out(), line);  // false: the machine is loaded
  while (!Write(&writer, ends.out(), "hello\n")) {
  }
  reader.join();
  if (written) {
    EXPECT_TRUE(text.starts_with(line));
  } else {
    EXPECT_NE(text.find("\ntest: "), std::string::npos);
  }
}

TEST_P(OfEachKind, ACutLineEndsBeforeTheNext) {
  const Ends ends(GetParam());
  const std::string line = std::string(2'000'000, 'y') + '\n';
  LineWriter writer("test");
  EXPECT_FALSE(Write(&writer, ends.out(), line));
  std::string text = Drain(ends.in());
  EXPECT_TRUE(Write(&writer, ends.out(), "hello\n"));
  text += ReadUpTo(ends.in(), "hello\n");
  EXPECT_EQ(text.substr(text.find_first_not_of('y')),
            "\ntest: 1 log line(s) dropped here: nobody read them\nhello\n");
  EXPECT_EQ(text[0], 'y');
}

TEST_P(OfEachKind, AReaderThatHasGoneIsNoSignal) {
  Ends ends(GetParam());
  ends.CloseIn();
  ASSERT_NE(signal(SIGPIPE, SIG_DFL), SIG_ERR);
  LineWriter writer("test");
  EXPECT_FALSE(Write(&writer, ends.out(), "lost\n"));
  sigset_t blocked;
  ASSERT_EQ(pthread_sigmask(SIG_SETMASK, nullptr, &blocked), 0);
  EXPECT_EQ(sigismember(&blocked, SIGPIPE), 0);
}

TEST(LineWriter, AFileIsAppendedTo) {
  std::string path = testing::TempDir() + "/line_writer.XXXXXX";
  const int fd = mkstemp(path.data());
  ASSERT_GE(fd, 0);
  LineWriter writer("test");
  EXPECT_TRUE(Write(&writer, fd, "one\n"));
  EXPECT_TRUE(Write(&writer, fd, "two\n"));
  close(fd);
  std::stringstream text;
  text << std::ifstream(path).rdbuf();
  EXPECT_EQ(text.str(), "one\ntwo\n");
  unlink(path.c_str());
}

TEST(LineWriter, ADescriptorMayBeClosedAndBeAnotherFileLater) {
  const Ends first(Ends::kPipe);
  const Ends second(Ends::kSocket);
  const int fd = dup(first.out());
  LineWriter writer("test");
  EXPECT_TRUE(Write(&writer, fd, "one\n"));
  close(fd);
  EXPECT_FALSE(Write(&writer, fd, "lost\n"));
  ASSERT_EQ(dup2(second.out(), fd), fd);
  EXPECT_TRUE(Write(&writer, fd, "two\n"));
  close(fd);
  EXPECT_EQ(ReadUpTo(first.in(), "\n"), "one\n");
  EXPECT_EQ(ReadUpTo(second.in(), "two\n"),
            "test: 1 log line(s) dropped here: nobody read them\ntwo\n");
}

TEST(LineWriter, AnEndThatOnlyReadsIsNotWrittenTo) {
  const Ends ends(Ends::kPipe);
  LineWriter writer("test");
  EXPECT_FALSE(Write(&writer, ends.in(), "lost\n"));
  EXPECT_EQ(Drain(ends.in()), "");
}

// A pipe is then written by its own descriptor, where there is room.
TEST(LineWriter, NoDescriptorIsLeft) {
  const Ends ends(Ends::kPipe);
  rlimit before = {};
  ASSERT_EQ(getrlimit(RLIMIT_NOFILE, &before), 0);
  const rlimit none = {1, before.rlim_max};  // of 0, poll() allows nothing at all
  ASSERT_EQ(setrlimit(RLIMIT_NOFILE, &none), 0);
  LineWriter writer("test");
  EXPECT_TRUE(Write(&writer, ends.out(), "hello\n"));
  const size_t filled_bytes = ends.Fill();
  EXPECT_FALSE(Write(&writer, ends.out(), "lost\n"));
  EXPECT_FALSE(Write(&writer, ends.out(), "lost\n"));
  std::string text = Drain(ends.in());
  EXPECT_TRUE(Write(&writer, ends.out(), "again\n"));
  EXPECT_EQ(setrlimit(RLIMIT_NOFILE, &before), 0);
  text += ReadUpTo(ends.in(), "again\n");
  EXPECT_EQ(text, "hello\n" + std::string(filled_bytes, 'x') +
                      "test: 2 log line(s) dropped here: nobody read them\nagain\n");
}

TEST(WriteWithin, EndsWhereNobodyReads) {
  Ends ends(Ends::kPipe);
  ASSERT_EQ(fcntl(ends.out(), F_SETFL, O_WRONLY | O_NONBLOCK), 0);
  EXPECT_TRUE(WriteWithin(ends.out(), "abc", 3, 10));
  EXPECT_EQ(Drain(ends.in()), "abc");
  ends.Fill();
  EXPECT_FALSE(WriteWithin(ends.out(), "abc", 3, 10));
  ends.CloseIn();
  ASSERT_NE(signal(SIGPIPE, SIG_DFL), SIG_ERR);
  EXPECT_FALSE(WriteWithin(ends.out(), "abc", 3, 10));
}

}  // namespace
}  // namespace line_writer
