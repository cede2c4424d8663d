// A store whose calls end in time, also where the store does not answer: a TCPStore whose host is
// stopped takes requests and says nothing, and torch's clients wait for it without a limit.
#ifndef PYTHON_CSRC_C10D_TIMED_STORE_H_
#define PYTHON_CSRC_C10D_TIMED_STORE_H_

#include <c10/util/Exception.h>
#include <c10/util/intrusive_ptr.h>

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <torch/csrc/distributed/c10d/Store.hpp>
#include <utility>
#include <vector>

namespace torch_openreg {

// The connection to the store's server has ended; nothing more is asked over it.
class StoreGone final : public c10::DistStoreError {
 public:
  using DistStoreError::DistStoreError;
};

// The store has not answered in time. What was to be written will be, once it answers: ranks that
// count something in it count alike, whether they were heard before it fell silent or not.
class StoreSilence final : public c10::DistStoreError {
 public:
  StoreSilence(c10::SourceLocation where, const std::string& what, bool is_long)
      : DistStoreError(where, what), is_long_(is_long) {}
  // It has owed an answer for half a second: not just late.
  bool is_long() const { return is_long_; }

 private:
  bool is_long_;
};

// While it lives, calls of this thread of a TimedStore end at `end`, or once `is_over` says so
// (asked at times, while a call waits). Of several that live the first to end counts; where there
// is none, the store's own timeout. A call that comes later still has a moment, for what a failure
// has to tell.
class StoreDeadline {
 public:
  explicit StoreDeadline(std::chrono::steady_clock::time_point end,
                         std::function<bool()> is_over = {})
      : StoreDeadline(end, std::move(is_over), /*is_moment=*/false) {}
  ~StoreDeadline();
  StoreDeadline(const StoreDeadline&) = delete;
  StoreDeadline& operator=(const StoreDeadline&) = delete;

  // Of this thread: all that live are over, because the caller gives up.
  static void give_up();
  // Whether one has been given up, or is_over said so; `end` aside.
  static bool is_given_up();
  // What a call has that is asked now.
  struct Limits {
    std::chrono::steady_clock::time_point end;     // of deadlines; otherwise the one given
    std::chrono::steady_clock::time_point moment;  // its end; time_point::max()
  };
  static Limits limits(std::chrono::steady_clock::time_point otherwise);

 protected:
  StoreDeadline(std::chrono::steady_clock::time_point end, std::function<bool()> is_over,
                bool is_moment);

 private:
  const std::chrono::steady_clock::time_point end_;
  const std::function<bool()> is_over_;
  const bool is_moment_;
  bool given_up_ = false;
  StoreDeadline* const outer_;
};

// For what may as well not be known: its end is the end, and Ctrl-C is left to others.
class StoreMoment final : public StoreDeadline {
 public:
  explicit StoreMoment(std::chrono::milliseconds patience)
      : StoreDeadline(std::chrono::steady_clock::now() + patience, {}, /*is_moment=*/true) {}
};

// The store below the prefixes of `store`.
c10::intrusive_ptr<c10d::Store> below_prefixes(const c10::intrusive_ptr<c10d::Store>& store);

// Its calls run on a thread that all TimedStores of one connection share, and throw StoreSilence,
// StoreGone, or what Ctrl-C raises where they wait longer than kSignalInterval on the main thread.
// Otherwise as the store's own. Thread-safe. Call without the interpreter lock.
class TimedStore final : public c10d::Store {
 public:
  // `store` with deadlines where it asks other processes (TCPStore, FileStore), below whatever
  // prefixes. As it is: one that has them, one of this process (HashStore), one written in Python,
  // and where no thread can be had.
  static c10::intrusive_ptr<c10d::Store> of(c10::intrusive_ptr<c10d::Store> store);
  // Without deadlines again, where `store` is a TimedStore.
  static c10::intrusive_ptr<c10d::Store> untimed(c10::intrusive_ptr<c10d::Store> store);

  // A connection of its own, without deadlines.
  c10::intrusive_ptr<c10d::Store> clone() override { return store_->clone(); }
  using Store::set;
  void set(const std::string& key, const std::vector<std::uint8_t>& value) override;
  std::vector<std::uint8_t> get(const std::string& key) override;
  std::int64_t add(const std::string& key, std::int64_t value) override;
  bool deleteKey(const std::string& key) override;
  bool check(const std::vector<std::string>& keys) override;
  std::int64_t getNumKeys() override;
  void wait(const std::vector<std::string>& keys) override;
  void wait(const std::vector<std::string>& keys,
            const std::chrono::milliseconds& timeout) override;

 private:
  class Thread;

  TimedStore(c10::intrusive_ptr<c10d::Store> store, std::shared_ptr<Thread> thread);
  enum class Asks { kToRead, kToWrite };
  template <typename F>
  auto ask(Asks what, F question);
  [[noreturn]] void throw_silence(std::chrono::steady_clock::time_point asked) const;

  const c10::intrusive_ptr<c10d::Store> store_;
  const std::shared_ptr<Thread> thread_;
};

}  // namespace torch_openreg

#endif  // PYTHON_CSRC_C10D_TIMED_STORE_H_
