// Tests with several processes. A child is this very program started anew (fork and exec: a device
// does not survive a fork) in a role, with a socket to its parent.
#ifndef OPENREG_CONFORMANCE_PROCESSES_H_
#define OPENREG_CONFORMANCE_PROCESSES_H_

#include <sys/types.h>

#include <cstddef>
#include <string>

namespace openreg_conformance {

// The end of a socket between two processes. All waits have the tests' deadline; a failed transfer
// ends a child with an exit code of its own, and is a test failure in the parent.
class Channel {
 public:
  explicit Channel(int fd) : fd_(fd) {}
  template <class T>
  void Send(const T& value) const {
    SendBytes(&value, sizeof value);
  }
  template <class T>
  T Receive() const {
    T value{};
    ReceiveBytes(&value, sizeof value);
    return value;
  }
  void Close();

 private:
  void SendBytes(const void* bytes, size_t size) const;
  void ReceiveBytes(void* bytes, size_t size) const;
  int fd_;
};

// What a child does; its return value is the exit code.
using Role = int (*)(Channel channel);
struct NamedRole {
  const char* name;
  Role role;
};
// Each test program lists its roles, ended by {nullptr, nullptr}.
extern const NamedRole kRoles[];

class Child {
 public:
  // `environment`: "NAME=value", set in the child, or empty.
  explicit Child(const std::string& role, const std::string& environment = "");
  // Kills and collects the child if that has not been done.
  ~Child();
  Child(const Child&) = delete;
  Child& operator=(const Child&) = delete;

  Channel& channel() { return channel_; }
  pid_t pid() const { return pid_; }
  void Kill();
  // Stops the child; it stands still when this returns.
  void Stop();
  // The exit code, or minus the signal that ended the child; a test failure after the deadline.
  int Wait();

 private:
  Channel channel_;
  pid_t pid_ = -1;
};

}  // namespace openreg_conformance
#endif  // OPENREG_CONFORMANCE_PROCESSES_H_
