#include "python/csrc/c10d/communicator.h"

#include <ATen/ATen.h>
#include <c10/util/Exception.h>
#include <c10/util/Half.h>

#include <algorithm>
#include <complex>
#include <cstdint>
#include <exception>
#include <utility>

#include "occl/api/occl_debug.h"
#include "python/csrc/c10d/dtype.h"
#include "python/csrc/c10d/store_adapter.h"
#include "python/csrc/c10d/stream_cache.h"

namespace torch_openreg {
namespace {

// Distinct factors of PREMUL_SUM; a program has one or two.
constexpr std::size_t kMaxPremulSums = 1024;

// At least 1.
std::int64_t ms_until(std::chrono::steady_clock::time_point deadline) {
  const auto left =
      std::chrono::ceil<std::chrono::milliseconds>(deadline - std::chrono::steady_clock::now());
  return std::max<std::int64_t>(left.count(), 1);
}

std::vector<int> ranks_without_process(occlComm_t comm, int size) {
  std::vector<int> ranks;
  for (int rank = 0; rank < size; ++rank) {
    std::int64_t pid = 0;
    if (occlCommGetRankPid(comm, rank, &pid) == occlSuccess && pid == 0) {
      ranks.push_back(rank);
    }
  }
  return ranks;
}

c10::complex<double> factor_of(const c10d::ReduceOp& op) {
  const auto* supplement = dynamic_cast<const c10d::PreMulSumSupplement*>(op.supplement_.get());
  TORCH_CHECK_VALUE(supplement != nullptr,
                    "PREMUL_SUM carries no factor: make it with "
                    "torch.distributed._make_nccl_premul_sum(factor)");
  if (supplement->tensor_factor.defined()) {
    return supplement->tensor_factor.item().toComplexDouble();
  }
  return {supplement->double_factor, 0.0};
}

// The factor as one element of the wire type, in host memory.
template <typename Call>
occlResult_t with_scalar(occlDataType_t type, const c10::complex<double>& factor, Call&& call) {
  switch (type) {
    case occlFloat16: {
      const c10::Half value(static_cast<float>(factor.real()));
      return call(&value);
    }
    case occlBfloat16: {
      const c10::BFloat16 value(static_cast<float>(factor.real()));
      return call(&value);
    }
    case occlFloat32: {
      const auto value = static_cast<float>(factor.real());
      return call(&value);
    }
    case occlFloat64: {
      const double value = factor.real();
      return call(&value);
    }
    case occlComplex32: {
      const c10::complex<c10::Half> value(static_cast<float>(factor.real()),
                                          static_cast<float>(factor.imag()));
      return call(&value);
    }
    case occlComplex64: {
      const c10::complex<float> value(factor);
      return call(&value);
    }
    default: {
      return call(&factor);
    }
  }
}

}  // namespace

c10::intrusive_ptr<Communicator> Communicator::join(
    std::unique_ptr<StoreAdapter> meeting, const Occasion& occasion, const Settings& settings,
    std::vector<Announcement> peers, std::chrono::steady_clock::time_point deadline) {
  const GilReleaseForWait no_gil;
  const GroupIdentity& group = occasion.group;
  meeting->watch(peers, occasion);
  occlConfig_t config = OCCL_CONFIG_INITIALIZER;
  config.timeout_ms = settings.timeout.count();
  config.initTimeout_ms = ms_until(deadline);
  config.name = group.name.c_str();
  config.device = settings.device;
  config.early = 1;
  config.members = group.members.c_str();
  occlComm_t comm = nullptr;
  const occlResult_t result =
      occlCommInitRankStore(&comm, group.size, group.rank, meeting->interface(), &config);
  if (result != occlSuccess) {
    std::string detail = last_error_text(result, nullptr);
    meeting->rethrow_if(result);
    detail += result == occlTimeout ? meeting->tell_of({}) : "";
    throw_failure(result, occasion.failure(result, detail));
  }
  return c10::make_intrusive<Communicator>(comm, settings, std::move(meeting), std::move(peers));
}

Communicator::Communicator(occlComm_t comm, const Settings& settings,
                           std::unique_ptr<StoreAdapter> meeting, std::vector<Announcement> peers)
    : settings_(settings),
      meeting_place_(meeting == nullptr ? "" : meeting->place()),
      meeting_(std::move(meeting)),
      peers_(std::move(peers)),
      stream_(take_stream(settings.device, settings.high_priority)),
      message_streams_(settings.device, settings.high_priority),
      all_joined_(meeting_ == nullptr),
      comm_(comm) {}

void Communicator::await_ranks(const Occasion& occasion,
                               std::chrono::steady_clock::time_point deadline) {
  const GilReleaseForWait no_gil;
  meeting_->set_occasion(occasion);
  ToldWait told(settings_.own);
  occlResult_t result = occlInProgress;
  while (result != occlSuccess) {
    const bool last = std::chrono::steady_clock::now() >= deadline;
    // abort() must get through, so not under mutex_; nothing destroys it meanwhile, because
    // ProcessGroupOCCL does so under the lock under which it issues.
    occlComm_t const comm = handle();
    result = occlCommAwaitRanks(comm, meeting_->interface(), last ? 0 : kSignalInterval.count());
    if (result != occlSuccess && (result != occlTimeout || last)) {
      std::string detail = last_error_text(result, nullptr);
      meeting_->rethrow_if(result);
      if (result == occlTimeout) {
        detail += meeting_->tell_of(ranks_without_process(comm, occasion.group.size));
        // Those who wait as well, and those who come later, hear who is missing and who gave up.
        abort(detail);
      }
      if (result == occlRemoteError && detail.find(" has died") == std::string::npos) {
        // Who has left may have done so because of one that has ended.
        const std::string ended = meeting_->find_no_show(/*at_once=*/true).why;
        detail += ended.empty() ? "" : "; " + ended;
      }
      told.given_up();
      throw_failure(result, occasion.failure(result, detail));
    }
    const NoShow no_show = result == occlSuccess ? NoShow() : meeting_->find_no_show();
    if (!no_show.why.empty()) {
      // Those who have joined wait as well, some of them on their streams.
      abort(no_show.why);
      told.given_up();
      meeting_->raise(no_show);
    }
    if (result != occlSuccess) {
      told.tell(c10::str(occasion.operation, " #", occasion.sequence, " on ",
                         occasion.group.to_string()));
    }
    try {
      check_signals();
    } catch (...) {
      told.given_up();
      throw;
    }
  }
  told.over();
  all_joined_.store(true, std::memory_order_release);
  meeting_.reset();
  lookout_.reset();
  peers_.clear();
}

std::vector<int> Communicator::absent(int size) const {
  const std::lock_guard<std::mutex> lock(mutex_);
  return comm() == nullptr ? std::vector<int>() : ranks_without_process(comm_, size);
}

void Communicator::look_for(c10::ArrayRef<PointToPointKey> keys, const GroupIdentity& group) {
  if (peers_.empty()) {
    return;  // all have joined, or nobody tells
  }
  if (lookout_ == nullptr) {
    lookout_ = std::make_unique<Lookout>(handle(), peers_);
    looked_for_.assign(static_cast<std::size_t>(group.size), false);
  }
  for (const PointToPointKey& key : keys) {
    const bool any = key.peer == OCCL_ANY_SOURCE;
    for (int rank = any ? 0 : key.peer; rank < (any ? group.size : key.peer + 1); ++rank) {
      if (rank != group.rank && !looked_for_[static_cast<std::size_t>(rank)]) {
        looked_for_[static_cast<std::size_t>(rank)] = true;
        lookout_->look_for(rank);
      }
    }
  }
}

Communicator::~Communicator() {
  destroy();
  give_stream_back(stream_, settings_.high_priority);
}

occlComm_t Communicator::handle() const {
  const std::lock_guard<std::mutex> lock(mutex_);
  return comm();
}

occlRedOp_t Communicator::premul_sum(const c10d::ReduceOp& op, c10::ScalarType dtype) {
  const c10::complex<double> factor = factor_of(op);
  TORCH_CHECK_VALUE(factor.imag() == 0.0 || c10::isComplexType(dtype),
                    "PREMUL_SUM: expected a real factor for tensors of dtype ", dtype, ", got ",
                    factor.real(), factor.imag() < 0 ? "" : "+", factor.imag(),
                    "j (all_reduce of torch.distributed makes real views of complex tensors: use "
                    "reduce or reduce_scatter)");
  for (const PremulSum& known : premul_sums_) {
    if (known.dtype == dtype && known.real == factor.real() && known.imaginary == factor.imag()) {
      return known.operation;
    }
  }
  TORCH_CHECK(premul_sums_.size() < kMaxPremulSums, "PREMUL_SUM was used with more than ",
              kMaxPremulSums, " distinct factors in one group; multiply the tensors instead");
  const WireType wire = wire_type_for_reduction(dtype, op, "PREMUL_SUM");
  occlRedOp_t operation = occlSum;
  const occlResult_t result = with_scalar(wire.type, factor, [&](const void* scalar) {
    return occlRedOpCreatePreMulSum(&operation, scalar, wire.type, handle());
  });
  if (result != occlSuccess) {
    throw_failure(result, "PREMUL_SUM: " + last_error_text(result, handle()));
  }
  premul_sums_.push_back({dtype, factor.real(), factor.imag(), operation});
  return operation;
}

void Communicator::abort(const std::string& reason) {
  const std::lock_guard<std::mutex> lock(mutex_);
  if (comm() != nullptr) {
    occlCommAbort(comm_, reason.c_str());
  }
}

void Communicator::abort_for_user(const std::string& reason) {
  failures_->end();
  abort(reason);
}

void Communicator::tell_if_failed() const {
  if (async_error() != occlSuccess) {
    failures_->tell();
  }
}

void Communicator::set_timeout(std::chrono::milliseconds timeout) {
  const std::lock_guard<std::mutex> lock(mutex_);
  if (comm() != nullptr) {
    const occlResult_t result = occlCommSetTimeout(comm_, timeout.count());
    TORCH_CHECK(result == occlSuccess, "occlCommSetTimeout: ", occlGetLastError(nullptr));
  }
}

occlResult_t Communicator::async_error() const {
  const std::lock_guard<std::mutex> lock(mutex_);
  occlResult_t error = occlAborted;
  if (comm() != nullptr && occlCommGetAsyncError(comm_, &error) != occlSuccess) {
    error = occlInternalError;
  }
  return error;
}

std::string Communicator::failure() const {
  const std::lock_guard<std::mutex> lock(mutex_);
  return comm() == nullptr ? "" : occlGetLastError(comm_);
}

std::string Communicator::failure_unless_busy() const {
  const std::unique_lock<std::mutex> lock(mutex_, std::try_to_lock);
  return !lock.owns_lock() || comm() == nullptr ? "" : occlGetLastError(comm_);
}

bool Communicator::nobody_is_missing() const {
  if (all_joined()) {
    return true;
  }
  const std::lock_guard<std::mutex> lock(mutex_);
  int all = 1;
  return comm() == nullptr || occlCommAllJoined(comm_, &all) != occlSuccess || all == 1;
}

void Communicator::report_first_failure(const GroupIdentity& group,
                                        const std::string& message) noexcept {
  if (settings_.reports->first(FailureReports::Of::kGroup)) {
    log_failure(group, message);
  }
}

void Communicator::report_if_failed(const GroupIdentity& group, occlResult_t result,
                                    const std::string& message) noexcept {
  if (!is_callers_mistake(result) && async_error() != occlSuccess) {
    report_first_failure(group, message);
  }
}

void Communicator::log_failure(const GroupIdentity& group, const std::string& message) noexcept {
  std::string history;
  try {
    // Destroying waits for operations, and this may be the end of one.
    const std::unique_lock<std::mutex> lock(mutex_, std::try_to_lock);
    if (lock.owns_lock() && comm() != nullptr) {
      history = history_of_all_ranks(comm_, group.size);
    }
  } catch (const std::exception&) {
    // No memory for it: the message counts.
  }
  torch_openreg::log_failure(group, message, history);
}

std::string Communicator::tell_wait(occlRequest_t request) const {
  char text[2048] = "";
  const std::lock_guard<std::mutex> lock(mutex_);
  const bool told = occlRequestTellWait != nullptr &&  // an extra of OCCL's
                    comm() != nullptr &&
                    occlRequestTellWait(comm_, request, text, sizeof(text)) == occlSuccess;
  return told ? text : "";
}

void Communicator::destroy() {
  failures_->end();
  lookout_.reset();  // it uses comm_
  const std::lock_guard<std::mutex> lock(mutex_);
  if (comm() != nullptr) {
    occlCommDestroy(std::exchange(comm_, nullptr));
  }
}

}  // namespace torch_openreg
