#include "occl/core/algorithms.h"

#include <optional>

#include "occl/base/log.h"

namespace occl {
namespace {

using schedule::Algorithm;

std::optional<Algorithm> ReadForced() {
  const char* text = ReadEnvironment("OCCL_ALGO");
  if (text == nullptr) return std::nullopt;
  Algorithm algorithm;
  if (schedule::ParseAlgorithm(text, &algorithm)) return algorithm;
  OCCL_LOG(kWarn, kLogEnv, "OCCL_ALGO=%s is none of oneshot, direct, staged: ignored", text);
  return std::nullopt;
}

const std::optional<Algorithm>& ForcedAlgorithm() {
  static const std::optional<Algorithm> forced = ReadForced();
  return forced;
}

}  // namespace

bool GoesInline(uint64_t bytes, bool has_factor) {
  const std::optional<Algorithm>& forced = ForcedAlgorithm();
  const bool small = bytes <= kInlineBytes && !has_factor;
  return bytes == 0 || (small && (!forced || forced == Algorithm::kOneshot));
}

bool UsesDirectPath(bool mapped) { return mapped && ForcedAlgorithm() != Algorithm::kStaged; }

reduce::CopyMode CopyModeFor(uint64_t total_bytes) {
  static const size_t stream_from_bytes = reduce::StreamFromBytes();
  return total_bytes >= stream_from_bytes ? reduce::CopyMode::kStream : reduce::CopyMode::kCached;
}

DataPath ChooseDataPath(AlgorithmQuery query) {
  const std::optional<Algorithm>& forced = ForcedAlgorithm();
  if (query.uneven) {
    return UsesDirectPath(query.choice.mapped) ? DataPath::kDirect : DataPath::kSlot;
  }
  query.choice.slot_bytes = kSlotBytes;
  query.choice.forced = forced ? &*forced : nullptr;
  const bool direct = schedule::Choose(query.choice) == Algorithm::kDirect;
  return direct ? DataPath::kDirect : DataPath::kSlot;
}

}  // namespace occl
