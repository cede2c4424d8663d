#include "python/csrc/c10d/symmetric_memory.h"

#include <c10/util/Exception.h>
#include <c10/util/StringUtil.h>
#include <linux/futex.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <climits>
#include <ctime>
#include <utility>

#include "python/csrc/c10d/compat.h"
#include "python/csrc/c10d/process_group.h"
#include "python/csrc/runtime/deferred.h"
#include "python/csrc/runtime/device.h"
#include "python/csrc/runtime/memory.h"
#include "python/csrc/runtime/stream.h"

namespace torch_openreg {
namespace {

using Clock = std::chrono::steady_clock;
using Word = std::atomic<std::uint32_t>;
static_assert(sizeof(Word) == sizeof(std::uint32_t) && Word::is_always_lock_free);

constexpr std::size_t kPadAlignment = 512;
constexpr int kSpins = 200;
// The longest sleep before looking again: a kernel of the user may store a signal without waking.
constexpr long kNap_ns = 1'000'000;
// So often it is asked whether the group has been aborted.
constexpr std::chrono::milliseconds kAbortInterval{100};

std::size_t round_up(std::size_t bytes, std::size_t unit) {
  return (bytes + unit - 1) / unit * unit;
}

Word* signal_word(const SymmetricPeers& peers, int pad, int channel, int source) {
  auto* const words = static_cast<Word*>(kernel_ptr(peers.pads[static_cast<std::size_t>(pad)]));
  return words + static_cast<std::ptrdiff_t>(channel) * peers.size + source;
}

// One signal to give or to take: a word that goes from one value to another.
struct Signal {
  Word* word;
  std::uint32_t from, to;
  int peer;
};

// Runs on the stream's worker.
class SignalTask final : public DeferredTask {
 public:
  SignalTask(std::shared_ptr<const SymmetricPeers> peers, const char* name, int channel,
             std::size_t timeout_ms, std::vector<Signal> signals)
      : peers_(std::move(peers)),
        name_(name),
        channel_(channel),
        timeout_(timeout_ms == 0 ? std::chrono::milliseconds(kBackendDefaultTimeout)
                                 : std::chrono::milliseconds(timeout_ms)),
        signals_(std::move(signals)) {}

  void run() override {
    const auto deadline = Clock::now() + timeout_;
    for (const Signal& signal : signals_) {
      exchange(signal, deadline);
    }
  }

 private:
  static bool try_exchange(const Signal& signal) {
    std::uint32_t expected = signal.from;
    if (!signal.word->compare_exchange_strong(expected, signal.to, std::memory_order_acq_rel)) {
      return false;
    }
    syscall(SYS_futex, signal.word, FUTEX_WAKE, INT_MAX, nullptr, nullptr, 0);
    return true;
  }

  void exchange(const Signal& signal, Clock::time_point deadline) const {
    for (int spin = 0; spin < kSpins; ++spin) {
      if (try_exchange(signal)) {
        return;
      }
    }
    auto next_look = Clock::now() + kAbortInterval;
    while (!try_exchange(signal)) {
      const timespec nap{0, kNap_ns};
      syscall(SYS_futex, signal.word, FUTEX_WAIT, signal.to, &nap, nullptr, 0);
      if (try_exchange(signal)) {
        return;
      }
      const bool ended = peers_->processes[static_cast<std::size_t>(signal.peer)].ended();
      // What it did last has arrived by now.
      if (ended && !try_exchange(signal)) {
        fail(signal, c10::str("rank ", signal.peer, " (process ",
                              peers_->processes[static_cast<std::size_t>(signal.peer)].pid(),
                              ") has ended"));
      }
      const auto now = Clock::now();
      if (now >= next_look) {
        if (const std::string why = peers_->find_abort(); !why.empty()) {
          fail(signal, why);
        }
        next_look = now + kAbortInterval;
      }
      if (now >= deadline) {
        fail(signal,
             c10::str("rank ", signal.peer, " did not come within ", timeout_.count(), " ms"));
      }
      if (ended) {
        return;
      }
    }
  }

  [[noreturn]] void fail(const Signal& signal, const std::string& why) const {
    const std::string message =
        c10::str("symmetric memory ", name_, " on ", peers_->to_string(), ", channel ", channel_,
                 ", ", signal.to == 0 ? "waiting for a signal of rank " : "waiting to signal rank ",
                 signal.peer, ": ", why);
    peers_->report(message);
    C10_THROW_ERROR(DistBackendError, message);
  }

