#include "occl/transport/control_segment.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>

#include <cerrno>
#include <cstdio>
#include <map>
#include <mutex>
#include <utility>

namespace occl {
namespace {

constexpr size_t kPage = 4096;

size_t RoundUp(size_t size) { return (size + kPage - 1) / kPage * kPage; }

int MessagePlaces(int nranks) { return nranks <= 16 ? 64 : 16; }

size_t StageChunkBytes(int nranks) { return nranks <= 64 ? 32 * 1024 : 4 * 1024; }

struct Layout {
  explicit Layout(int nranks) {
    const size_t n = nranks, places = MessagePlaces(nranks);
    ranks = sizeof(SegmentHeader);
    parts = ranks + n * sizeof(RankBlock);
    messages = parts + RoundUp(n * n * kRoundPlaces * sizeof(PartEntry));
    messages_read = messages + RoundUp(n * n * places * sizeof(MessageEntry));
    slots = messages_read + RoundUp(n * n * places * sizeof(std::atomic<uint64_t>));
    stage_words = slots + n * kRoundPlaces * kSlotBytes;
    stages = stage_words + RoundUp(n * n * sizeof(StageWords));
    size = stages + n * n * 2 * StageChunkBytes(nranks);
  }
  size_t ranks, parts, messages, messages_read, slots, stage_words, stages, size;
};

// The mappings of this process, so that ranks that are its threads share them. Entries of dead
// mappings are dropped when the next one is made.
struct Mappings {
  std::mutex mutex;
  std::map<std::pair<dev_t, ino_t>, std::weak_ptr<ControlSegment>> by_file;
};
Mappings& AllMappings() {
  static Mappings* const mappings = new Mappings;  // outlives every thread
  return *mappings;
}

}  // namespace

Status ControlSegment::Create(int nranks, UniqueFd* fd) {
  const Layout layout(nranks);
  UniqueFd file(memfd_create("occl-control", MFD_CLOEXEC | MFD_ALLOW_SEALING));
  if (!file.valid()) return SystemError(errno, "memfd_create of the control segment");
  if (ftruncate(file.get(), static_cast<off_t>(layout.size)) != 0) {
    return SystemError(errno, "control segment of %zu bytes for %d ranks", layout.size, nranks);
  }
  // Memory that is missing is an error here, not a signal at the first touch. Stages, and the slots
  // of large communicators, stay sparse: most of their pages are never used.
  const size_t reserve = nranks <= 16 ? layout.stages : layout.messages;
  if (fallocate(file.get(), 0, 0, static_cast<off_t>(reserve)) != 0) {
    return SystemError(errno, "memory for a control segment of %zu bytes", reserve);
  }
  if (fcntl(file.get(), F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL) != 0) {
    return SystemError(errno, "sealing the control segment");
  }
  const uint64_t magic = kSegmentMagic;
  const uint32_t numbers[2] = {OCCL_VERSION, static_cast<uint32_t>(nranks)};
  if (pwrite(file.get(), &magic, sizeof(magic), offsetof(SegmentHeader, magic)) !=
          ssize_t{sizeof(magic)} ||
      pwrite(file.get(), numbers, sizeof(numbers), offsetof(SegmentHeader, version)) !=
          ssize_t{sizeof(numbers)}) {
    return SystemError(errno, "writing the control segment's header");
  }
  *fd = std::move(file);
  return Status();
}

Status ControlSegment::Map(const UniqueFd& fd, int nranks,
                           std::shared_ptr<ControlSegment>* segment) {
  const Layout layout(nranks);
  struct stat info;
  if (fstat(fd.get(), &info) != 0) return SystemError(errno, "fstat of the control segment");
  const int seals = fcntl(fd.get(), F_GET_SEALS);
  if (seals < 0 || (seals & F_SEAL_SHRINK) == 0 || info.st_size != off_t(layout.size)) {
    return Error(occlInternalError,
                 "the file received as control segment is not one: expected %zu bytes, sealed; "
                 "found %lld bytes, seals 0x%x",
                 layout.size, static_cast<long long>(info.st_size), seals);
  }
  Mappings& mappings = AllMappings();
  std::lock_guard<std::mutex> lock(mappings.mutex);
  std::erase_if(mappings.by_file, [](const auto& entry) { return entry.second.expired(); });
  std::weak_ptr<ControlSegment>& known = mappings.by_file[{info.st_dev, info.st_ino}];
  *segment = known.lock();
  if (*segment != nullptr) return Status();
  void* base = mmap(nullptr, layout.size, PROT_READ | PROT_WRITE, MAP_SHARED, fd.get(), 0);
  if (base == MAP_FAILED) {
    return SystemError(errno, "mapping a control segment of %zu bytes", layout.size);
  }
  madvise(base, layout.size, MADV_DONTFORK);
  madvise(base, layout.size, MADV_DONTDUMP);
  segment->reset(new ControlSegment(static_cast<unsigned char*>(base), layout.size, nranks));
  const SegmentHeader& header = (*segment)->header();
  if (header.magic != kSegmentMagic || header.version != OCCL_VERSION || header.nranks != nranks) {
    segment->reset();
    return Error(occlMismatch, "the control segment is of another version of OCCL");
  }
  known = *segment;
  return Status();
}

bool ControlSegment::PostError(int rank, occlResult_t code, const char* message) {
  static std::mutex mutex;  // one thread of the rank at a time
  std::lock_guard<std::mutex> lock(mutex);
  ErrorSlot& slot = ranks_[rank].error;
  if (slot.published.load(std::memory_order_relaxed) == 0) {
    slot.code = code;
    std::snprintf(slot.message, sizeof(slot.message), "%s", message);
    slot.published.store(1, std::memory_order_release);
  }
  uint32_t word = 0;
  return header().error.compare_exchange_strong(word, static_cast<uint32_t>(rank) + 1,
                                                std::memory_order_acq_rel);
}

ControlSegment::ControlSegment(unsigned char* base, size_t size_bytes, int nranks)
    : base_(base),
      size_bytes_(size_bytes),
      nranks_(nranks),
      message_places_(MessagePlaces(nranks)),
      stage_chunk_bytes_(StageChunkBytes(nranks)) {
  const Layout layout(nranks);
  ranks_ = reinterpret_cast<RankBlock*>(base + layout.ranks);
  parts_ = reinterpret_cast<PartEntry*>(base + layout.parts);
  messages_ = reinterpret_cast<MessageEntry*>(base + layout.messages);
  messages_read_ = reinterpret_cast<std::atomic<uint64_t>*>(base + layout.messages_read);
  slots_ = base + layout.slots;
  stage_words_ = reinterpret_cast<StageWords*>(base + layout.stage_words);
  stages_ = base + layout.stages;
}

ControlSegment::~ControlSegment() { munmap(base_, size_bytes_); }

}  // namespace occl
