#include "python/csrc/c10d/flight_recorder.h"

#include <c10/util/ApproximateClock.h>
#include <c10/util/StringUtil.h>
#include <c10/util/env.h>
#include <fcntl.h>
#include <time.h>
#include <torch/csrc/distributed/c10d/TraceUtils.h>
#include <torch/csrc/profiler/combined_traceback.h>
#include <unistd.h>

#include <algorithm>
#include <set>
#include <torch/csrc/distributed/c10d/Utils.hpp>
#include <utility>

#include "common/line_writer.h"
#include "python/csrc/runtime/log.h"

namespace torch_openreg {
namespace {

using Dict = c10::Dict<c10::IValue, c10::IValue>;

std::int64_t now_ns(clockid_t clock) {
  timespec now{};
  clock_gettime(clock, &now);
  return static_cast<std::int64_t>(now.tv_sec) * 1'000'000'000 + now.tv_nsec;
}

Dict new_dict() { return Dict(c10::AnyType::get(), c10::AnyType::get()); }
c10::List<c10::IValue> new_list() { return c10::List<c10::IValue>(c10::AnyType::get()); }

const char* state_name(FlightRecorder::State state) {
  switch (state) {
    case FlightRecorder::State::kScheduled:
      return "scheduled";
    case FlightRecorder::State::kCompleted:
      return "completed";
    default:
      return "started";  // the tool knows no "failed": an operation that has failed never completed
  }
}

std::string ranks_of(const GroupIdentity& group) {
  std::vector<std::string> ranks;
  for (int rank = 0; rank < group.size; ++rank) {
    ranks.push_back(std::to_string(group.global_ranks.empty()
                                       ? static_cast<std::uint64_t>(rank)
                                       : group.global_ranks[static_cast<std::size_t>(rank)]));
  }
  return "[" + c10::Join(", ", ranks) + "]";
}

c10::IValue sizes_value(const std::vector<std::int64_t>& sizes,
                        const std::vector<std::int64_t>& dims, std::size_t first, std::size_t last,
                        std::size_t* position) {
  auto all = new_list();
  for (std::size_t i = first; i < last; ++i) {
    auto one = new_list();
    for (std::int64_t d = 0; d < dims[i]; ++d) {
      one.push_back(sizes[(*position)++]);
    }
    all.push_back(one);
  }
  return all;
}

c10::IValue dtypes_value(const std::vector<c10::ScalarType>& dtypes, std::size_t first,
                         std::size_t last) {
  auto all = new_list();
  for (std::size_t i = first; i < last; ++i) {
    all.push_back(std::string(c10::toString(dtypes[i])));
  }
  return all;
}

c10::IValue frames_value(torch::CapturedTraceback* traceback) {
  auto frames = new_list();
  if (traceback == nullptr) {
    return frames;
  }
  const torch::SymbolizedTracebacks symbolized = torch::symbolize({traceback});
  for (const std::uint64_t index : symbolized.tracebacks.at(0)) {
    const auto& frame = symbolized.all_frames.at(index);
    Dict value = new_dict();
    value.insert("name", frame.funcname);
    value.insert("filename", frame.filename);
    value.insert("line", static_cast<std::int64_t>(frame.lineno));
    frames.push_back(value);
  }
  return frames;
}

}  // namespace

FlightRecorder& FlightRecorder::get() {
  static auto* const instance = new FlightRecorder;  // leaked: may hold Python frames at exit
  return *instance;
}

FlightRecorder::FlightRecorder()
    : capacity_(static_cast<std::size_t>(std::max(
          0, c10d::getCvarInt({"TORCH_FR_BUFFER_SIZE", "TORCH_NCCL_TRACE_BUFFER_SIZE"}, 2000)))),
      python_frames_(c10d::getCvarBool({"TORCH_FR_PYTHON_STACK"}, false)) {
  ring_.resize(capacity_);
}

std::uint64_t FlightRecorder::record(const std::shared_ptr<const GroupIdentity>& group,
                                     const Operation& operation, c10::ArrayRef<at::Tensor> inputs,
                                     c10::ArrayRef<at::Tensor> outputs) {
  if (capacity_ == 0) {
    return 0;
  }
  std::shared_ptr<torch::CapturedTraceback> traceback;
  if (python_frames_) {
    traceback = torch::CapturedTraceback::gather(/*python=*/true, /*script=*/false, /*cpp=*/false);
  }
  const std::int64_t now = now_ns(CLOCK_MONOTONIC);
  const std::lock_guard<std::mutex> lock(mutex_);
  const std::uint64_t id = next_id_++;
  Entry& entry = ring_[id % capacity_];
  entry.id = id;
  entry.group = group;
  entry.operation = operation;
  entry.state = State::kScheduled;
  entry.created_ns = now;
  entry.started_ns = entry.ended_ns = 0;
  entry.traceback = std::move(traceback);
  entry.thread = std::this_thread::get_id();
  entry.inputs = inputs.size();
  entry.sizes.clear();
  entry.dims.clear();
  entry.dtypes.clear();
  for (const auto& tensors : {inputs, outputs}) {
    for (const at::Tensor& tensor : tensors) {
      entry.sizes.insert(entry.sizes.end(), tensor.sizes().begin(), tensor.sizes().end());
      entry.dims.push_back(tensor.dim());
      entry.dtypes.push_back(tensor.scalar_type());
    }
  }
  return id;
}

void FlightRecorder::finish(std::uint64_t id, State state, std::int64_t start_ns,
                            std::int64_t end_ns) {
  if (capacity_ == 0) {
    return;
  }
  const std::lock_guard<std::mutex> lock(mutex_);
  Entry& entry = ring_[id % capacity_];
  if (entry.id != id || id < first_id_) {
    return;  // overwritten since
  }
  entry.state = state;
  entry.started_ns = start_ns;
  entry.ended_ns = end_ns;
}

std::vector<FlightRecorder::Entry> FlightRecorder::snapshot() const {
  const std::lock_guard<std::mutex> lock(mutex_);
  std::vector<Entry> entries;
  const std::uint64_t oldest =
      std::max(first_id_, next_id_ > capacity_ ? next_id_ - capacity_ : std::uint64_t{0});
  for (std::uint64_t id = oldest; id < next_id_; ++id) {
    entries.push_back(ring_[id % capacity_]);
  }
  return entries;
}

std::string FlightRecorder::profiling_name(const Entry& entry) {
  const Operation& operation = entry.operation;
  std::string name = c10::str("nccl:", operation.name);
  if (operation.is_point_to_point && operation.name[0] == 's') {
    name += c10::str(" ", entry.group->rank, "->", operation.peer);
  } else if (operation.is_point_to_point && operation.name[0] == 'r') {
    name += c10::str(" ", entry.group->rank, "<-", operation.peer);
  }
  return name;
}

c10::IValue FlightRecorder::entry_value(const Entry& entry, std::int64_t to_unix_ns,
                                        std::map<std::string, std::int64_t>* group_numbers) const {
  const Operation& operation = entry.operation;
  Dict value = new_dict();
  value.insert("record_id", static_cast<std::int64_t>(entry.id));
  const auto number = static_cast<std::int64_t>(group_numbers->size());
  value.insert("pg_id", group_numbers->emplace(entry.group->name, number).first->second);
  value.insert("process_group", std::make_tuple(entry.group->name, entry.group->desc));
  value.insert("collective_seq_id", static_cast<std::int64_t>(operation.collective_sequence));
  value.insert("p2p_seq_id", static_cast<std::int64_t>(operation.point_to_point_sequence));
  value.insert("op_id", static_cast<std::int64_t>(operation.operation_id));
  value.insert("profiling_name", profiling_name(entry));
  value.insert("time_created_ns", entry.created_ns + to_unix_ns);
  if (entry.ended_ns != 0 && entry.state == State::kCompleted) {
    value.insert("duration_ms", static_cast<double>(entry.ended_ns - entry.started_ns) / 1e6);
  }
  std::size_t position = 0;
  const std::size_t all = entry.dims.size();
  value.insert("input_sizes", sizes_value(entry.sizes, entry.dims, 0, entry.inputs, &position));
  value.insert("output_sizes", sizes_value(entry.sizes, entry.dims, entry.inputs, all, &position));
  value.insert("input_dtypes", dtypes_value(entry.dtypes, 0, entry.inputs));
  value.insert("output_dtypes", dtypes_value(entry.dtypes, entry.inputs, all));
  // What was refused when it was issued never started: the tool tells it from what waited.
  const bool refused = entry.state == State::kFailed && entry.started_ns == 0;
  value.insert("state", std::string(state_name(refused ? State::kScheduled : entry.state)));
  value.insert("time_discovered_started_ns",
               entry.started_ns != 0 ? c10::IValue(entry.started_ns + to_unix_ns) : c10::IValue());
  value.insert("time_discovered_completed_ns", entry.state == State::kCompleted
                                                   ? c10::IValue(entry.ended_ns + to_unix_ns)
                                                   : c10::IValue());
  value.insert("retired", entry.state == State::kFailed || entry.state == State::kCompleted);
  value.insert("timeout_ms", operation.timeout_ms);
  value.insert("is_p2p", operation.is_point_to_point);
  value.insert("thread_id", c10::str(entry.thread));
  value.insert("thread_name", std::string());
  value.insert("frames", frames_value(entry.traceback.get()));
  return value;
}

c10::IValue FlightRecorder::dump(bool only_active) const {
  const std::vector<Entry> all = snapshot();
  const std::int64_t to_unix_ns = now_ns(CLOCK_REALTIME) - now_ns(CLOCK_MONOTONIC);
  std::map<std::string, std::int64_t> group_numbers;
  auto entries = new_list();
  Dict groups = new_dict();
  Dict statuses = new_dict();
  for (const Entry& entry : all) {
    if (only_active && entry.state != State::kScheduled) {
      continue;
    }
    entries.push_back(entry_value(entry, to_unix_ns, &group_numbers));
    Dict group = new_dict();
    group.insert("name", entry.group->name);
    group.insert("desc", entry.group->desc);
    group.insert("ranks", ranks_of(*entry.group));
    groups.insert_or_assign(entry.group->name, group);
    const auto number = std::to_string(group_numbers.at(entry.group->name));
    const auto sequence = static_cast<std::int64_t>(entry.operation.collective_sequence);
    Dict status = new_dict();
    const auto known = statuses.find(number);
    if (known != statuses.end()) {
      status = known->value().to<Dict>();
    } else {
      status.insert("last_started_collective", std::int64_t{-1});
      status.insert("last_completed_collective", std::int64_t{-1});
    }
    status.insert_or_assign("last_enqueued_collective", sequence);
    if (entry.state == State::kCompleted) {
      status.insert_or_assign("last_started_collective", sequence);
      status.insert_or_assign("last_completed_collective", sequence);
    }
    statuses.insert_or_assign(number, status);
  }
  Dict result = new_dict();
  result.insert("version", std::string("2.10"));
  result.insert("entries", entries);
  result.insert("pg_config", groups);
  result.insert("pg_status", statuses);
  return result;
}

std::string FlightRecorder::pickled(bool only_active) const {
  return c10d::pickle_str(dump(only_active));
}

std::string FlightRecorder::summary(std::size_t limit) const {
  const std::vector<Entry> all = snapshot();
  std::string text;
  for (std::size_t i = all.size() > limit ? all.size() - limit : 0; i < all.size(); ++i) {
    const Entry& entry = all[i];
    const Operation& operation = entry.operation;
    text += c10::str("\n  group '", entry.group->name, "' #",
                     operation.is_point_to_point ? operation.point_to_point_sequence
                                                 : operation.collective_sequence,
                     " ", profiling_name(entry).substr(5), " ",
                     entry.state == State::kFailed ? "failed" : state_name(entry.state));
  }
  return text;
}

std::string FlightRecorder::write_dump(std::uint64_t global_rank) const {
  auto prefix = c10::utils::get_env("TORCH_FR_DUMP_TEMP_FILE");
  if (!prefix) {
    prefix = c10::utils::get_env("TORCH_NCCL_DEBUG_INFO_TEMP_FILE");
  }
  if (!prefix || prefix->empty()) {
    return "";
  }
  const std::string path = c10::str(*prefix, global_rank);
  const std::string bytes = pickled(/*only_active=*/false);
  // It may be a pipe, with or without a reader: whom the failure is told to does not wait for one.
  constexpr std::int64_t kPatience_ms = 500;
  const int file = open(path.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_NONBLOCK | O_CLOEXEC, 0666);
  bool written =
      file >= 0 && line_writer::WriteWithin(file, bytes.data(), bytes.size(), kPatience_ms);
  if (file >= 0) {
    written = close(file) == 0 && written;
  }
  if (!written) {
    log_line(Severity::kWarning, static_cast<std::int64_t>(global_rank),
             "the flight recorder could not write " + path);
    return "";
  }
  return path;
}

void FlightRecorder::reset() {
  const std::lock_guard<std::mutex> lock(mutex_);
  first_id_ = next_id_;
}

}  // namespace torch_openreg
