#include "python/csrc/c10d/peer_process.h"

#include <c10/util/StringUtil.h>
#include <poll.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <fstream>
#include <iterator>
#include <sstream>

#include "common/descriptors.h"

namespace torch_openreg {
namespace {

// The `number`th of proc(5)'s stat, from 3 on; the second one may hold blanks. "" if there is no
// such process.
std::string stat_field(long long pid, int number) {
  std::ifstream file(c10::str("/proc/", pid, "/stat"));
  const std::string text{std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
  const auto name_end = text.rfind(')');
  std::istringstream fields(name_end == std::string::npos ? "" : text.substr(name_end + 1));
  std::string field;
  for (int at = 3; at <= number; ++at) {
    fields >> field;
  }
  return field;
}

}  // namespace

ProcessCard own_process_card() {
  struct stat info{};
  const bool known = stat("/proc/self/ns/pid", &info) == 0;
  return {getpid(), known ? static_cast<std::uint64_t>(info.st_ino) : 0};
}

PeerProcess::PeerProcess(const ProcessCard& card) : pid_(card.pid) {
  const ProcessCard own = own_process_card();
  if (card.pid != own.pid && own.pid_namespace != 0 && card.pid_namespace == own.pid_namespace) {
    pidfd_ = descriptors::AboveStandard(
        static_cast<int>(syscall(SYS_pidfd_open, static_cast<pid_t>(card.pid), 0)));
  }
}

PeerProcess::~PeerProcess() {
  if (pidfd_ >= 0) {
    close(pidfd_);
  }
}

bool PeerProcess::ended() const {
  pollfd poll_of_process{pidfd_, POLLIN, 0};
  return pidfd_ >= 0 && poll(&poll_of_process, 1, 0) > 0;
}

std::string start_of(long long pid) { return stat_field(pid, 22); }

bool is_stopped(long long pid) {
  const std::string state = stat_field(pid, 3);
  return state == "T" || state == "t";
}

}  // namespace torch_openreg
