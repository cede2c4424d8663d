// What collectives and messages tell the sanitizer.
#ifndef PYTHON_CSRC_SANITIZER_WORK_H_
#define PYTHON_CSRC_SANITIZER_WORK_H_

#include <c10/core/Stream.h>
#include <c10/util/ArrayRef.h>
#include <c10/util/SmallVector.h>

#include <cstdint>
#include <memory>
#include <string>

#include "python/csrc/sanitizer/operations.h"

namespace torch_openreg::sanitizer {

// A collective or a message, from its issue until somebody has waited for it.
struct Work;
using WorkPtr = std::shared_ptr<Work>;
struct WorkDescription {
  const char* name = nullptr;  // static storage
  std::string group;           // "0 (rank 1 of 4)"
  std::uint64_t sequence = 0;
  bool asynchronous = false;  // somebody has to wait for it
  // Of messages: what they are in order with, as any number that tells it apart. Which stream they
  // get depends on what happens to be done already, so that it must not count.
  c10::SmallVector<std::uint64_t, 2> channels;
};
// As operation(), after all that was issued on `current`. Returns nullptr while off.
WorkPtr collective(const WorkDescription& description, const c10::Stream& stream,
                   const c10::Stream& current, c10::ArrayRef<Use> uses);

// The rest is told by c10d::Work, whose number `work` is its address. Unknown works (issued while
// off) are ignored.
//
// What was begun as `issued` is not under way: it could not be issued.
void work_never_began(const WorkPtr& issued) noexcept;
// From now on `work` stands for `issued` (nullptr: for nothing).
void work_is(const void* work, WorkPtr issued);
// Its results were copied to where they belong, on its stream, which it ends with.
void work_copies_back(const void* work, const c10::Stream& stream);
// A stream waits for it; the host has seen its end; it has ended, whoever knows of that.
void stream_waits_for_work(const c10::Stream& stream, const void* work);
void host_saw_work(const void* work);
void work_ended(const void* work) noexcept;
// It drops tensors that it has held, on `stream`, until its end. Whose memory goes with that is not
// given back too early, though nobody may have waited.
void work_releases(const c10::Stream& stream, c10::ArrayRef<at::Tensor> tensors) noexcept;
// It is no more.
void work_goes(const void* work) noexcept;
// The group is given up: what of it nobody has waited for, or is still under way, is logged.
void group_leaves(const std::string& group);

}  // namespace torch_openreg::sanitizer

#endif  // PYTHON_CSRC_SANITIZER_WORK_H_
