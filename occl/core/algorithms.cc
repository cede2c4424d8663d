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

bool AlgorithmIsForced() { return ForcedAlgorithm().has_value(); }

bool UsesDirectPath(bool mapped) { return mapped && ForcedAlgorithm() != Algorithm::kStaged; }

reduce::CopyMode CopyModeFor(uint64_t total_bytes) {
  static const size_t stream_from_bytes = reduce::StreamFromBytes();
  return total_bytes >= stream_from_bytes ? reduce::CopyMode::kStream : reduce::CopyMode::kCached;
}

DataPath ChooseDataPath(AlgorithmQuery query) {
  const std::optional<Algorithm>& forced = ForcedAlgorithm();
  const uint64_t bytes = query.choice.bytes;
  if (query.uneven) {
    return UsesDirectPath(query.choice.mapped) ? DataPath::kDirect : DataPath::kSlot;
  }
  if (bytes == 0) return DataPath::kInline;
  const bool small = bytes <= kInlineBytes && !query.has_factor;
  if (small && (!forced || forced == Algorithm::kOneshot)) return DataPath::kInline;
  query.choice.slot_bytes = kSlotBytes;
  query.choice.forced = forced ? &*forced : nullptr;
  const bool direct = schedule::Choose(query.choice) == Algorithm::kDirect;
  return direct ? DataPath::kDirect : DataPath::kSlot;
}

}  // namespace occl
