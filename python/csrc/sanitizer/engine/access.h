// What the sanitizer remembers of the work of a program.
#ifndef PYTHON_CSRC_SANITIZER_ENGINE_ACCESS_H_
#define PYTHON_CSRC_SANITIZER_ENGINE_ACCESS_H_

#include <array>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "python/csrc/sanitizer/engine/region.h"
#include "python/csrc/sanitizer/engine/vector_clock.h"

namespace torch_openreg::sanitizer {

// Where in the program something was asked for: opaque here, 0 if unknown.
using Place = std::uint64_t;

// One piece of work in a stream: a kernel, a copy, a collective. Or of the host (on_host), which is
// no timeline of its own: it is ordered after all that it has waited for and before all that it
// issues.
struct Operation {
  const char* name = "";  // static storage
  Epoch epoch;
  bool on_host = false;
  Place place = 0;
  std::string group;  // of a collective, "" otherwise
  std::uint64_t sequence = 0;
};

// The tensor through which memory was reached.
struct TensorInfo {
  static constexpr std::size_t kMaxDims = 8;

  std::array<std::int64_t, kMaxDims> sizes{};
  std::uint8_t dims = 0;    // may be more than kMaxDims: then the rest is not known
  const char* dtype = "";   // static storage
  Address storage_low = 0;  // the storage that it belongs to
  std::size_t storage_bytes = 0;
};

struct Access {
  std::shared_ptr<const Operation> operation;
  bool writes = false;
  Region region;
  TensorInfo tensor;
};
using AccessPtr = std::shared_ptr<const Access>;

// A fault. Which members are set depends on the kind.
struct Finding {
  enum class Kind {
    kRace,          // first and second are not ordered, one of them writes
    kReuse,         // first may still run when second uses memory that was given back meanwhile
    kUseAfterFree,  // second touches memory that was freed at freed_at
    kBounds,        // second reaches beyond its storage
    kUnawaited,     // first, a collective, was never waited for
    kInFlight,      // first, a collective, had not ended when its rank left
  };
  Kind kind = Kind::kRace;
  AccessPtr first;
  AccessPtr second;
  Place freed_at = 0;
  Address freed_low = 0;  // the block that was freed
  std::size_t freed_bytes = 0;
};

}  // namespace torch_openreg::sanitizer

#endif  // PYTHON_CSRC_SANITIZER_ENGINE_ACCESS_H_
