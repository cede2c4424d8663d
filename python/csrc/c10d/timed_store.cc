#include "python/csrc/c10d/timed_store.h"

#include <c10/util/StringUtil.h>
#include <c10/util/thread_name.h>
#include <unistd.h>

#include <algorithm>
#include <condition_variable>
#include <deque>
#include <future>
#include <map>
#include <mutex>
#include <system_error>
#include <thread>
#include <torch/csrc/distributed/c10d/FileStore.hpp>
#include <torch/csrc/distributed/c10d/PrefixStore.hpp>
#include <torch/csrc/distributed/c10d/TCPStore.hpp>
#include <utility>

#include "python/csrc/c10d/errors.h"
#include "python/csrc/c10d/peer_process.h"
#include "python/csrc/c10d/store_server.h"

namespace torch_openreg {
namespace {

using StorePtr = c10::intrusive_ptr<c10d::Store>;
using Clock = std::chrono::steady_clock;

// A store that owes an answer for so long is taken to be silent.
constexpr std::chrono::milliseconds kSilent{500};
// For a call after the deadline: of a store that answers, and of one that is silent.
constexpr std::chrono::milliseconds kGrace{200};
constexpr std::chrono::milliseconds kGraceOfSilent{5};

thread_local StoreDeadline* innermost = nullptr;

}  // namespace

StorePtr below_prefixes(const StorePtr& store) {
  auto* const prefixed = dynamic_cast<c10d::PrefixStore*>(store.get());
  return prefixed == nullptr ? store : prefixed->getUnderlyingNonPrefixStore();
}

StoreDeadline::StoreDeadline(Clock::time_point end, std::function<bool()> is_over, bool is_moment)
    : end_(end),
      is_over_(std::move(is_over)),
      is_moment_(is_moment),
      outer_(std::exchange(innermost, this)) {}

StoreDeadline::~StoreDeadline() { innermost = outer_; }

void StoreDeadline::give_up() {
  for (StoreDeadline* one = innermost; one != nullptr; one = one->outer_) {
    one->given_up_ = true;
  }
}

bool StoreDeadline::is_given_up() {
  for (const StoreDeadline* one = innermost; one != nullptr; one = one->outer_) {
    if (one->given_up_ || (one->is_over_ && one->is_over_())) {
      return true;
    }
  }
  return false;
}

StoreDeadline::Limits StoreDeadline::limits(Clock::time_point otherwise) {
  Limits limits{Clock::time_point::max(), Clock::time_point::max()};
  for (const StoreDeadline* one = innermost; one != nullptr; one = one->outer_) {
    Clock::time_point& limit = one->is_moment_ ? limits.moment : limits.end;
    limit = std::min(limit, one->end_);
  }
  const bool any = limits.end != Clock::time_point::max();
  return {any ? limits.end : otherwise, limits.moment};
}

// Asks one connection, whose answers come one at a time.
class TimedStore::Thread {
 public:
  using Ticket = std::shared_ptr<std::function<void()>>;

  // That of the connection `store`: one for all that live. Throws std::system_error.
  static std::shared_ptr<Thread> of(const StorePtr& store);

  explicit Thread(const StorePtr& store) : state_(std::make_shared<State>()), store_(store) {
    thread_ = std::thread([state = state_, kept = store] {
      c10::setThreadName("occl_store");
      run(*state);
    });
  }

  ~Thread() {
    if (::getpid() != pid_) {
      // The parent's, and its locks may be held here for good.
      (void)new auto(std::move(thread_));
      (void)new auto(std::move(state_));
      return;
    }
    bool busy = false;
    {
      const std::lock_guard<std::mutex> lock(state_->mutex);
      state_->stopping = true;
      busy = state_->asked != nullptr || !state_->waiting.empty();
      state_->changed.notify_one();
    }
    if (busy) {
      thread_.detach();  // it ends once the store answers
    } else {
      thread_.join();
    }
  }

  Thread(const Thread&) = delete;
  Thread& operator=(const Thread&) = delete;

  // "the store at localhost:29500 has not answered for 2000 ms; pid 4711, which serves it, is
  // stopped".
  std::string tell_silence(Clock::duration silent);
  // The connection is no more: nothing is asked again, for torch logs a stack trace for each call.
  void end(const std::string& why);
  void throw_if_ended() const;

