#include "python/csrc/c10d/store_access.h"

#include <c10/util/StringUtil.h>
#include <c10/util/thread_name.h>
#include <netdb.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstdlib>
#include <future>
#include <memory>
#include <string>
#include <system_error>
#include <thread>
#include <utility>
#include <vector>

#include "python/csrc/c10d/store_server.h"
#include "python/csrc/c10d/timed_store.h"

namespace torch_openreg {
namespace {

using StorePtr = c10::intrusive_ptr<c10d::Store>;
using Clock = std::chrono::steady_clock;

constexpr int kConnect_ms = 500;

// Tasks that a store has left without an answer: those that come after them wait shortly, because
// a program may end many groups in turn.
std::atomic<int> unanswered{0};
constexpr std::chrono::milliseconds kShortPatience{10};
// The caller's connection answers within this, or another thread waits in it.
constexpr std::chrono::milliseconds kSharedPatience{100};
// Threads of this file that wait in callers' connections.
std::atomic<int> asking{0};

bool connects(const addrinfo& address) {
  const int socket =
      ::socket(address.ai_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, address.ai_protocol);
  if (socket < 0) {
    return false;
  }
  pollfd writable{socket, POLLOUT, 0};
  bool connected = ::connect(socket, address.ai_addr, address.ai_addrlen) == 0;
  if (!connected && errno == EINPROGRESS && ::poll(&writable, 1, kConnect_ms) > 0) {
    int error = 0;
    socklen_t size = sizeof(error);
    connected = ::getsockopt(socket, SOL_SOCKET, SO_ERROR, &error, &size) == 0 && error == 0;
  }
  ::close(socket);
  return connected;
}

bool accepts_connections(const c10d::TCPStore& store) {
  addrinfo hints{};
  hints.ai_socktype = SOCK_STREAM;
  addrinfo* found = nullptr;
  if (::getaddrinfo(store.getHost().c_str(), std::to_string(store.getPort()).c_str(), &hints,
                    &found) != 0) {
    return false;
  }
  bool served = false;
  for (const addrinfo* one = found; one != nullptr && !served; one = one->ai_next) {
    served = connects(*one);
  }
  ::freeaddrinfo(found);
  return served;
}

// torch logs a stack trace for each call of a TCPStore whose server has gone, so look before. At
// this process's connections to it: for a new one both sides ask the name service for the other's
// name, which may take seconds.
bool is_served(const c10d::TCPStore& store) {
  const std::vector<int> connections = connections_to(store.getPort());
  for (const int connection : connections) {
    pollfd end{connection, POLLRDHUP, 0};
    if (::poll(&end, 1, 0) == 0) {
      return true;
    }
  }
  return connections.empty() && accepts_connections(store);
}

// Done once, by whichever thread gets to it first.
class Errand {
 public:
  explicit Errand(std::function<void(const StorePtr&)> task) : task_(std::move(task)) {}
  bool take() { return !taken_.exchange(true); }
  // By who has taken it. `store` empty: there is nobody to tell.
  void finish(StorePtr store) {
    try {
      if (store) {
        task_(store);
      }
    } catch (...) {
      // The store is why: the others miss this rank at their timeout.
    }
    store.reset();
    unanswered.fetch_sub(1);
    done_.set_value();
  }
  bool wait_until(Clock::time_point deadline) {
    return ended_.wait_until(deadline) == std::future_status::ready;
  }

 private:
  const std::function<void(const StorePtr&)> task_;
  std::atomic<bool> taken_{false};
  std::promise<void> done_;
  std::future<void> ended_ = done_.get_future();
};

// In the caller's connection, once no other thread waits in it.
void run_in_shared(Errand& errand, StorePtr store) {
  asking.fetch_add(1);
  try {
    if (const c10d::TCPStore* const served = as_served(store)) {
      if (is_served(*served)) {
        (void)store->check({"occl/answers"});
      } else {
        store.reset();
      }
    }
  } catch (...) {
    store.reset();
  }
  asking.fetch_sub(1);
  if (errand.take()) {
    errand.finish(std::move(store));
  }
}

void run_in_own(Errand& errand, const StorePtr& store) {
  StorePtr own;
  try {
    own = is_served(*as_served(store)) ? store->clone() : nullptr;
  } catch (...) {
    own = nullptr;
  }
  errand.finish(std::move(own));
}

template <typename F>
std::thread start(F&& run) {
  return std::thread([run = std::forward<F>(run)]() mutable {
    c10::setThreadName("occl_store");
    run();
  });
}

// The thread that does it has ended, or goes on.
void leave(std::thread thread, bool ended) {
  if (!thread.joinable()) {
    return;
  }
  if (ended) {
    thread.join();
  } else {
    thread.detach();
  }
}

}  // namespace

const c10d::TCPStore* as_served(const StorePtr& store) {
  const StorePtr base = below_prefixes(TimedStore::untimed(below_prefixes(store)));
  return dynamic_cast<const c10d::TCPStore*>(base.get());  // `store` holds it
}

void use_store_aside(const StorePtr& store, std::chrono::milliseconds patience,
                     std::function<void(const StorePtr&)> task) {
  if (unanswered.fetch_add(1) > 0) {
    patience = std::min(patience, kShortPatience);
  }
  const auto errand = std::make_shared<Errand>(std::move(task));
  const auto begin = Clock::now();
  const bool served = as_served(store) != nullptr;
  bool ended = false;
  bool taken = false;  // here
  std::thread thread;
  try {
    if (!served || asking.load() == 0) {
      thread = start([errand, kept = store]() mutable { run_in_shared(*errand, std::move(kept)); });
      ended = errand->wait_until(begin + (served ? std::min(patience, kSharedPatience) : patience));
    }
    taken = !ended && served && errand->take();
    if (taken) {
      leave(std::move(thread), false);
      thread = start([errand, kept = store] { run_in_own(*errand, kept); });
    }
    ended = ended || errand->wait_until(begin + patience);
  } catch (const std::system_error&) {
    if (taken || errand->take()) {
      unanswered.fetch_sub(1);
    }
  }
  leave(std::move(thread), ended);
}

}  // namespace torch_openreg
