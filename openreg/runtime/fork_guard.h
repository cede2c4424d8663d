// What happens to the runtime in a forked child: it is switched off there, and the descriptors
// that would keep a dead owner's sockets and memory alive are closed.
#ifndef OPENREG_RUNTIME_FORK_GUARD_H_
#define OPENREG_RUNTIME_FORK_GUARD_H_

namespace openreg {

// Registers the fork handlers; called once, when the device comes to life. `in_child` runs in the
// child of every later fork, before fork returns there; it may use async-signal-safe calls only.
void InstallForkHandlers(void (*in_child)());

// While a ScopedForkLock lives, no fork happens in this process: so a descriptor can be made and
// tracked in one step.
class ScopedForkLock {
 public:
  ScopedForkLock();
  ~ScopedForkLock();
  ScopedForkLock(const ScopedForkLock&) = delete;
  ScopedForkLock& operator=(const ScopedForkLock&) = delete;
};

// `fd`, or a copy of it in its place where it is 0, 1 or 2: a program that has closed its stderr
// would have log lines written into what is opened next, which may be a device's memory. -1 (errno)
// where that is impossible, and for -1 (errno is kept).
int AboveStandard(int fd);
// Descriptors to close in a forked child. Track needs a ScopedForkLock around it and the call that
// made the descriptor. The table is fixed; beyond it (4,096) a descriptor is merely inherited.
void TrackDescriptor(int fd);
// Forgets the descriptor and closes it. No ScopedForkLock needed. fd < 0 is a no-op.
void CloseTracked(int fd);

}  // namespace openreg
#endif  // OPENREG_RUNTIME_FORK_GUARD_H_