  const std::shared_ptr<const SymmetricPeers> peers_;
  const char* const name_;
  const int channel_;
  const std::chrono::milliseconds timeout_;
  const std::vector<Signal> signals_;
};

Signal give(const SymmetricPeers& peers, int to, int channel) {
  return {signal_word(peers, to, channel, peers.rank), 0, 1, to};
}

Signal take(const SymmetricPeers& peers, int from, int channel) {
  return {signal_word(peers, peers.rank, channel, from), 1, 0, from};
}

void free_device_memory(void* memory) {
  if (memory != nullptr && !in_bad_fork()) {
    OR_WARN(orFree(memory));
  }
}

}  // namespace

ProcessGroupOCCL* backend_of(c10d::ProcessGroup& group) {
  try {
    return dynamic_cast<ProcessGroupOCCL*>(
        group.getBackend(c10::DeviceType::PrivateUse1).get());  // `group` holds it
  } catch (const c10::Error&) {
    return nullptr;  // it has none for this device
  }
}

SymmetricBlock::SymmetricBlock(std::size_t bytes, c10::DeviceIndex on, std::string group)
    : buffer_bytes(bytes),
      pad_offset(round_up(bytes, kPadAlignment)),
      pad_bytes(c10d::symmetric_memory::get_signal_pad_size()),
      device(on),
      default_group(std::move(group)) {
  const DeviceScope scope(device);
  OR_CHECK(orMalloc(&base, pad_offset + pad_bytes));
  const orError_t zeroed = orMemset(static_cast<char*>(base) + pad_offset, 0, pad_bytes);
  if (zeroed != orSuccess) {
    free_device_memory(base);
    throw_error(zeroed, "orMemset");
  }
}

SymmetricBlock::~SymmetricBlock() { free_device_memory(base); }

SymmetricPeers::Import::~Import() {
  if (!in_bad_fork()) {
    OR_WARN(orIpcCloseMemHandle(base));
  }
}

SymmetricPeers::SymmetricPeers(const c10::intrusive_ptr<c10d::ProcessGroup>& owner)
    : group(owner), rank(owner->getRank()), size(owner->getSize()) {
  // The groups of other backends have symmetric memory as well, and tell of their failures
  // themselves.
  auto* const occl = backend_of(*owner);
  report = occl == nullptr ? [](const std::string&) {}
                           : occl->reporter(FailureReports::Of::kSymmetricMemory);
  find_abort = [id = occl == nullptr ? 0 : occl->id()] {
    return ProcessGroupOCCL::find_abort(id, ProcessGroupOCCL::Asks::kStoreOfTorch);
  };
}

SymmetricPeers::~SymmetricPeers() { free_device_memory(static_cast<void*>(buffers_on_device)); }

std::string SymmetricPeers::to_string() const {
  return c10::str("rank ", rank, " of ", size, " in group '", group_name, "'");
}

void SymmetricMemoryOCCL::check_channel(int channel) const {
  const auto channels = static_cast<int>(std::min<std::size_t>(
      INT_MAX, peers_->own->pad_bytes / sizeof(Word) / static_cast<std::size_t>(peers_->size)));
  TORCH_CHECK(channel >= 0 && channel < channels, "symmetric memory on ", peers_->to_string(),
              ": expected a channel of 0 to ", channels - 1,
              " (set_signal_pad_size gives more), got ", channel);
}

void SymmetricMemoryOCCL::check_rank(int rank, const char* what) const {
  TORCH_CHECK(rank >= 0 && rank < peers_->size, "symmetric memory on ", peers_->to_string(),
              ": expected a ", what, " of 0 to ", peers_->size - 1, ", got ", rank);
}

void SymmetricMemoryOCCL::barrier(int channel, std::size_t timeout_ms) {
  check_channel(channel);
  std::vector<Signal> signals;
  for (int peer = 0; peer < peers_->size; ++peer) {
    if (peer != peers_->rank) {
      signals.push_back(give(*peers_, peer, channel));
    }
  }
  for (int peer = 0; peer < peers_->size; ++peer) {
    if (peer != peers_->rank) {
      signals.push_back(take(*peers_, peer, channel));
    }
  }
  enqueue("symm_mem::barrier", current_stream(peers_->own->device),
          std::make_unique<SignalTask>(peers_, "barrier", channel, timeout_ms, std::move(signals)));
}

void SymmetricMemoryOCCL::put_signal(int dst_rank, int channel, std::size_t timeout_ms) {
  check_channel(channel);
  check_rank(dst_rank, "destination");
  enqueue("symm_mem::put_signal", current_stream(peers_->own->device),
          std::make_unique<SignalTask>(peers_, "put_signal", channel, timeout_ms,
                                       std::vector<Signal>{give(*peers_, dst_rank, channel)}));
}

void SymmetricMemoryOCCL::wait_signal(int src_rank, int channel, std::size_t timeout_ms) {
  check_channel(channel);
  check_rank(src_rank, "source");
  enqueue("symm_mem::wait_signal", current_stream(peers_->own->device),
          std::make_unique<SignalTask>(peers_, "wait_signal", channel, timeout_ms,
                                       std::vector<Signal>{take(*peers_, src_rank, channel)}));
}

}  // namespace torch_openreg
