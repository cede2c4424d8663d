#include "python/csrc/c10d/store_access.h"

#include <c10/util/StringUtil.h>
#include <c10/util/thread_name.h>
#include <fcntl.h>
#include <netdb.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <future>
#include <memory>
#include <string>
#include <system_error>
#include <thread>
#include <torch/csrc/distributed/c10d/PrefixStore.hpp>
#include <torch/csrc/distributed/c10d/TCPStore.hpp>
#include <utility>

namespace torch_openreg {
namespace {

constexpr int kConnect_ms = 500;

// Tasks that a store has left without an answer: those that come after them wait shortly, because
// a program may end many groups in turn.
std::atomic<int> unanswered{0};
constexpr std::chrono::milliseconds kShortPatience{10};

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

// torch logs a stack trace for each call of a TCPStore whose server has gone, so ask before.
bool is_served(const c10d::TCPStore& store) {
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

// nullptr: nobody serves it any more.
c10::intrusive_ptr<c10d::Store> own_connection(const c10::intrusive_ptr<c10d::Store>& store) {
  c10::intrusive_ptr<c10d::Store> base = store;
  if (auto* const prefixed = dynamic_cast<c10d::PrefixStore*>(store.get())) {
    base = prefixed->getUnderlyingNonPrefixStore();
  }
  const auto* const served = dynamic_cast<const c10d::TCPStore*>(base.get());
  if (served == nullptr) {
    return store;
  }
  return is_served(*served) ? store->clone() : nullptr;
}

}  // namespace

void use_store_aside(const c10::intrusive_ptr<c10d::Store>& store,
                     std::chrono::milliseconds patience,
                     std::function<void(const c10::intrusive_ptr<c10d::Store>&)> task) {
  const auto done = std::make_shared<std::promise<void>>();
  std::future<void> ended = done->get_future();
  std::thread thread;
  if (unanswered.fetch_add(1) > 0) {
    patience = std::min(patience, kShortPatience);
  }
  try {
    thread = std::thread([kept = store, done, task = std::move(task)]() mutable {
      c10::setThreadName("occl_store");
      try {
        if (const auto own = own_connection(kept)) {
          task(own);
        }
      } catch (...) {
        // The store is why: the others miss this rank at their timeout.
      }
      kept.reset();
      unanswered.fetch_sub(1);
      done->set_value();
    });
  } catch (const std::system_error&) {
    unanswered.fetch_sub(1);
    return;
  }
  if (ended.wait_for(patience) == std::future_status::ready) {
    thread.join();
  } else {
    thread.detach();
  }
}

}  // namespace torch_openreg
