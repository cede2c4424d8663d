// How every operation gets to OCCL: its place in the group's order, its stream, its records.
#include <ATen/ATen.h>
#include <c10/util/Exception.h>
#include <c10/util/hash.h>

#include <algorithm>
#include <limits>
#include <utility>
#include <vector>

#include "python/csrc/c10d/backlog.h"
#include "python/csrc/c10d/event_pool.h"
#include "python/csrc/c10d/flight_recorder.h"
#include "python/csrc/c10d/process_group.h"
#include "python/csrc/c10d/profile.h"
#include "python/csrc/sanitizer/work.h"

namespace torch_openreg {
namespace {

// A message whose rank has joined the group so slowly has the rest of its timeout.
constexpr std::chrono::milliseconds kSlowJoin{100};

std::int64_t timeout_in_ms(const Call& call) {
  return call.timeout == c10d::kUnsetTimeout ? std::numeric_limits<std::int64_t>::min()
                                             : call.timeout.count();
}

// What OCCL itself reads and writes: its outputs, or the contiguous copies in their place, and its
// inputs. A tensor that is both the call's result and its input is only read (a root's broadcast).
std::vector<sanitizer::Use> uses_of(const Call& call) {
  std::vector<sanitizer::Use> uses;
  const auto is_staged = [&](const at::Tensor& tensor) {
    return std::any_of(call.copy_backs.begin(), call.copy_backs.end(),
                       [&](const auto& pair) { return pair.first.is_same(tensor); });
  };
  const auto is_stage = [&](const at::Tensor& tensor) {
    return std::any_of(call.copy_backs.begin(), call.copy_backs.end(),
                       [&](const auto& pair) { return pair.second.is_same(tensor); });
  };
  const auto is_kept = [&](const at::Tensor& tensor) {
    return std::any_of(call.kept.begin(), call.kept.end(),
                       [&](const at::Tensor& kept) { return kept.is_same(tensor); });
  };
  for (const at::Tensor& tensor : call.kept) {
    uses.push_back({&tensor, is_stage(tensor)});
  }
  for (const at::Tensor& tensor : call.results) {
    if (!is_staged(tensor) && !is_kept(tensor)) {
      uses.push_back({&tensor, true});
    }
  }
  return uses;
}

// Tells the sanitizer, which may throw.
sanitizer::WorkPtr sanitize(const Call& call, const GroupIdentity& group, std::uint64_t sequence,
                            const OpenregStream& stream, const void* communicator,
                            c10::ArrayRef<PointToPointKey> keys) {
  const OpenregStream current = current_stream(call.device());
  sanitizer::WorkDescription description;
  description.name = call.name;
  description.group = group.to_string();
  description.sequence = sequence;
  description.asynchronous = !(stream == current);
  for (const PointToPointKey& key : keys) {
    description.channels.push_back(c10::get_hash(communicator, key.peer, key.tag, key.receives));
  }
  const std::vector<sanitizer::Use> uses = uses_of(call);
  return sanitizer::collective(description, stream, current, uses);
}

// Of the operation that this thread issues, from begin() to end().
thread_local sanitizer::WorkPtr sanitized;

}  // namespace

void ProcessGroupOCCL::check_nan(c10::ArrayRef<at::Tensor> inputs, const Call& call) const {
  for (const at::Tensor& tensor : inputs) {
    if ((tensor.is_floating_point() || tensor.is_complex()) && tensor.numel() > 0) {
      TORCH_CHECK(!at::isnan(tensor).any().item<bool>(), call.prefix(),
                  "an input holds NaN, and the NaN check is on");
    }
  }
}

ProcessGroupOCCL::Launch ProcessGroupOCCL::begin(Call& call, c10::ArrayRef<PointToPointKey> keys) {
  await_backlog();
  if (options_->nan_check) [[unlikely]] {
    check_nan(call.shown_inputs, call);
  }
  Launch launch;
  launch.order = in_order();
  launch.group = identity();
  const bool collective = keys.empty();
  try {
    launch.communicator =
        communicator(call.device(), collective ? Needs::kAll : Needs::kPeer,
                     {*launch.group, call.name,
                      (collective ? collective_sequence_ : point_to_point_sequence_) + 1});
  } catch (const c10::DistError& error) {
    report_unissued(call, launch.group, !collective, error.what_without_backtrace());
    throw;
  }
  const OpenregStream current = current_stream(call.device());
  if (!keys.empty()) {
    launch.communicator->look_for(keys, *launch.group);
    launch.stream = launch.communicator->message_streams().next(keys);
    launch.sequence = ++point_to_point_sequence_;
  } else {
    launch.stream = call.asynchronous ? launch.communicator->stream() : current;
    launch.sequence = ++collective_sequence_;
  }
  order_after(launch.stream, current);
  if (sanitizer::enabled()) [[unlikely]] {
    sanitized = sanitize(call, *launch.group, launch.sequence, launch.stream,
                         launch.communicator.get(), keys);
  }

  FlightRecorder::Operation operation = flight_operation(call);
  operation.collective_sequence = collective_sequence_;
  operation.point_to_point_sequence = point_to_point_sequence_;
  operation.operation_id = ++operation_id_;
  operation.is_point_to_point = !keys.empty();
  launch.record =
      FlightRecorder::get().record(launch.group, operation, call.shown_inputs, call.shown_outputs);
  launch.options.timeout_ms = timeout_in_ms(call);
  if (const auto took = std::exchange(joining_took_, {}); !collective && took > kSlowJoin)
      [[unlikely]] {
    const auto left = std::chrono::milliseconds(operation.timeout_ms) - took;
    launch.options.timeout_ms = std::max<std::int64_t>(1, left / std::chrono::milliseconds(1));
  }
  launch.target.comm = launch.communicator->handle();
  launch.target.stream = launch.stream.handle;
  return launch;
}

ProcessGroupOCCL::WorkPtr ProcessGroupOCCL::end(Launch& launch, Call& call, occlResult_t result) {
  if (result != occlSuccess) {
    FlightRecorder::get().finish(launch.record, FlightRecorder::State::kFailed, 0, 0);
    sanitizer::work_never_began(std::exchange(sanitized, nullptr));
    const std::string message = failure_message(*launch.group, call.name, launch.sequence, result,
                                                last_error_text(result, launch.target.comm));
    launch.communicator->report_if_failed(*launch.group, result, message);
    launch.communicator->tell_if_failed();
    throw_failure(result, message);
  }
  const ProfileScope profile(call, launch.sequence);
  WorkOCCL::Description description;
  description.type = call.type;
  description.name = call.name;
  description.sequence = launch.sequence;
  description.blocks_host = call.blocks_host;
  description.source = call.point_to_point ? call.point_to_point->peer : -1;
  description.profiling = profiling_title(call.name);
  description.record = launch.record;

  const std::size_t results = call.results.size();
  if (call.results.empty()) {
    call.results.swap(call.kept);
  } else {
    call.results.insert(call.results.end(), std::make_move_iterator(call.kept.begin()),
                        std::make_move_iterator(call.kept.end()));
  }
  auto work =
      c10::make_intrusive<WorkOCCL>(description, launch.group, launch.communicator, watcher_,
                                    launch.stream, std::move(call.results), results);
  if (launch.request != nullptr) {
    work->add_request(launch.request);
  }
  for (occlRequest_t const request : launch.requests) {
    if (request != nullptr) {
      work->add_request(request);
    }
  }
  sanitizer::work_is(work.get(), std::exchange(sanitized, nullptr));
  work->issued(std::move(call.copy_backs));
  if (!work->poll()) {
    remember_pending(work);
  }
  if (onCompletionHook_) {
    watcher_->watch(work, [this](WorkOCCL& done) { call_completion_hook(done); });
  }
  return work;
}

ProcessGroupOCCL::WorkPtr ProcessGroupOCCL::run_many(Call& call, std::vector<Issue> issues) {
  if (batch_ != nullptr) {
    return add_to_batch(call, std::move(issues));
  }
  const c10::ArrayRef<PointToPointKey> keys =
      call.point_to_point ? c10::ArrayRef<PointToPointKey>(*call.point_to_point)
                          : c10::ArrayRef<PointToPointKey>();
  Launch launch = begin(call, keys);
  return issue_group(launch, call, issues);
}

ProcessGroupOCCL::WorkPtr ProcessGroupOCCL::issue_group(Launch& launch, Call& call,
                                                        const std::vector<Issue>& issues) {
  launch.requests.resize(issues.size(), nullptr);
  occlResult_t result = occlGroupStart();
  if (result == occlSuccess) {
    launch.target.options = &launch.options;
    for (std::size_t i = 0; i < issues.size() && result == occlSuccess; ++i) {
      launch.options.request = &launch.requests[i];
      result = issues[i](launch.target);
    }
    const occlResult_t ended = occlGroupEnd();
    result = result != occlSuccess ? result : ended;
  }
  return end(launch, call, result);
}

}  // namespace torch_openreg
