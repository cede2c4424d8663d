#include "python/csrc/c10d/symmetric_trade.h"

#include <c10/util/Exception.h>
#include <c10/util/StringUtil.h>

#include <algorithm>
#include <utility>

#include "python/csrc/c10d/compat.h"
#include "python/csrc/c10d/group_store.h"
#include "python/csrc/c10d/process_group.h"
#include "python/csrc/c10d/symmetric_memory.h"

namespace torch_openreg {
namespace {

using Clock = std::chrono::steady_clock;
using Asks = ProcessGroupOCCL::Asks;

// Between two looks at the group while a rank does not come.
constexpr std::chrono::milliseconds kGroupInterval{100};
constexpr const char* kOperation = "rendezvous of symmetric memory";

std::chrono::milliseconds timeout_of(c10d::ProcessGroup& group) {
  try {
    return group.getBackend(c10::DeviceType::PrivateUse1)->getBackendOptions()->timeout;
  } catch (const c10::Error&) {
    return std::chrono::milliseconds(kBackendDefaultTimeout);  // no backend, or one without options
  }
}

std::string key_of(const char* kind, int rank) { return c10::str(kind, "/", rank); }

}  // namespace

SymmetricTrade::SymmetricTrade(c10d::ProcessGroup& group, std::string what)
    : timeout_(timeout_of(group)),
      group_id_(backend_of(group) == nullptr ? 0 : backend_of(group)->id()),
      rank_(group.getRank()),
      what_(std::move(what)) {
  GroupIdentity identity;
  identity.name = group.getGroupName();
  identity.rank = rank_;
  identity.size = group.getSize();
  const Occasion occasion{identity, kOperation};
  const StoreDeadline limit = deadline();
  try {
    adapter_ = std::make_unique<StoreAdapter>(TimedStore::of(store_of_attempt(group.getStore())),
                                              rank_, "symmetric_memory");
  } catch (const StoreSilence& silence) {
    throw_failure(occlTimeout, occasion.failure(occlTimeout, silence.what_without_backtrace()));
  } catch (const StoreGone& gone) {
    throw_failure(occlRemoteError,
                  occasion.failure(occlRemoteError, gone.what_without_backtrace()));
  }
  adapter_->set_occasion(occasion);
  if (ProcessGroupOCCL* const occl = backend_of(group)) {
    adapter_->watch(occl->announcements_of_peers(), occasion);
  }
}

StoreDeadline SymmetricTrade::deadline() const {
  return StoreDeadline(Clock::now() + timeout_, [id = group_id_] {
    return !ProcessGroupOCCL::find_abort(id, Asks::kNobody).empty();
  });
}

void SymmetricTrade::put(const char* kind, const void* value, std::size_t bytes) {
  const StoreDeadline limit = deadline();
  const occlStore_t* const store = adapter_->interface();
  adapter_->rethrow_if(store->set(store->context, key_of(kind, rank_).c_str(), value, bytes));
}

std::size_t SymmetricTrade::get(const char* kind, int rank, void* value, std::size_t capacity) {
  const auto end = Clock::now() + timeout_;
  const StoreDeadline limit = deadline();
  const occlStore_t* const store = adapter_->interface();
  const std::string key = key_of(kind, rank);
  std::size_t bytes = 0;
  while (true) {
    const auto left = std::chrono::ceil<std::chrono::milliseconds>(end - Clock::now());
    const bool last = left <= kGroupInterval;
    const auto patience = std::clamp(left, std::chrono::milliseconds(0), kGroupInterval);
    const occlResult_t result =
        store->get(store->context, key.c_str(), value, capacity, &bytes, patience.count());
    adapter_->rethrow_if(result);
    if (result == occlSuccess) {
      return bytes;
    }
    const std::string why = ProcessGroupOCCL::find_abort(group_id_, Asks::kAnyStore);
    if (!why.empty()) {
      C10_THROW_ERROR(DistBackendError, c10::str(what_, ": ", why));
    }
    if (result != occlTimeout || last) {
      C10_THROW_ERROR(DistBackendError,
                      c10::str(what_, ": rank ", rank, " did not come within ", timeout_.count(),
                               " ms", adapter_->tell_of({rank})));
    }
  }
}

}  // namespace torch_openreg
