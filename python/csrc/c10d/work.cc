#include "python/csrc/c10d/work.h"

#include <ATen/ATen.h>
#include <ATen/core/ivalue.h>
#include <ATen/core/jit_type.h>
#include <c10/core/StreamGuard.h>
#include <c10/util/Exception.h>

#include <algorithm>
#include <limits>
#include <mutex>
#include <thread>

#include "python/csrc/c10d/event_pool.h"
#include "python/csrc/c10d/flight_recorder.h"
#include "python/csrc/c10d/future_value.h"
#include "python/csrc/runtime/deferred.h"
#include "python/csrc/sanitizer/work.h"

namespace torch_openreg {

using Clock = std::chrono::steady_clock;

// The end of an operation, noticed in its place on the stream.
class FinishTask final : public DeferredTask {
 public:
  FinishTask(c10::intrusive_ptr<WorkOCCL> work, bool raises)
      : DeferredTask(work->failures()), work_(std::move(work)), raises_(raises) {}
  void run() override {
    work_->finish_on_stream();
    if (raises_) {
      work_->throw_if_failed();
    }
  }

 private:
  const c10::intrusive_ptr<WorkOCCL> work_;
  const bool raises_;
};

// A stream that waits for an operation learns of its failure here.
class CheckTask final : public DeferredTask {
 public:
  explicit CheckTask(c10::intrusive_ptr<WorkOCCL> work)
      : DeferredTask(work->failures()), work_(std::move(work)) {}
  void run() override { work_->throw_if_failed(); }

 private:
  const c10::intrusive_ptr<WorkOCCL> work_;
};

WorkOCCL::WorkOCCL(const Description& description, std::shared_ptr<const GroupIdentity> group,
                   c10::intrusive_ptr<Communicator> communicator, std::shared_ptr<Watcher> watcher,
                   const OpenregStream& stream, std::vector<at::Tensor> tensors,
                   std::size_t results)
    : Work(group->rank, description.type, description.profiling,
           description.profiling != nullptr ? std::optional<std::vector<at::Tensor>>(tensors)
                                            : std::nullopt),
      description_(description),
      group_(std::move(group)),
      communicator_(std::move(communicator)),
      watcher_(std::move(watcher)),
      stream_(stream),
      results_(results),
      source_(description.source),
      tensors_(std::move(tensors)) {}

WorkOCCL::~WorkOCCL() {
  sanitizer::work_releases(stream_, tensors_);
  sanitizer::work_goes(this);
  for (occlRequest_t const request : requests_) {
    occlRequestFree(request);
  }
  if (end_event_ != nullptr) {
    give_event_back(stream_.device, end_event_);
  }
}

void WorkOCCL::release_resources() {
  sanitizer::work_releases(stream_, tensors_);
  tensors_.clear();
  future_.reset();
  future_result_.reset();
  communicator_.reset();
}

void WorkOCCL::issued(CopyBacks copy_backs) {
  bool done = requests_done();
  if (!copy_backs.empty()) {
    const c10::StreamGuard on_its_stream(stream_.unwrap());
    const at::NoGradGuard no_grad;
    for (auto& [first, second] : copy_backs) {
      first.copy_(second, /*non_blocking=*/true);
    }
    done = done && !is_busy(stream_);
    copies_back_ = !done;
    sanitizer::work_copies_back(this, stream_);
  }
  issued_.store(true, std::memory_order_release);
  if (done) {
    finish_on_stream();
  } else {
    // Not of an operation whose wait blocks the host: it raises there, and once is enough.
    const bool raises = current_stream(stream_.device) == stream_ && !description_.blocks_host;
    const auto self = c10::intrusive_ptr<WorkOCCL>::reclaim_copy(this);
    enqueue("c10d::finish", stream_, std::make_unique<FinishTask>(self, raises));
    end_event_ = record_event(stream_);
  }
  if (recordFunctionEndCallback_) {
    recordFunctionEndCallback_();
    recordFunctionEndCallback_ = nullptr;
  }
}

const occlRequest_t* WorkOCCL::first_pending() const {
  return std::find_if(requests_.begin(), requests_.end(), [](occlRequest_t request) {
    int done = 0;
    return occlRequestTest(request, &done) != occlSuccess || done == 0;
  });
}

bool WorkOCCL::requests_done() const { return first_pending() == requests_.end(); }

bool WorkOCCL::poll() const {
  if (finished_.load(std::memory_order_acquire)) {
    return true;
  }
  if (!issued_.load(std::memory_order_acquire)) {
    return false;
  }
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    if (copies_back_ || finished_.load(std::memory_order_relaxed) || !requests_done()) {
      return finished_.load(std::memory_order_relaxed);
    }
    finish_locked();
  }
  report_failure();
  return true;
}