  Ticket post(std::function<void()> ask) {
    auto ticket = std::make_shared<std::function<void()>>(std::move(ask));
    const std::lock_guard<std::mutex> lock(state_->mutex);
    state_->waiting.push_back(ticket);
    state_->changed.notify_one();
    return ticket;
  }

  // It is not asked any more, unless it has been.
  void withdraw(const Ticket& ticket) {
    const std::lock_guard<std::mutex> lock(state_->mutex);
    std::erase(state_->waiting, ticket);
  }

  // How long the store has owed an answer.
  Clock::duration silent_for() const {
    const std::lock_guard<std::mutex> lock(state_->mutex);
    return state_->asked == nullptr ? Clock::duration(0) : Clock::now() - state_->asked_at;
  }

 private:
  struct State {
    std::mutex mutex;
    std::condition_variable changed;
    std::deque<Ticket> waiting;
    Ticket asked;
    Clock::time_point asked_at{};
    bool stopping = false;
  };

  static void run(State& state) {
    std::unique_lock<std::mutex> lock(state.mutex);
    while (true) {
      state.changed.wait(lock, [&] { return state.stopping || !state.waiting.empty(); });
      if (state.waiting.empty()) {
        return;
      }
      Ticket ticket = std::move(state.waiting.front());
      state.waiting.pop_front();
      state.asked = ticket;
      state.asked_at = Clock::now();
      lock.unlock();
      (*ticket)();
      ticket.reset();
      lock.lock();
      state.asked.reset();
    }
  }

