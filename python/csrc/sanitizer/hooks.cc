// From streams and pointers of the binding to the engine's.
#include <atomic>
#include <iterator>
#include <limits>
#include <memory>
#include <mutex>
#include <unordered_map>
#include <utility>
#include <vector>

#include "python/csrc/sanitizer/host_access.h"
#include "python/csrc/sanitizer/operators.h"
#include "python/csrc/sanitizer/order.h"
#include "python/csrc/sanitizer/report.h"
#include "python/csrc/sanitizer/session.h"

namespace torch_openreg::sanitizer {
namespace detail {

std::atomic<bool> is_on{false};

void event_recorded(orEvent_t event, const c10::Stream& stream) {
  engine().record_event(key(event), key(stream));
}

void event_destroyed(orEvent_t event) noexcept { engine().forget_event(key(event)); }

void stream_waits(const c10::Stream& stream, orEvent_t event) {
  engine().stream_waits_for_event(key(stream), key(event));
}

void stream_follows(const c10::Stream& second, const c10::Stream& first) {
  engine().stream_waits_for_stream(key(second), key(first));
}

void host_saw_event(orEvent_t event) { engine().host_waits_for_event(key(event)); }

void host_saw_stream(const c10::Stream& stream) { engine().host_waits_for_stream(key(stream)); }

void host_saw_device(int device) {
  engine().host_waits_for_streams(
      [device](Engine::Handle handle) { return device_of(handle) == device; });
}

void allocated(const void* ptr, std::size_t bytes, const c10::Stream& stream) {
  engine().allocate(address(ptr), bytes, key(stream));
}

void freed(const void* ptr) noexcept { engine().free(address(ptr), current_place()); }

void stream_recorded(const void* ptr, const c10::Stream& stream) {
  engine().record_stream(address(ptr), key(stream));
}

void host_memory_freed(const void* ptr, std::size_t bytes) noexcept {
  engine().forget_memory(address(ptr), bytes);
}

}  // namespace detail

namespace {

// The operator that this thread calls.
struct Current {
  std::shared_ptr<const Operation> operation;
  OperatorTraits traits;
  std::size_t used = 0;  // tensors so far
};
thread_local Current current;
constexpr std::size_t kAll = std::numeric_limits<std::size_t>::max();
thread_local std::size_t written_first = kAll;
thread_local const at::Tensor* also_written[2] = {nullptr, nullptr};

// The sanitizer calls Python, and Python operators: those are not the program's.
thread_local bool is_reporting = false;

void add(std::vector<Finding>* findings, std::vector<Finding>&& more) {
  findings->insert(findings->end(), std::make_move_iterator(more.begin()),
                   std::make_move_iterator(more.end()));
}

void report_all(const std::vector<Finding>& findings) {
  if (!findings.empty()) {
    is_reporting = true;
    struct Reset {
      ~Reset() { is_reporting = false; }
    } const reset;
    report(findings);
  }
}

// What is refused with an exception does not run.
void report_all(const std::shared_ptr<const Operation>& operation,
                const std::vector<Finding>& findings) {
  try {
    report_all(findings);
  } catch (...) {
    engine().withdraw(*operation);
    throw;
  }
}

std::vector<Finding> use_all(const std::shared_ptr<const Operation>& operation,
                             c10::ArrayRef<Use> uses) {
  std::vector<Finding> findings;
  for (const Use& use : uses) {
    Access access;
    if (!describe_access(*use.tensor, &access)) {
      continue;
    }
    if (use.tensor->is_cpu()) {
      if (!use.tensor->is_pinned()) {
        continue;  // a number of the host, taken when the operator is called
      }
      watch_host();
    }
    access.operation = operation;
    access.writes = use.writes;
    add(&findings, engine().access(std::move(access)));
  }
  return findings;
}

}  // namespace

WrittenFirst::WrittenFirst(std::size_t count) { written_first = count; }
WrittenFirst::~WrittenFirst() { written_first = kAll; }

AlsoWritten::AlsoWritten(const at::Tensor& one, const at::Tensor& other) {
  also_written[0] = &one;
  also_written[1] = &other;
}
AlsoWritten::~AlsoWritten() { also_written[0] = also_written[1] = nullptr; }

void operation(const char* name, const c10::Stream& stream, c10::ArrayRef<Use> uses) {
  if (is_reporting) {
    return;
  }
  const OperatorTraits traits = traits_of(name);
  if (!traits.touches_memory) {
    return;
  }
  Operation operation;
  operation.name = name;
  operation.place = current_place();
  const auto begun = engine().begin(std::move(operation), key(stream));
  const std::vector<Finding> findings = use_all(begun, uses);
  if (traits.host_waits) {
    engine().host_waits_for_stream(key(stream));
  }
  report_all(begun, findings);
}

void detail::operator_begins(const char* name, const c10::Stream& stream) {
  current.operation.reset();
  current.used = 0;
  current.traits = traits_of(name);
  if (is_reporting || !current.traits.touches_memory) {
    return;
  }
  Operation operation;
  operation.name = name;
  operation.place = current_place();
  current.operation = engine().begin(std::move(operation), key(stream));
  if (current.traits.host_waits) {
    engine().host_waits_for_stream(key(stream));
  }
}

void detail::operator_uses(const at::Tensor& tensor, bool writes) {
  const std::size_t index = current.used++;
  if (current.operation == nullptr || is_reporting) {
    return;
  }
  writes = writes && !current.traits.writes_no_lists && index < written_first;
  for (const at::Tensor* const also : also_written) {
    writes = writes || (also != nullptr && also->is_same(tensor));
  }
  const Use use{&tensor, writes};
  report_all(current.operation, use_all(current.operation, use));
}

void detail::operator_makes(const at::Tensor& tensor) {
  if (current.operation != nullptr && !is_reporting) {
    const Use use{&tensor, true};
    const auto has_run = std::exchange(current.operation, nullptr);  // whatever is thrown now
    report_all(use_all(has_run, use));
    current.operation = has_run;
  }
}

void detail::operator_failed() noexcept {
  if (const auto failed = std::exchange(current.operation, nullptr)) {
    engine().withdraw(*failed);
  }
}

void detail::raw_copy(const char* name, const c10::Stream& stream, const void* to, const void* from,
                      std::size_t bytes) {
  Operation operation;
  operation.name = name;
  operation.place = current_place();
  const auto begun = engine().begin(std::move(operation), key(stream));
  std::vector<Finding> findings;
  for (const void* const side : {from, to}) {
    Access access;
    access.operation = begun;
    access.writes = side == to;
    access.region = Region(address(side), address(side) + bytes);
    access.tensor.dtype = "bytes";
    access.tensor.sizes[0] = static_cast<std::int64_t>(bytes);
    access.tensor.dims = 1;
    access.tensor.storage_low = address(side);
    access.tensor.storage_bytes = bytes;
    add(&findings, engine().access(std::move(access)));
  }
  report_all(begun, findings);
}

namespace {

// Puts an operation in its place: after `current` and after what its channels, or its stream, do.
std::shared_ptr<const Operation> begin(Operation operation, const WorkDescription& description,
                                       const c10::Stream& stream, const c10::Stream& current) {
  if (description.channels.empty()) {
    engine().stream_waits_for_stream(key(stream), key(current));
    return engine().begin(std::move(operation), key(stream));
  }
  const auto handle = [&](std::uint64_t channel) {
    return channel_key(stream.device_index(), channel);
  };
  const Engine::Handle first = handle(description.channels[0]);
  engine().stream_waits_for_stream(first, key(current));
  for (const std::uint64_t channel : description.channels) {
    engine().stream_waits_for_stream(first, handle(channel));
  }
  auto begun = engine().begin(std::move(operation), first);
  for (const std::uint64_t channel : description.channels) {
    engine().stream_waits_for_stream(handle(channel), first);
  }
  engine().stream_waits_for_stream(key(stream), first);  // for results that are copied back there
  return begun;
}

}  // namespace

WorkPtr collective(const WorkDescription& description, const c10::Stream& stream,
                   const c10::Stream& current, c10::ArrayRef<Use> uses) {
  if (!enabled()) {
    return nullptr;
  }
  Operation operation;
  operation.name = description.name;
  operation.place = current_place();
  operation.group = description.group;
  operation.sequence = description.sequence;
  auto work = std::make_shared<Work>();
  work->operation = begin(std::move(operation), description, stream, current);
  work->asynchronous = description.asynchronous;
  report_all(work->operation, use_all(work->operation, uses));
  Access last;
  for (const Use& use : uses) {
    if (describe_access(*use.tensor, &last)) {
      last.writes = use.writes;
    }
  }
  last.operation = work->operation;
  work->tensor = std::make_shared<const Access>(std::move(last));
  work->end = engine().snapshot(engine().handle_of(work->operation->epoch.timeline));
  remember(work);
  return work;
}

namespace {

// Works by the address of their c10d::Work.
struct Known {
  std::atomic<bool> any{false};  // stays true: so that nothing is looked up where it was never on
  std::mutex mutex;
  std::unordered_map<const void*, WorkPtr> works;
};

Known& known() {
  static auto* const instance = new Known;  // leaked: used at exit
  return *instance;
}

WorkPtr find(const void* work) {
  if (!enabled()) {
    return nullptr;
  }
  const std::lock_guard<std::mutex> lock(known().mutex);
  const auto found = known().works.find(work);
  return found == known().works.end() ? nullptr : found->second;
}

}  // namespace

void work_is(const void* work, WorkPtr issued) {
  if (issued != nullptr) {
    known().any.store(true, std::memory_order_relaxed);
    const std::lock_guard<std::mutex> lock(known().mutex);
    known().works[work] = std::move(issued);
  }
}

void work_never_began(const WorkPtr& issued) noexcept {
  if (issued != nullptr) {
    issued->ended = true;
    engine().withdraw(*issued->operation);
  }
}

void work_goes(const void* work) noexcept {
  if (!known().any.load(std::memory_order_relaxed)) [[likely]] {
    return;
  }
  const std::lock_guard<std::mutex> lock(known().mutex);
  known().works.erase(work);
}

void work_copies_back(const void* work, const c10::Stream& stream) {
  if (const WorkPtr found = find(work)) {
    found->end = engine().snapshot(key(stream));
  }
}

void stream_waits_for_work(const c10::Stream& stream, const void* work) {
  if (const WorkPtr found = find(work)) {
    found->awaited = true;
    engine().stream_waits_for(key(stream), found->end);
  }
}

void host_saw_work(const void* work) {
  if (const WorkPtr found = find(work)) {
    found->awaited = true;
    engine().host_waits_for(found->end);
  }
}

void work_ended(const void* work) noexcept {
  if (const WorkPtr found = find(work)) {
    found->ended = true;
  }
}

void work_releases(const c10::Stream& stream, c10::ArrayRef<at::Tensor> tensors) noexcept {
  if (!enabled()) {
    return;
  }
  for (const at::Tensor& tensor : tensors) {
    Access access;
    if (describe_access(tensor, &access)) {
      engine().record_stream(access.tensor.storage_low, key(stream));
    }
  }
}

void group_leaves(const std::string& group) {
  if (enabled()) {
    log_all(remaining_works(group));
  }
}

}  // namespace torch_openreg::sanitizer