void WorkOCCL::finish_on_stream() {
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    copies_back_ = false;
    if (finished_.load(std::memory_order_relaxed)) {
      return;
    }
    finish_locked();
  }
  cv_.notify_all();
  report_failure();
}

void WorkOCCL::finish_locked() const {
  occlResult_t overall = occlSuccess;
  std::int64_t first = std::numeric_limits<std::int64_t>::max();
  std::int64_t last = 0;
  for (occlRequest_t const request : requests_) {
    occlResult_t result = occlInternalError;
    const char* message = "";
    if (occlRequestGetResult(request, &result, &message) != occlSuccess) {
      result = occlInternalError;
    }
    if (result != occlSuccess && overall == occlSuccess) {
      overall = result;
      detail_ = message == nullptr ? "" : message;
    }
    std::int64_t start = 0;
    std::int64_t end = 0;
    if (occlRequestGetTimes(request, &start, &end) == occlSuccess) {
      first = std::min(first, start);
      last = std::max(last, end);
    }
  }
  if (description_.type == c10d::OpType::RECVANYSOURCE && !requests_.empty() &&
      overall == occlSuccess) {
    occlRequestGetSource(requests_[0], &source_);
  }
  start_ns_ = last == 0 ? 0 : first;
  end_ns_ = last;
  result_ = overall;
  FlightRecorder::get().finish(
      description_.record,
      overall == occlSuccess ? FlightRecorder::State::kCompleted : FlightRecorder::State::kFailed,
      start_ns_, end_ns_);
  share_.end();
  finished_.store(true, std::memory_order_release);
  sanitizer::work_ended(this);
}

std::string WorkOCCL::message() const {
  return failure_message(*group_, description_.name, description_.sequence, result_, detail_);
}

std::string WorkOCCL::tell_wait() const {
  const occlRequest_t* const pending = first_pending();
  const std::string wait =
      pending == requests_.end() || !communicator_ ? "" : communicator_->tell_wait(*pending);
  return wait.empty() ? wait : ", " + wait;
}

std::string WorkOCCL::tell_pending() const {
  return c10::str(description_.name, " #", description_.sequence, " on ", group_->to_string(),
                  tell_wait(), group_->tell_global_ranks());
}

void WorkOCCL::report_failure() const {
  if (result_ != occlSuccess) {
    communicator_->report_first_failure(*group_, message());
  }
}

void WorkOCCL::throw_if_failed() const {
  if (finished_.load(std::memory_order_acquire) && result_ != occlSuccess) {
    throw_failure(result_, message());
  }
}

void WorkOCCL::throw_to_user_if_failed() const {
  if (finished_.load(std::memory_order_acquire) && result_ != occlSuccess &&
      communicator_ != nullptr && !is_callers_mistake(result_)) {
    communicator_->failures()->tell();
  }
  throw_if_failed();
}

// Who waits for it after the user has ended its communicator has to learn that it failed.
FailureOwnerPtr WorkOCCL::failures() const {
  return communicator_ == nullptr || communicator_->failures()->ended() ? nullptr
                                                                        : communicator_->failures();
}

std::exception_ptr WorkOCCL::exception() const {
  if (!poll() || result_ == occlSuccess) {
    return nullptr;
  }
  return make_exception(result_, message());
}

bool WorkOCCL::wait_on_host(Clock::time_point deadline) {
  const GilReleaseForWait no_gil;
  TORCH_CHECK(issued_.load(std::memory_order_acquire), "OCCL ", description_.name,
              ": this operation belongs to a batch that has not been ended; wait on the work that "
              "ends it");
  while (!poll()) {
    const auto now = Clock::now();
    if (now >= deadline) {
      return false;
    }
    const auto slice = std::min<Clock::duration>(kSignalInterval, deadline - now);
    const auto slice_ms = std::max<std::int64_t>(
        1, std::chrono::duration_cast<std::chrono::milliseconds>(slice).count());
    const occlRequest_t* const pending = first_pending();
    if (pending != requests_.end()) {
      (void)occlRequestWait(*pending, slice_ms);  // its result is read by poll()
    } else {
      std::unique_lock<std::mutex> lock(mutex_);
      cv_.wait_for(lock, slice, [this] { return finished_.load(std::memory_order_relaxed); });
    }
    check_signals();
  }
  return true;
}

bool WorkOCCL::wait(std::chrono::milliseconds timeout) {
  ensure_initialized();  // not in a forked child
  const bool limited = timeout != kNoTimeout && timeout.count() > 0;
  if (limited || description_.blocks_host) {
    const auto deadline = limited ? Clock::now() + timeout : Clock::time_point::max();
    if (!wait_on_host(deadline)) {
      const std::string detail = c10::str("wait(timeout) of ", timeout.count(), " ms is over",
                                          tell_wait(), "; the operation goes on");
      throw_failure(occlTimeout, failure_message(*group_, description_.name, description_.sequence,
                                                 occlTimeout, detail));
    }
    sanitizer::host_saw_work(this);
  }
  synchronize();
  return true;
}

