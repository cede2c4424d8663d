// What the conformance tests share. They use the public header only, so that they run against any
// runtime that stands behind it: bazel test //openreg/conformance/... --//openreg:runtime=LABEL
#ifndef OPENREG_CONFORMANCE_CONFORMANCE_H_
#define OPENREG_CONFORMANCE_CONFORMANCE_H_

#include <gtest/gtest.h>

#include <chrono>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <utility>

#include "openreg/api/openreg.h"

namespace openreg_conformance {

// No wait in a test is longer; none is expected to come near it.
inline constexpr int64_t kDeadlineMs = 30000;

// A success, or a failure that shows the runtime's message.
inline testing::AssertionResult Succeeds(orError_t error) {
  if (error == orSuccess) return testing::AssertionSuccess();
  return testing::AssertionFailure() << orGetErrorName(error) << ": " << orGetLastErrorMessage();
}
#define OR_EXPECT_OK(call) EXPECT_TRUE(::openreg_conformance::Succeeds(call))
#define OR_ASSERT_OK(call) ASSERT_TRUE(::openreg_conformance::Succeeds(call))
// The named error, with a message that is not empty.
#define OR_EXPECT_ERROR(expected, call)                     \
  do {                                                      \
    orError_t openreg_error = (call);                       \
    EXPECT_STREQ(#expected, orGetErrorName(openreg_error)); \
    EXPECT_STRNE("", orGetLastErrorMessage());              \
  } while (false)

// Where a kernel finds a device pointer's bytes.
template <class T>
T* KernelPointer(T* device_pointer) {
  ptrdiff_t delta = 0;
  EXPECT_TRUE(Succeeds(orGetKernelDelta(&delta)));
  return reinterpret_cast<T*>(reinterpret_cast<char*>(device_pointer) + delta);
}

// Work that waits on a stream until the test opens the gate, which its end does too.
class Gate {
 public:
  ~Gate() { Open(); }
  void Open() const { state_->Open(); }
  // Waits until the work runs.
  bool WaitReached() const { return state_->WaitReached(); }
  void Block(orStream_t stream) const {
    // The work has a share of its own: it may begin after the gate has gone.
    auto* share = new std::shared_ptr<State>(state_);
    OR_ASSERT_OK(orLaunchHostFunc(
        stream,
        [](void* its) {
          auto* owned = static_cast<std::shared_ptr<State>*>(its);
          (*owned)->Pass();
          delete owned;
        },
        share));
  }

 private:
  struct State {
    void Open() {
      std::lock_guard<std::mutex> lock(mutex);
      open = true;
      changed.notify_all();
    }
    void Pass() {
      std::unique_lock<std::mutex> lock(mutex);
      reached = true;
      changed.notify_all();
      EXPECT_TRUE(
          changed.wait_for(lock, std::chrono::milliseconds(kDeadlineMs), [this] { return open; }));
    }
    bool WaitReached() {
      std::unique_lock<std::mutex> lock(mutex);
      return changed.wait_for(lock, std::chrono::milliseconds(kDeadlineMs),
                              [this] { return reached; });
    }
    std::mutex mutex;
    std::condition_variable changed;
    bool open = false, reached = false;
  };
  const std::shared_ptr<State> state_ = std::make_shared<State>();
};

class Stream {
 public:
  Stream() { EXPECT_TRUE(Succeeds(orStreamCreate(&handle_))); }
  explicit Stream(int priority) {
    EXPECT_TRUE(Succeeds(orStreamCreateWithPriority(&handle_, priority)));
  }
  ~Stream() {
    // Drained first: what a test queued refers to the test's variables.
    EXPECT_TRUE(Succeeds(orStreamSynchronizeTimeout(handle_, kDeadlineMs)));
    EXPECT_TRUE(Succeeds(orStreamDestroy(handle_)));
  }
  Stream(const Stream&) = delete;
  Stream& operator=(const Stream&) = delete;
  operator orStream_t() const { return handle_; }

 private:
  orStream_t handle_ = nullptr;
};

class Event {
 public:
  explicit Event(unsigned flags = orEventDefault) {
    EXPECT_TRUE(Succeeds(orEventCreateWithFlags(&handle_, flags)));
  }
  ~Event() { EXPECT_TRUE(Succeeds(orEventDestroy(handle_))); }
  Event(const Event&) = delete;
  Event& operator=(const Event&) = delete;
  operator orEvent_t() const { return handle_; }

 private:
  orEvent_t handle_ = nullptr;
};

inline testing::AssertionResult Drains(orStream_t stream) {
  return Succeeds(orStreamSynchronizeTimeout(stream, kDeadlineMs));
}

// A callable as a kernel; it must outlive the work.
template <class F>
struct KernelOf {
  F body;
  static orError_t Run(void* self) { return static_cast<KernelOf*>(self)->body(); }
};
template <class F>
KernelOf(F) -> KernelOf<F>;

}  // namespace openreg_conformance
#endif  // OPENREG_CONFORMANCE_CONFORMANCE_H_
