#include "python/csrc/c10d/store_adapter.h"

#include <c10/util/Exception.h>
#include <c10/util/StringUtil.h>
#include <pybind11/pybind11.h>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <cstring>
#include <thread>
#include <utility>
#include <vector>

#include "python/csrc/c10d/errors.h"

namespace torch_openreg {
namespace {

using Clock = std::chrono::steady_clock;

// Between two looks into the store: short at first, because peers usually come together.
constexpr std::chrono::microseconds kFirstPause{200};
constexpr std::chrono::microseconds kLongestPause{10000};
// OCCL asks with no more time than this for what need not be there.
constexpr std::chrono::milliseconds kTryOnly{1};
// So long it waits for the store then, once.
constexpr std::chrono::milliseconds kSlowAnswer{1000};
// Between two looks at peers that have not come.
constexpr std::chrono::milliseconds kPresenceInterval{100};
// For the rank that takes the place of those that have gone.
constexpr std::chrono::milliseconds kHeirPatience{2000};

}  // namespace

StoreAdapter::StoreAdapter(c10::intrusive_ptr<c10d::Store> store, int rank, const char* purpose)
    : store_(std::move(store)),
      prefix_(c10::str("occl/", purpose, "/",
                       store_->add(c10::str("occl/", purpose, "_of_rank_", rank), 1), "/")),
      interface_{this, &StoreAdapter::set, &StoreAdapter::get, &StoreAdapter::add} {}

StoreAdapter::StoreAdapter(c10::intrusive_ptr<c10d::Store> store, const std::string& place)
    : store_(std::move(store)),
      place_(place),
      prefix_(c10::str("occl/communicators/", place, "/")),
      interface_{this, &StoreAdapter::set, &StoreAdapter::get, &StoreAdapter::add} {}

occlResult_t StoreAdapter::keep_error() noexcept {
  try {
    throw;
  } catch (const StoreSilence& silence) {
    if (error_ == nullptr) {  // else that is why nobody waits for the store any more
      error_ =
          make_exception(occlTimeout, failure_message(group_, operation_, sequence_, occlTimeout,
                                                      silence.what_without_backtrace()));
    }
  } catch (const StoreGone& gone) {
    error_ = make_exception(occlRemoteError,
                            failure_message(group_, operation_, sequence_, occlRemoteError,
                                            gone.what_without_backtrace()));
  } catch (const pybind11::error_already_set&) {
    error_ = std::current_exception();
    StoreDeadline::give_up();
    return occlAborted;
  } catch (...) {
    error_ = std::current_exception();
  }
  return occlSystemError;
}

occlResult_t StoreAdapter::set(void* context, const char* key, const void* value, size_t size) {
  auto* self = static_cast<StoreAdapter*>(context);
  try {
    const auto* bytes = static_cast<const std::uint8_t*>(value);
    self->store_->set(self->prefix_ + key, std::vector<std::uint8_t>(bytes, bytes + size));
    return occlSuccess;
  } catch (...) {
    return self->keep_error();
  }
}

occlResult_t StoreAdapter::get(void* context, const char* key, void* value, size_t capacity,
                               size_t* size, int64_t timeout_ms) {
  auto* self = static_cast<StoreAdapter*>(context);
  const std::chrono::milliseconds least = self->silence_.empty() ? kSlowAnswer : kTryOnly;
  try {
    const StoreDeadline deadline(
        timeout_ms < 0 ? Clock::time_point::max()
                       : Clock::now() + std::max(least, std::chrono::milliseconds(timeout_ms)));
    const occlResult_t result = self->read(self->prefix_ + key, value, capacity, size, timeout_ms);
    self->silence_.clear();
    return result;
  } catch (const StoreSilence& silence) {
    if (silence.is_long()) {
      self->silence_ = silence.what_without_backtrace();
    }
    return StoreDeadline::is_given_up() ? self->keep_error() : occlTimeout;
  } catch (...) {
    return self->keep_error();
  }
}

occlResult_t StoreAdapter::add(void* context, const char* key, int64_t delta, int64_t* sum) {
  auto* self = static_cast<StoreAdapter*>(context);
  try {
    *sum = self->store_->add(self->prefix_ + key, delta);
    return occlSuccess;
  } catch (...) {
    return self->keep_error();
  }
}

occlResult_t StoreAdapter::read(const std::string& key, void* value, size_t capacity, size_t* size,
                                int64_t timeout_ms) {
  const std::chrono::milliseconds timeout(timeout_ms);
  const auto deadline = timeout_ms < 0 ? Clock::time_point::max() : Clock::now() + timeout;
  bool there = store_->check({key});
  if (timeout_ms >= 0 && timeout <= kTryOnly && !there) {
    return occlTimeout;
  }
  // A dead rank is no reason not to join the others: those who are left go on in a smaller group.
  // It is one if it was the first, whom OCCL asks for again and again: that one is about to be
  // there. So is who takes its place where an earlier one has gone, whose key is still there.
  const auto began = Clock::now();
  if (key != last_key_) {
    last_key_ = key;
    asked_since_ = began;
  } else if (began - asked_since_ >= kHeirPatience || !there) {
    if (const NoShow no_show = find_no_show(); !no_show.why.empty()) {
      raise(no_show);
    }
  }
  auto pause = kFirstPause;
  auto last_signal_check = Clock::now();
  // Store::wait cannot be interrupted, and logs each expiry: ask instead.
  while (!there) {
    const auto now = Clock::now();
    if (now >= deadline) {
      return occlTimeout;
    }
    if (now - last_signal_check >= kSignalInterval) {
      check_signals();
      last_signal_check = now;
    }
    std::this_thread::sleep_for(pause);
    pause = std::min(pause * 2, kLongestPause);
    there = store_->check({key});
  }
  const std::vector<std::uint8_t> found = store_->get(key);
  TORCH_CHECK(found.size() <= capacity, "the store has ", found.size(), " bytes under '", key,
              "', at most ", capacity, " were expected");
  std::memcpy(value, found.data(), found.size());
  *size = found.size();
  return occlSuccess;
}

NoShow StoreAdapter::find_no_show(bool at_once) {
  const auto now = Clock::now();
  if (presence_ == nullptr || (now < next_look_ && !at_once)) {
    return {};
  }
  next_look_ = now + kPresenceInterval;
  const StoreMoment moment(kSignalInterval);
  try {
    return presence_->find_no_show([this](int rank) { return store_->check({left_key(rank)}); });
  } catch (const StoreSilence&) {
    return {};
  } catch (const StoreGone&) {
    return {};  // the next read says so
  }
}

std::string StoreAdapter::left_key(int rank) const {
  return c10::str(prefix_, "left_in_order/", rank);
}

void StoreAdapter::say_left(int rank) const { store_->set(left_key(rank), "1"); }

std::string StoreAdapter::tell_of(const std::vector<int>& missing) {
  if (!silence_.empty()) {
    return "; " + silence_;
  }
  return presence_ == nullptr ? "" : presence_->tell_of(missing, ", and has not used the group");
}

void StoreAdapter::raise(const NoShow& no_show) const {
  throw_failure(no_show.result,
                failure_message(group_, operation_, sequence_, no_show.result, no_show.why));
}

}  // namespace torch_openreg