void WorkOCCL::synchronize() {
  TORCH_CHECK(issued_.load(std::memory_order_acquire), "OCCL ", description_.name,
              ": this operation belongs to a batch that has not been ended; wait on the work that "
              "ends it");
  sanitizer::stream_waits_for_work(current_stream(stream_.device), this);
  if (poll()) {
    drop_inputs();
    throw_to_user_if_failed();
    return;
  }
  const OpenregStream current = current_stream(stream_.device);
  if (current == stream_) {
    return;
  }
  OR_CHECK(orStreamWaitEvent(current.handle, end_event_));
  const auto self = c10::intrusive_ptr<WorkOCCL>::reclaim_copy(this);
  enqueue("c10d::wait", current, std::make_unique<CheckTask>(self));
}

void WorkOCCL::drop_inputs() {
  std::vector<at::Tensor> dropped;
  const std::lock_guard<std::mutex> lock(mutex_);
  if (tensors_.size() > results_) {
    dropped.assign(
        std::make_move_iterator(tensors_.begin() + static_cast<std::ptrdiff_t>(results_)),
        std::make_move_iterator(tensors_.end()));
    tensors_.resize(results_);
    sanitizer::work_releases(stream_, dropped);
  }
}

int WorkOCCL::sourceRank() const {
  TORCH_CHECK(
      description_.type == c10d::OpType::RECV || description_.type == c10d::OpType::RECVANYSOURCE,
      "sourceRank() is known for receives only, not for ", description_.name);
  if (description_.type == c10d::OpType::RECVANYSOURCE) {
    const_cast<WorkOCCL*>(this)->wait_on_host(Clock::time_point::max());
    sanitizer::host_saw_work(this);
    throw_to_user_if_failed();
  }
  return source_;
}

std::vector<at::Tensor> WorkOCCL::result() {
  const std::lock_guard<std::mutex> lock(mutex_);
  return {tensors_.begin(), tensors_.begin() + static_cast<std::ptrdiff_t>(results_)};
}

void WorkOCCL::abort() {
  communicator_->abort_for_user(c10::str("Work.abort() of ", description_.name, " #",
                                         description_.sequence, " on ", group_->to_string()));
}

c10::intrusive_ptr<c10::ivalue::Future> WorkOCCL::getFuture() {
  const std::vector<at::Tensor> outputs = result();
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    if (future_) {
      return future_;
    }
    future_ = c10::make_intrusive<c10::ivalue::Future>(
        c10::ListType::create(c10::TensorType::get()),
        std::vector<c10::Device>{stream_.unwrap().device()});
  }
  const bool done = poll();
  if (done && result_ != occlSuccess) {
    future_->setError(make_exception(result_, message()));
    return future_;
  }
  if (done && !sanitizer::enabled()) {
    future_->markCompleted(future_value(description_.type, outputs));
    return future_;
  }
  // Complete for the host, with an event behind which the value is: a stream of its own makes that
  // event mean this operation and nothing that was queued later.
  const OpenregStream behind = stream_from_pool(0, stream_.device);
  if (end_event_ != nullptr) {
    OR_CHECK(orStreamWaitEvent(behind.handle, end_event_));
  }
  sanitizer::stream_waits_for_work(behind, this);
  // Before the event: whoever waits for the value learns that it is none.
  enqueue("c10d::future", behind,
          std::make_unique<CheckTask>(c10::intrusive_ptr<WorkOCCL>::reclaim_copy(this)));
  const c10::StreamGuard guard(behind.unwrap());
  future_->markCompleted(future_value(description_.type, outputs));
  return future_;
}

c10::intrusive_ptr<c10::ivalue::Future> WorkOCCL::getFutureResult() {
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    if (future_result_) {
      return future_result_;
    }
    future_result_ = c10::make_intrusive<c10::ivalue::Future>(c10::IntType::get());
  }
  const auto complete = [future = future_result_](WorkOCCL& work) {
    const c10d::WorkResult result = work.result_ == occlSuccess   ? c10d::WorkResult::SUCCESS
                                    : work.result_ == occlTimeout ? c10d::WorkResult::TIMEOUT
                                                                  : c10d::WorkResult::COMM_ERROR;
    future->markCompleted(c10::IValue(static_cast<std::int64_t>(result)));
  };
  if (poll()) {
    complete(*this);
  } else {
    watcher_->watch(c10::intrusive_ptr<WorkOCCL>::reclaim_copy(this), complete);
  }
  return future_result_;
}

float WorkOCCL::getDuration() const {
  TORCH_CHECK(poll() && end_ns_ != 0, "getDuration(): ", description_.name, " #",
              description_.sequence, " has not completed");
  return static_cast<float>(end_ns_ - start_ns_) / 1e6F;
}

}  // namespace torch_openreg
