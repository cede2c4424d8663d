// What ranks tell each other while a communicator is made. Fixed sizes, plain bytes; every one is
// checked by its receiver.
#ifndef OCCL_BOOTSTRAP_MESSAGES_H_
#define OCCL_BOOTSTRAP_MESSAGES_H_

#include <cstdint>
#include <type_traits>

#include "occl/base/status.h"
#include "occl/bootstrap/process.h"
#include "occl/transport/control_layout.h"
#include "openreg/api/openreg.h"

namespace occl {

inline constexpr uint64_t kBootstrapMagic = 0x4f43434c424f4f54;  // "OCCLBOOT"
inline constexpr size_t kHostNameBytes = 64;
inline constexpr size_t kSocketNameBytes = 48;

// Where a process runs: two processes that differ in any word that both know cannot reach each
// other's sockets.
struct HostId {
  uint64_t boot_id[2];  // zeros: it could not be read
  uint64_t network_namespace;
  char name[kHostNameBytes];  // for messages
  bool SameAs(const HostId& other) const {
    const bool known = boot_id[0] != 0 && other.boot_id[0] != 0;
    return network_namespace == other.network_namespace &&
           (!known || (boot_id[0] == other.boot_id[0] && boot_id[1] == other.boot_id[1]));
  }
};
HostId OwnHostId();

// What the rank that brings the others together publishes: rank 0, or the one that came first.
struct LeaderInfo {
  uint64_t magic;
  uint32_t version;
  int32_t nranks;
  int32_t rank;
  uint32_t generation;  // of the segment, where ranks come one by one: how many came before it
  ProcessId process;
  HostId host;
  ProcessorSet processors;  // of this rank alone
  char socket_name[kSocketNameBytes];
  Secret secret;
};

// occlConfig_t::members: as much as fits, for messages, and the digest of all of it.
struct Members {
  static constexpr size_t kTextBytes = 120;
  uint64_t digest;
  char text[kTextBytes];
};
Members MakeMembers(const std::string& text);

// What each rank says about itself.
struct RankCard {
  uint32_t version;
  int32_t nranks;
  int32_t rank;
  uint32_t has_pidfd;  // filled in by rank 0
  int64_t pid;
  uint64_t pid_namespace;  // 0: unknown
  ProcessToken process;
  ProcessorSet processors;
  Members members;
  orIpcDeviceHandle_t device;
};
static_assert(sizeof(RankCard) <= kCardBytes);

struct Hello {
  uint64_t magic;
  Secret secret;
  uint64_t attempt;  // to come: at random, not 0, and the same where the rank has to ask again
  RankCard card;
};

// From rank 0 (welcome, descriptors, go) and back (mapped).
struct Notice {
  uint64_t magic;
  int32_t code;     // occlResult_t; not occlSuccess: init has failed, `message` says why
  uint32_t direct;  // mapped: this rank could map all arenas; go: every rank could
  char message[kErrorMessageBytes];
};
static_assert(std::is_trivially_copyable_v<LeaderInfo> && std::is_trivially_copyable_v<Hello> &&
              std::is_trivially_copyable_v<Notice>);

// occlMismatch where `card`, which has come, cannot be of one communicator with `own`.
Status CheckAgreement(const char* name, const RankCard& own, const RankCard& card);

Notice MakeNotice(const Status& status);
// The status in a notice from another process, whatever bytes it holds.
Status FromNotice(const Notice& notice);
// A terminated, printable copy of text that came from another process.
std::string PrintableText(const char* text, size_t capacity);
// A result code that came from another process; occlInternalError if it is none.
occlResult_t CheckedCode(int32_t code);

}  // namespace occl

#endif  // OCCL_BOOTSTRAP_MESSAGES_H_
