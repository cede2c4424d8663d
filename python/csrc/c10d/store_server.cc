#include "python/csrc/c10d/store_server.h"

#include <c10/util/StringUtil.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <set>
#include <sstream>
#include <string>
#include <system_error>
#include <vector>

namespace torch_openreg {
namespace {

int port_in(const sockaddr_storage& address) {
  if (address.ss_family == AF_INET) {
    return ntohs(reinterpret_cast<const sockaddr_in*>(&address)->sin_port);
  }
  return address.ss_family == AF_INET6
             ? ntohs(reinterpret_cast<const sockaddr_in6*>(&address)->sin6_port)
             : -1;
}

int port_of(int socket, int (*which)(int, sockaddr*, socklen_t*)) {
  sockaddr_storage address{};
  socklen_t size = sizeof(address);
  return which(socket, reinterpret_cast<sockaddr*>(&address), &size) == 0 ? port_in(address) : -1;
}

// The names in a folder of /proc, as numbers; what is there no more is left out.
std::vector<long long> numbers_in(const std::string& folder) {
  std::vector<long long> numbers;
  std::error_code gone;
  for (std::filesystem::directory_iterator entry(folder, gone), end; !gone && entry != end;
       entry.increment(gone)) {
    const std::string name = entry->path().filename();
    if (name.find_first_not_of("0123456789") == std::string::npos) {
      numbers.push_back(std::atoll(name.c_str()));
    }
  }
  return numbers;
}

// The inodes of the other ends of this process's connections to `port`. proc(5), /proc/net/tcp: the
// words of a line are its number, the two addresses as hexadecimal address:port, the state, and six
// on the inode.
std::set<std::string> other_ends(int port) {
  std::set<int> ports;
  for (const int connection : connections_to(port)) {
    ports.insert(port_of(connection, ::getsockname));
  }
  std::set<std::string> inodes;
  for (const char* const table : {"/proc/self/net/tcp", "/proc/self/net/tcp6"}) {
    std::ifstream lines(table);
    std::string line;
    while (std::getline(lines, line)) {
      std::istringstream words(line);
      std::vector<std::string> word(10);
      for (std::string& one : word) {
        words >> one;
      }
      const auto port_at = [&](std::size_t index) {
        const auto colon = word[index].rfind(':');
        return colon == std::string::npos
                   ? -1
                   : static_cast<int>(std::strtol(word[index].c_str() + colon + 1, nullptr, 16));
      };
      if (port_at(1) == port && ports.count(port_at(2)) != 0) {
        inodes.insert("socket:[" + word[9] + "]");
      }
    }
  }
  return inodes;
}

bool holds_one_of(long long pid, const std::set<std::string>& inodes) {
  const std::string folder = c10::str("/proc/", pid, "/fd");
  for (const long long descriptor : numbers_in(folder)) {
    std::error_code gone;
    const auto target =
        std::filesystem::read_symlink(c10::str(folder, "/", descriptor), gone).string();
    if (inodes.count(target) != 0) {
      return true;
    }
  }
  return false;
}

}  // namespace

std::vector<int> connections_to(int port) {
  std::vector<int> connections;
  for (const long long descriptor : numbers_in("/proc/self/fd")) {
    const int socket = static_cast<int>(descriptor);
    if (port_of(socket, ::getpeername) == port) {
      connections.push_back(socket);
    }
  }
  return connections;
}

long long pid_of_server(const c10d::TCPStore& store) {
  const std::set<std::string> inodes = other_ends(store.getPort());
  if (inodes.empty()) {
    return 0;
  }
  for (const long long pid : numbers_in("/proc")) {
    if (holds_one_of(pid, inodes)) {
      return pid;
    }
  }
  return 0;
}

}  // namespace torch_openreg
