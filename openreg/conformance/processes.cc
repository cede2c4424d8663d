#include "openreg/conformance/processes.h"

#include <errno.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <vector>

#include "openreg/conformance/conformance.h"

extern char** environ;

namespace openreg_conformance {
namespace {

constexpr int kChildFd = 3;
constexpr int kTransferFailed = 71;
bool in_child = false;

void TransferFailed(const char* what) {
  if (in_child) {
    std::fprintf(stderr, "child: %s: %s\n", what, std::strerror(errno));
    std::_Exit(kTransferFailed);
  }
  ADD_FAILURE() << what << ": " << std::strerror(errno);
}

bool Ready(int fd, short events) {
  pollfd entry{fd, events, 0};
  return poll(&entry, 1, static_cast<int>(kDeadlineMs)) == 1;
}

}  // namespace

void Channel::SendBytes(const void* bytes, size_t size) const {
  if (!Ready(fd_, POLLOUT) || send(fd_, bytes, size, MSG_NOSIGNAL) != static_cast<ssize_t>(size)) {
    TransferFailed("send to the other process");
  }
}

void Channel::ReceiveBytes(void* bytes, size_t size) const {
  char* at = static_cast<char*>(bytes);
  while (size > 0) {
    ssize_t received = Ready(fd_, POLLIN) ? recv(fd_, at, size, 0) : -1;
    if (received == 0 && in_child) std::_Exit(kTransferFailed);  // the parent needs us no more
    if (received <= 0) return TransferFailed("receive from the other process");
    at += received;
    size -= static_cast<size_t>(received);
  }
}

void Channel::Close() {
  if (fd_ >= 0) close(fd_);
  fd_ = -1;
}

Child::Child(const std::string& role, const std::string& environment) : channel_(-1) {
  int fds[2];
  if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, fds) != 0) {
    ADD_FAILURE() << "socketpair";
    return;
  }
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_adddup2(&actions, fds[1], kChildFd);
  std::string argument = "--role=" + role;
  char program[] = "/proc/self/exe";
  char* arguments[] = {program, argument.data(), nullptr};
  std::vector<char*> variables;
  std::string extra = environment;
  if (!extra.empty()) variables.push_back(extra.data());
  for (char** variable = environ; *variable != nullptr; ++variable) variables.push_back(*variable);
  variables.push_back(nullptr);
  EXPECT_EQ(posix_spawn(&pid_, program, &actions, nullptr, arguments, variables.data()), 0);
  posix_spawn_file_actions_destroy(&actions);
  close(fds[1]);
  channel_ = Channel(fds[0]);
}

Child::~Child() {
  channel_.Close();
  if (pid_ < 0) return;
  Kill();
  waitpid(pid_, nullptr, 0);
}

void Child::Kill() { kill(pid_, SIGKILL); }

void Child::Stop() {
  kill(pid_, SIGSTOP);
  int status = 0;
  EXPECT_EQ(waitpid(pid_, &status, WUNTRACED), pid_);
}

int Child::Wait() {
  auto until = std::chrono::steady_clock::now() + std::chrono::milliseconds(kDeadlineMs);
  while (std::chrono::steady_clock::now() < until) {
    int status = 0;
    pid_t ended = waitpid(pid_, &status, WNOHANG);
    if (ended == pid_) {
      pid_ = -1;
      return WIFEXITED(status) ? WEXITSTATUS(status) : -WTERMSIG(status);
    }
    poll(nullptr, 0, 1);  // there is no wait with a timeout for children
  }
  ADD_FAILURE() << "the child did not end in time";
  return -1000;
}

int RunRole(const char* name) {
  in_child = true;
  for (const NamedRole* role = kRoles; role->name != nullptr; ++role) {
    if (std::strcmp(role->name, name) == 0) {
      int code = role->role(Channel(kChildFd));
      return testing::Test::HasFailure() && code == 0 ? 1 : code;
    }
  }
  std::fprintf(stderr, "no role %s\n", name);
  return 70;
}

}  // namespace openreg_conformance

int main(int argc, char** argv) {
  constexpr char kRole[] = "--role=";
  if (argc == 2 && std::strncmp(argv[1], kRole, sizeof kRole - 1) == 0) {
    return openreg_conformance::RunRole(argv[1] + sizeof kRole - 1);
  }
  testing::InitGoogleTest(&argc, argv);
  return RUN_ALL_TESTS();
}
