// What the ranks ask the process that serves a unique id, and what is inside of the id.
#ifndef OCCL_BOOTSTRAP_UNIQUE_ID_MESSAGES_H_
#define OCCL_BOOTSTRAP_UNIQUE_ID_MESSAGES_H_

#include <cstddef>
#include <cstdint>

#include "occl/api/occl.h"
#include "occl/bootstrap/messages.h"
#include "occl/bootstrap/process.h"

namespace occl {

inline constexpr uint64_t kIdMagic = 0x4f43434c49443031;  // "OCCLID01"
inline constexpr size_t kMaxKeyBytes = 128;
inline constexpr size_t kMaxValueBytes = 1536;

struct IdContent {
  uint64_t magic;
  char socket_name[kSocketNameBytes];
  Secret secret;
};
static_assert(sizeof(IdContent) <= OCCL_UNIQUE_ID_BYTES);

enum class Verb : uint32_t { kSet = 1, kGet = 2, kTryGet = 3, kGoodbye = 4 };

struct Request {
  uint64_t magic;
  Secret secret;
  Verb verb;
  int32_t nranks;
  uint32_t size;
  char key[kMaxKeyBytes];
  unsigned char value[kMaxValueBytes];
};

struct Answer {
  uint64_t magic;
  int32_t code;
  uint32_t size;
  unsigned char value[kMaxValueBytes];
};

}  // namespace occl

#endif  // OCCL_BOOTSTRAP_UNIQUE_ID_MESSAGES_H_
