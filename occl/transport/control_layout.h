// What lies in a communicator's control segment: a memfd that every rank maps.
//
// SINGLE WRITER. Every word is written by one rank only, with four exceptions that any rank may
// write: ErrorWord (the first error is published by compare-and-swap), Doorbell::rings and
// Doorbell::unheard (which only wake sleepers), JobWords (the first who wants a job takes it by
// compare-and-swap), and RankBlock::let_in (who lets the rank in, the same way). There is no lock:
// a rank that dies holds nothing but the jobs it has taken.
//
// MEMORY ORDER. A rank fills a structure with plain stores and then stores its sequence word with
// release; a reader loads that word with acquire before it reads the rest. A place of a ring is
// filled again only after all its readers have stored, with release, a counter that says they have
// passed it, and the owner has loaded that with acquire.
//
// HOSTILE DATA. Another process of the same user maps this segment. Whatever is read from it is
// copied first (CopyOut) and then checked; no offset, count or index is used unchecked.
#ifndef OCCL_TRANSPORT_CONTROL_LAYOUT_H_
#define OCCL_TRANSPORT_CONTROL_LAYOUT_H_

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <type_traits>

#include "occl/api/occl.h"

namespace occl {

inline constexpr int kMaxRanks = 512;
inline constexpr uint32_t kRoundPlaces = 4;  // rounds of which a rank may be ahead of the slowest
inline constexpr size_t kSlotBytes = 64 * 1024;  // data slot of one round of one rank
inline constexpr size_t kInlineBytes = 24;       // data that travels in the entry itself
inline constexpr int kHistoryPlaces = 64;
inline constexpr size_t kMailboxBytes = 1024;
inline constexpr size_t kCardBytes = 512;
inline constexpr size_t kErrorMessageBytes = 1024;
inline constexpr int kWaitPlaces = 4;  // one half for collectives, one for messages
inline constexpr size_t kWaitTextBytes = 256;

static_assert(std::atomic<uint64_t>::is_always_lock_free);

// Copies what another process may be changing; the compiler cannot read the source again later.
template <typename T>
T CopyOut(const T& shared) {
  static_assert(std::is_trivially_copyable_v<T>);
  T copy;
  std::memcpy(&copy, &shared, sizeof(T));
  asm volatile("" ::: "memory");
  return copy;
}

// How a rank's contribution to a round travels, or a message.
enum class DataPath : uint8_t {
  kInline = 0,  // in the entry itself
  kSlot = 1,    // in the rank's slot
  kDirect = 2,  // stays in the rank's buffer, which the peers read
};

// What a rank says about its part of one round of a collective.
struct RoundHead {
  uint8_t kind;          // OpKind
  uint8_t datatype;      // occlDataType_t
  uint8_t op;            // occlRedOp_t, occlNumOps for a pre-multiplied sum
  uint8_t path;          // DataPath
  int16_t root;          // -1: none
  uint8_t more;          // 1: another round of this operation follows
  uint8_t uneven;        // 1: the parts have their own counts, in PartEntry
  uint64_t count;        // what all ranks agree on; 0 where each pair has its own
  uint64_t send_offset;  // kDirect: offset of the buffers in the rank's arena
  uint64_t recv_offset;
};

struct alignas(64) RoundEntry {
  std::atomic<uint64_t> round;  // stored last; round numbers start at 1
  RoundHead head;
  unsigned char inline_data[kInlineBytes];  // kInline: the data; otherwise a factor (2 doubles)
};
static_assert(sizeof(RoundEntry) == 64 && sizeof(RoundHead) == 32);

// The part of a rank's contribution that is meant for one peer (operations with uneven parts).
struct PartEntry {
  uint64_t offset;  // in the rank's arena
  uint64_t count;
};

// What one rank would do of a round, which any rank may do instead: core/collective_jobs.cc.
struct JobWords {
  std::atomic<uint64_t> taken;  // JobWord of the round and who took it
  std::atomic<uint64_t> done;   // by who took it: the round
};
constexpr uint64_t JobWord(uint64_t round, int rank) {
  return (round << 16) + static_cast<uint64_t>(rank);
}
static_assert(kMaxRanks <= 1 << 16);

// A message on its way from one rank to another.
struct MessageHead {
  uint64_t count;
  uint64_t offset;  // in the sender's arena; unused when the data is inline or staged
  int32_t tag;
  uint8_t datatype;
  uint8_t path;
  uint8_t is_inline;
  uint8_t unused;
};
struct alignas(64) MessageEntry {
  std::atomic<uint64_t> sequence;  // per ordered pair, from 1; stored last
  MessageHead head;
  unsigned char inline_data[kInlineBytes];
};
static_assert(sizeof(MessageEntry) == 64);

// The staging channel of an ordered pair, for messages that cannot be read from the sender's
// buffer. One message at a time: the receiver asks for it by its sequence. Of messages that are
// read from the sender's buffer, `taken` only says which large one the receiver has begun.
struct alignas(64) StageWords {
  alignas(64) std::atomic<uint64_t> sent;   // by the sender: StageWord of chunks put
  alignas(64) std::atomic<uint64_t> taken;  // by the receiver: StageWord of chunks taken
  std::atomic<uint32_t> reading;            // by the receiver: Reading, once it knows
};
// How the receiver gets at the sender's buffers.
enum class Reading : uint32_t { kUnknown = 0, kDirect = 1, kStaged = 2 };
constexpr uint64_t StageWord(uint64_t sequence, uint64_t chunks) {
  return (sequence << 32) + chunks;
}

// kLeft and kDied: in an earlier segment of the communicator, whose ranks have all gone; it is not
// in this one.
enum class RankState : uint32_t { kAbsent = 0, kAlive = 1, kDestroyed = 2, kLeft = 3, kDied = 4 };

struct alignas(64) Doorbell {
  std::atomic<uint32_t> rings;     // futex word of the rank's sleepers
  std::atomic<uint32_t> sleepers;  // threads of the rank that sleep, or are about to
  std::atomic<uint32_t> unheard;   // 1: one of them has announced itself since it last rang
};

struct ErrorSlot {
  std::atomic<uint32_t> published;
  int32_t code;
  char message[kErrorMessageBytes];
};

struct Mailbox {
  std::atomic<uint64_t> generation;  // stored last
  uint32_t size;
  unsigned char bytes[kMailboxBytes];
};

// A record that is read while its owner may be writing it: words, guarded by a version that is odd
// during a write.
struct HistoryPlace {
  std::atomic<uint64_t> version;
  std::atomic<uint64_t> words[(sizeof(occlOpRecord_t) + 7) / 8];
};

// Where the rank's process waits, in this or another communicator: text, "" if there is nothing to
// tell. Guarded like a HistoryPlace.
struct WaitPlace {
  std::atomic<uint64_t> version;
  std::atomic<uint64_t> words[kWaitTextBytes / 8];
};

struct alignas(4096) RankBlock {
  alignas(64) std::atomic<uint32_t> state;  // RankState
  alignas(64) std::atomic<uint64_t> done;   // rounds up to this one: nothing is read any more
  alignas(64) std::atomic<uint64_t> quit;   // 1: it writes no peer's memory any more
  Doorbell bell;
  alignas(64) JobWords jobs[kRoundPlaces];
  RoundEntry rounds[kRoundPlaces];
  ErrorSlot error;
  Mailbox mailboxes[3];                        // two for splits in turn, one for shrinks
  alignas(64) unsigned char card[kCardBytes];  // RankCard, written by rank 0 before the others map;
                                               // by the rank itself where ranks do not wait
  std::atomic<uint64_t> let_in;                // Hello::attempt of the process that got the segment
  std::atomic<uint32_t> joined;                // 1: the card counts (ranks that do not wait)
  std::atomic<uint32_t> reading_all;           // Reading of all ranks together (the same)
  std::atomic<uint64_t> history_next;          // records ever written
  HistoryPlace history[kHistoryPlaces];
  WaitPlace waits[kWaitPlaces];
};

inline RankState StateOf(const RankBlock& block) {
  return static_cast<RankState>(block.state.load(std::memory_order_acquire));
}
// Nothing comes from it any more, though its process may live.
inline bool HasLeft(const RankBlock& block) {
  return StateOf(block) >= RankState::kDestroyed && StateOf(block) <= RankState::kDied;
}

struct alignas(4096) SegmentHeader {
  uint64_t magic;
  uint32_t version;
  int32_t nranks;
  alignas(64) std::atomic<uint32_t> error;  // ErrorWord: 0, or 1 + the rank whose ErrorSlot counts
};

inline constexpr uint64_t kSegmentMagic = 0x4f43434c53454733;  // "OCCLSEG3"

}  // namespace occl

#endif  // OCCL_TRANSPORT_CONTROL_LAYOUT_H_
