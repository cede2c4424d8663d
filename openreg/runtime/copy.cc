#include "openreg/runtime/copy.h"

#include <cstring>
#include <utility>

#include "openreg/runtime/streaming_copy.h"

namespace openreg {
namespace {

// Up to here a copy costs less than handing it to another thread, and pageable memory is copied
// aside instead of waiting for it (CUDA's limit for the latter is the same).
constexpr size_t kInlineBytes = size_t{64} << 10;

struct Side {
  void* address = nullptr;
  bool device = false;
  bool pageable = false;
};

Status CheckSide(Runtime& runtime, const void* ptr, size_t size, const char* name, Side* side) {
  PointerInfo info;
  OPENREG_RETURN_IF_ERROR(runtime.GetPointerInfo(ptr, &info));
  side->device = info.type == orMemoryTypeDevice;
  size_t left = info.base == nullptr
                    ? 0
                    : info.size - static_cast<size_t>(static_cast<const char*>(ptr) - info.base);
  if (side->device && size > left) {
    return Status(orErrorInvalidDevicePointer,
                  Format("%s %p: %zu bytes leave the allocation, which has %zu bytes from there",
                         name, ptr, size, left));
  }
  side->pageable = !side->device && size > left;
  side->address = side->device ? runtime.KernelPointer(ptr) : const_cast<void*>(ptr);
  return Status();
}

// Longer copies keep a helper from its deadline and from signals.
constexpr size_t kHelpedBytes = size_t{64} << 20;

const char* KindName(orMemcpyKind kind) {
  switch (kind) {
    case orMemcpyHostToHost:
      return "Memcpy HtoH";
    case orMemcpyHostToDevice:
      return "Memcpy HtoD";
    case orMemcpyDeviceToHost:
      return "Memcpy DtoH";
    default:
      return "Memcpy DtoD";
  }
}

// As CUDA's traces name them.
const char* ActivityName(const Copy& copy) {
  switch (copy.kind) {
    case orMemcpyHostToHost:
      return "Memcpy HtoH";
    case orMemcpyHostToDevice:
      return copy.from_pageable ? "Memcpy HtoD (Pageable -> Device)"
                                : "Memcpy HtoD (Pinned -> Device)";
    case orMemcpyDeviceToHost:
      return copy.to_pageable ? "Memcpy DtoH (Device -> Pageable)"
                              : "Memcpy DtoH (Device -> Pinned)";
    default:
      return "Memcpy DtoD (Device -> Device)";
  }
}

Work CopyWork(const Copy& copy) {
  Work work;
  work.kind = orActivityMemcpy;
  work.name = ActivityName(copy);
  work.any_thread = copy.size <= kHelpedBytes;
  work.bytes = copy.size;
  work.data[0] = reinterpret_cast<uint64_t>(copy.to);
  work.data[1] = reinterpret_cast<uint64_t>(copy.from);
  work.run = [](Work& self) {
    CopyBytes(reinterpret_cast<void*>(self.data[0]), reinterpret_cast<void*>(self.data[1]),
              self.bytes);
    return orSuccess;
  };
  return work;
}

Work FillWork(void* kernel, int value, size_t size) {
  Work work;
  work.kind = orActivityMemset;
  work.name = "Memset (Device)";
  work.bytes = size;
  work.data[0] = reinterpret_cast<uint64_t>(kernel);
  work.data[1] = static_cast<unsigned char>(value);
  work.run = [](Work& self) {
    std::memset(reinterpret_cast<void*>(self.data[0]), static_cast<int>(self.data[1]), self.bytes);
    return orSuccess;
  };
  return work;
}

}  // namespace

Status CheckCopy(Runtime& runtime, void* to, const void* from, size_t size, orMemcpyKind kind,
                 Copy* copy) {
  if (static_cast<unsigned>(kind) > orMemcpyDefault) {
    return InvalidValue(Format("copy: unknown kind %d", static_cast<int>(kind)));
  }
  if (to == nullptr || from == nullptr) return InvalidValue("copy: a pointer is NULL");
  Side target, source;
  OPENREG_RETURN_IF_ERROR(CheckSide(runtime, to, size, "copy to", &target));
  OPENREG_RETURN_IF_ERROR(CheckSide(runtime, from, size, "copy from", &source));
  auto actual = static_cast<orMemcpyKind>(target.device + 2 * source.device);
  static_assert(orMemcpyHostToDevice == 1 && orMemcpyDeviceToHost == 2);
  if (kind != orMemcpyDefault && kind != actual) {
    return InvalidValue(
        Format("copy: the kind says %s, the pointers %s", KindName(kind), KindName(actual)));
  }
  *copy = {target.address, source.address, size, actual, target.pageable, source.pageable};
  return Status();
}

Status CopyNow(const Copy& copy, Stream* stream) {
  return stream->RunInTurn(CopyWork(copy), Deadline::Infinite());
}

Status CopyInOrder(const Copy& copy, Stream* stream) {
  Work work = CopyWork(copy);
  bool pageable = copy.to_pageable || copy.from_pageable;
  if (!pageable) {
    bool pinned = copy.kind != orMemcpyDeviceToDevice;
    if (pinned && copy.size > kInlineBytes && !stream->HeldByMe()) {
      return stream->Queue(std::move(work));
    }
    return stream->RunOrQueue(std::move(work));
  }
  if (!stream->Idle() && !copy.to_pageable && copy.size <= kInlineBytes && !stream->HeldByMe()) {
    work.owned = std::make_unique<unsigned char[]>(copy.size);
    std::memcpy(work.owned.get(), copy.from, copy.size);
    work.data[1] = reinterpret_cast<uint64_t>(work.owned.get());
    return stream->RunOrQueue(std::move(work));
  }
  return stream->RunInTurn(std::move(work), Deadline::Infinite());
}

Status CheckFill(Runtime& runtime, void* ptr, size_t size, void** kernel) {
  if (ptr == nullptr) return InvalidValue("fill: the pointer is NULL");
  Side side;
  OPENREG_RETURN_IF_ERROR(CheckSide(runtime, ptr, size, "fill of", &side));
  if (!side.device) {
    return Status(orErrorInvalidDevicePointer,
                  Format("fill: expected device memory, got the host address %p", ptr));
  }
  *kernel = side.address;
  return Status();
}

Status FillNow(void* kernel, int value, size_t size, Stream* stream) {
  return stream->RunInTurn(FillWork(kernel, value, size), Deadline::Infinite());
}

Status FillInOrder(void* kernel, int value, size_t size, Stream* stream) {
  return stream->RunOrQueue(FillWork(kernel, value, size));
}

}  // namespace openreg
