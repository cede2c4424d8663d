#include "occl/core/algorithms.h"

#include <cstdlib>
#include <cstring>

#include "occl/base/log.h"

namespace occl {
namespace {

enum class Forced { kNo, kOneshot, kDirect, kStaged };

Forced ReadForced() {
  const char* text = std::getenv("OCCL_ALGO");
  if (text == nullptr || text[0] == '\0') return Forced::kNo;
  if (std::strcmp(text, "oneshot") == 0) return Forced::kOneshot;
  if (std::strcmp(text, "direct") == 0) return Forced::kDirect;
  if (std::strcmp(text, "staged") == 0) return Forced::kStaged;
  OCCL_LOG(kWarn, kLogEnv, "OCCL_ALGO=%s is none of oneshot, direct, staged: ignored", text);
  return Forced::kNo;
}

// Up to here a copy into the slot and out of it is cheaper than the signals that say when a buffer
// may be read and reused.
constexpr uint64_t kOneshotBytes = 8 * 1024;

}  // namespace

DataPath ChooseDataPath(const AlgorithmQuery& query) {
  static const Forced forced = ReadForced();
  const uint64_t bytes = query.contribution_bytes;
  const bool direct = query.direct && forced != Forced::kStaged;
  if (!query.uneven && bytes == 0) return DataPath::kInline;
  if (query.uneven) return direct ? DataPath::kDirect : DataPath::kSlot;
  if (forced == Forced::kDirect && direct) return DataPath::kDirect;
  if (bytes <= kInlineBytes && !query.has_factor && forced != Forced::kStaged) {
    return DataPath::kInline;
  }
  const uint64_t limit = forced == Forced::kOneshot ? kSlotBytes : kOneshotBytes;
  return direct && bytes > limit ? DataPath::kDirect : DataPath::kSlot;
}

}  // namespace occl
