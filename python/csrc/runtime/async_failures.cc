#include "python/csrc/runtime/async_failures.h"

#include <c10/util/Exception.h>

#include <algorithm>
#include <map>
#include <mutex>
#include <utility>
#include <vector>

namespace torch_openreg {
namespace detail {

std::atomic<bool> async_failure_noted{false};

}  // namespace detail

namespace {

constexpr std::size_t kMaxBytes = 4096;   // of the text of one owner on one stream
constexpr std::size_t kMaxOwners = 8;     // on one stream; the others share the last place
constexpr std::size_t kMaxStreams = 256;  // that nobody synchronises

// What failed on one stream on behalf of one owner.
struct Note {
  FailureOwnerPtr owner;  // nullptr: never forgotten
  std::string text;
  std::exception_ptr distributed;
  bool told = false;  // along with the failures of another stream

  bool forgotten() const { return owner != nullptr && owner->forgotten(); }
};

struct StreamNotes {
  int device = 0;
  std::vector<Note> notes;

  bool over() const {
    return std::all_of(notes.begin(), notes.end(),
                       [](const Note& note) { return note.told || note.forgotten(); });
  }
};

// Never destroyed: workers may still run while the process exits.
struct AsyncFailures {
  std::mutex mutex;
  std::map<orStream_t, StreamNotes> of_stream;  // guarded by mutex

  // With the mutex held.
  void update_hint() const {
    bool noted = false;
    for (const auto& [stream, of_stream] : of_stream) {
      noted = noted || std::any_of(of_stream.notes.begin(), of_stream.notes.end(),
                                   [](const Note& note) { return !note.forgotten(); });
    }
    detail::async_failure_noted.store(noted, std::memory_order_relaxed);
  }
};

AsyncFailures& async_failures() {
  static auto* failures = new AsyncFailures;
  return *failures;
}

// Collects what is told. Owners are told at the end: a failure of one that has ended is forgotten
// from then on, and all that failed is told together.
class Teller {
 public:
  void tell(Note& note) {
    note.told = true;
    told_.text += note.text;
    if (told_.distributed == nullptr) {
      told_.distributed = note.distributed;
    }
    if (note.owner != nullptr) {
      owners_.push_back(note.owner);
    }
  }
  void forget() { told_.forgotten = true; }
  bool has_told() const { return !told_.text.empty(); }

  ToldFailures done() {
    for (const FailureOwnerPtr& owner : owners_) {
      owner->tell();
    }
    return std::move(told_);
  }

 private:
  ToldFailures told_;
  std::vector<FailureOwnerPtr> owners_;
};

std::string what_of(const std::exception_ptr& failure, bool* distributed) {
  *distributed = false;
  try {
    std::rethrow_exception(failure);
  } catch (const c10::DistError& error) {
    *distributed = true;
    return error.what_without_backtrace();
  } catch (const c10::Error& error) {
    return error.what_without_backtrace();
  } catch (const std::exception& error) {
    return error.what();
  } catch (...) {
    return "an exception of an unknown type";
  }
}

Note& note_of(std::vector<Note>& notes, const FailureOwnerPtr& owner) {
  const auto known = std::find_if(notes.begin(), notes.end(),
                                  [&](const Note& note) { return note.owner == owner; });
  if (known != notes.end()) {
    return *known;
  }
  if (notes.size() < kMaxOwners) {
    notes.push_back({owner, {}, nullptr, false});
  } else {
    notes.back().owner = nullptr;
  }
  return notes.back();
}

// The notes of a stream, or nullptr if there are too many streams.
StreamNotes* notes_of(AsyncFailures& failures, orStream_t stream) {
  auto& all = failures.of_stream;
  if (all.size() >= kMaxStreams && all.count(stream) == 0) {
    std::erase_if(all, [](const auto& entry) { return entry.second.over(); });
    if (all.size() >= kMaxStreams) {
      return nullptr;
    }
  }
  return &all[stream];
}

}  // namespace

orError_t note_async_failure(const AsyncFailure& failure, const FailureOwnerPtr& owner) noexcept {
  try {
    bool distributed = false;
    const std::string what = what_of(failure.exception, &distributed);
    const FailureOwnerPtr whose = distributed ? owner : nullptr;
    if (whose != nullptr && whose->forgotten()) {
      return orSuccess;
    }
    AsyncFailures& failures = async_failures();
    std::lock_guard<std::mutex> lock(failures.mutex);
    StreamNotes* const of_stream = notes_of(failures, failure.stream);
    if (of_stream == nullptr) {
      return orErrorLaunchFailure;
    }
    of_stream->device = failure.device;
    Note& note = note_of(of_stream->notes, whose);
    if (note.told) {
      note = Note{note.owner, {}, nullptr, false};
    }
    detail::async_failure_noted.store(true, std::memory_order_relaxed);
    if (note.text.size() < kMaxBytes) {
      note.text.append("\n").append(failure.name).append(" failed on its stream: ").append(what);
    }
    if (note.distributed == nullptr && distributed) {
      note.distributed = failure.exception;
    }
    return orErrorNotedFailure;
  } catch (...) {
    // Out of host memory: the error code still reaches the caller, without the text.
    return orErrorLaunchFailure;
  }
}

ToldFailures tell_async_failures(const ErrorSource& source, bool all) {
  AsyncFailures& failures = async_failures();
  Teller teller;
  std::lock_guard<std::mutex> lock(failures.mutex);
  const auto was_read = [&](const auto& entry) {
    return entry.first == source.stream || entry.second.device == source.device;
  };
  const auto tell = [&](const auto& which) {
    for (auto& entry : failures.of_stream) {
      for (Note& note : entry.second.notes) {
        if (which(entry, note)) {
          teller.tell(note);
        }
      }
    }
  };
  tell([&](const auto& entry, const Note& note) { return was_read(entry) && !note.forgotten(); });
  tell([](const auto&, const Note& note) { return !note.told && !note.forgotten(); });
  if (!teller.has_told()) {
    tell([](const auto&, const Note& note) { return !note.forgotten(); });
  }
  if (!teller.has_told()) {
    tell([&](const auto&, const Note&) {
      teller.forget();
      return all;
    });
  }
  std::erase_if(failures.of_stream, was_read);
  ToldFailures told = teller.done();
  failures.update_hint();
  return told;
}

void settle_async_failures(orStream_t stream) noexcept {
  AsyncFailures& failures = async_failures();
  std::lock_guard<std::mutex> lock(failures.mutex);
  const auto own = failures.of_stream.find(stream);
  if (own != failures.of_stream.end() && own->second.over()) {
    failures.of_stream.erase(own);
  }
  failures.update_hint();
}

}  // namespace torch_openreg