  const pid_t pid_ = ::getpid();
  std::shared_ptr<State> state_;
  const StorePtr store_;
  std::string end_;  // why the connection is no more, with state_'s mutex held
  std::once_flag looked_;
  long long server_ = 0;  // its pid; 0: not known
  std::thread thread_;
};

std::string TimedStore::Thread::tell_silence(Clock::duration silent) {
  const std::string told =
      c10::str(" has not answered for ",
               std::chrono::duration_cast<std::chrono::milliseconds>(silent).count(), " ms; ");
  const auto* const served = dynamic_cast<const c10d::TCPStore*>(store_.get());
  if (served == nullptr) {
    return c10::str("the store in ", dynamic_cast<const c10d::FileStore&>(*store_).getPath(), told,
                    "a process that has it open is stopped or very late");
  }
  std::call_once(looked_, [&] { server_ = pid_of_server(*served); });
  const std::string server =
      server_ == 0 ? "the process that serves it is stopped or very late"
                   : c10::str("pid ", server_, ", which serves it, ",
                              is_stopped(server_) ? "is stopped"
                                                  : "runs: it is late, or another thread of this "
                                                    "process waits in this connection");
  return c10::str("the store at ", served->getHost(), ":", served->getPort(), told, server);
}

void TimedStore::Thread::end(const std::string& why) {
  const auto* const served = dynamic_cast<const c10d::TCPStore*>(store_.get());
  const std::string where =
      served == nullptr
          ? ""
          : c10::str("the store at ", served->getHost(), ":", served->getPort(),
                     " has gone, with the process that serves it (rank 0, or torchrun): ");
  const std::lock_guard<std::mutex> lock(state_->mutex);
  end_ = where + why;
}

void TimedStore::Thread::throw_if_ended() const {
  const std::lock_guard<std::mutex> lock(state_->mutex);
  if (!end_.empty()) {
    throw StoreGone({__func__, __FILE__, static_cast<std::uint32_t>(__LINE__)}, end_);
  }
}

std::shared_ptr<TimedStore::Thread> TimedStore::Thread::of(const StorePtr& store) {
  struct Threads {
    std::mutex mutex;
    std::map<std::pair<pid_t, c10d::Store*>, std::weak_ptr<Thread>> of;
  };
  static auto* const threads = new Threads;  // leaked: used at exit
  const std::lock_guard<std::mutex> lock(threads->mutex);
  std::erase_if(threads->of, [](const auto& known) { return known.second.expired(); });
  std::weak_ptr<Thread>& known = threads->of[{::getpid(), store.get()}];
  std::shared_ptr<Thread> thread = known.lock();
  if (thread == nullptr) {
    thread = std::make_shared<Thread>(store);
    known = thread;
  }
  return thread;
}

StorePtr TimedStore::of(StorePtr store) {
  if (store == nullptr) {
    return store;
  }
  const StorePtr base = below_prefixes(store);
  if (dynamic_cast<c10d::TCPStore*>(base.get()) == nullptr &&
      dynamic_cast<c10d::FileStore*>(base.get()) == nullptr) {
    return store;
  }
  std::shared_ptr<Thread> thread;
  try {
    thread = Thread::of(base);
  } catch (const std::system_error&) {
    return store;
  }
  return StorePtr::unsafe_steal_from_new(new TimedStore(std::move(store), std::move(thread)));
}

StorePtr TimedStore::untimed(StorePtr store) {
  auto* const timed = dynamic_cast<TimedStore*>(store.get());
  return timed == nullptr ? store : timed->store_;
}

TimedStore::TimedStore(StorePtr store, std::shared_ptr<Thread> thread)
    : Store(store->getTimeout()), store_(std::move(store)), thread_(std::move(thread)) {}

void TimedStore::throw_silence(Clock::time_point asked) const {
  // The question before this one may be the one that waits.
  const auto silent = std::max(thread_->silent_for(), Clock::now() - asked);
  throw StoreSilence({__func__, __FILE__, static_cast<std::uint32_t>(__LINE__)},
                     thread_->tell_silence(silent), silent >= kSilent);
}

// The answer, or an exception of the store, is the question's; the thread may be the last to use
// it.
template <typename F>
auto TimedStore::ask(Asks what, F question) {
  using Answer = decltype(question(*store_));
  auto task = std::make_shared<std::packaged_task<Answer()>>(
      [store = store_, question = std::move(question)] { return question(*store); });
  std::future<Answer> answer = task->get_future();
  thread_->throw_if_ended();
  const auto asked = Clock::now();
  const bool silent = thread_->silent_for() >= kSilent;
  const Thread::Ticket ticket = thread_->post([task] { (*task)(); });
  task.reset();
  const auto withdraw = [&] {
    if (what == Asks::kToRead) {
      thread_->withdraw(ticket);
    }
  };
  const StoreDeadline::Limits limits = StoreDeadline::limits(asked + getTimeout());
  const auto grace = asked + (silent ? kGraceOfSilent : kGrace);
  const bool is_moment = limits.moment != Clock::time_point::max();
  auto next_look = asked + kSignalInterval;
  while (true) {
    const auto end =
        std::min(limits.moment, StoreDeadline::is_given_up() ? grace : std::max(grace, limits.end));
    if (answer.wait_until(std::min(end, next_look)) == std::future_status::ready) {
      try {
        return answer.get();
      } catch (const c10::DistNetworkError& error) {
        thread_->end(error.what_without_backtrace());
        thread_->throw_if_ended();
      }
    }
    const auto now = Clock::now();
    if (now >= end) {
      withdraw();
      throw_silence(asked);
    }
    next_look = now + kSignalInterval;
    if (is_moment) {
      continue;
    }
    try {
      check_signals();
    } catch (...) {
      withdraw();
      StoreDeadline::give_up();
      throw;
    }
  }
}

void TimedStore::set(const std::string& key, const std::vector<std::uint8_t>& value) {
  ask(Asks::kToWrite, [key, value](Store& store) { store.set(key, value); });
}

std::vector<std::uint8_t> TimedStore::get(const std::string& key) {
  return ask(Asks::kToRead, [key](Store& store) { return store.get(key); });
}

std::int64_t TimedStore::add(const std::string& key, std::int64_t value) {
  return ask(Asks::kToWrite, [key, value](Store& store) { return store.add(key, value); });
}

bool TimedStore::deleteKey(const std::string& key) {
  return ask(Asks::kToWrite, [key](Store& store) { return store.deleteKey(key); });
}

bool TimedStore::check(const std::vector<std::string>& keys) {
  return ask(Asks::kToRead, [keys](Store& store) { return store.check(keys); });
}

std::int64_t TimedStore::getNumKeys() {
  return ask(Asks::kToRead, [](Store& store) { return store.getNumKeys(); });
}

void TimedStore::wait(const std::vector<std::string>& keys) {
  ask(Asks::kToRead, [keys](Store& store) { store.wait(keys); });
}

void TimedStore::wait(const std::vector<std::string>& keys,
                      const std::chrono::milliseconds& timeout) {
  ask(Asks::kToRead, [keys, timeout](Store& store) { store.wait(keys, timeout); });
}

}  // namespace torch_openreg
