#include "occl/collectives/checks.h"

#include <algorithm>
#include <cstdint>

#include "occl/base/datatypes.h"

namespace occl {
namespace {

bool Overlap(const unsigned char* a, size_t a_bytes, const unsigned char* b, size_t b_bytes) {
  return a_bytes > 0 && b_bytes > 0 && a < b + b_bytes && b < a + a_bytes;
}

Status Overlapping(const CollectiveSpec& spec) {
  return Error(occlInvalidArgument,
               "%s: the send and receive buffers overlap and are not what in place means here",
               OpName(spec.kind));
}

}  // namespace

Status StartSpec(OpKind kind, occlDataType_t datatype, CollectiveSpec* spec) {
  spec->kind = kind;
  spec->datatype = datatype;
  spec->element_bytes = static_cast<uint32_t>(DataTypeSize(datatype));
  if (spec->element_bytes == 0) {
    return Error(occlInvalidArgument, "%s: %d is no datatype", OpName(kind),
                 static_cast<int>(datatype));
  }
  return Status();
}

Status CheckRoot(const Comm& comm, int root, CollectiveSpec* spec) {
  if (root < 0 || root >= comm.nranks()) {
    return Error(occlInvalidArgument, "%s: root is %d, expected 0 to %d", OpName(spec->kind), root,
                 comm.nranks() - 1);
  }
  spec->root = root;
  return Status();
}

Status CheckReduction(Comm& comm, occlRedOp_t op, CollectiveSpec* spec) {
  using reduce::RedKind;
  static constexpr RedKind kKinds[occlNumOps] = {RedKind::kSum, RedKind::kProd, RedKind::kMax,
                                                 RedKind::kMin, RedKind::kAvg,  RedKind::kBand,
                                                 RedKind::kBor, RedKind::kBxor};
  spec->reduces = true;
  const int number = static_cast<int>(op);
  if (number >= 0 && number < occlNumOps) {
    spec->op = number;
    return reduce::Resolve(spec->datatype, kKinds[number], &spec->plan);
  }
  spec->op = occlNumOps;
  OCCL_RETURN_IF_ERROR(comm.factors.Find(number, spec->datatype, spec->scale));
  return reduce::Resolve(spec->datatype, RedKind::kPremulSum, &spec->plan);
}

Status CheckBuffer(const Comm& comm, const char* what, const void* pointer, size_t count,
                   size_t parts, const CollectiveSpec& spec, unsigned char** kernel_pointer) {
  *kernel_pointer = nullptr;
  size_t size_bytes = 0;
  if (__builtin_mul_overflow(count, parts, &size_bytes) ||
      __builtin_mul_overflow(size_bytes, size_t{spec.element_bytes}, &size_bytes)) {
    return Error(occlInvalidArgument, "%s: %zu times %zu elements do not fit any memory",
                 OpName(spec.kind), parts, count);
  }
  if (size_bytes == 0) return Status();
  // An element of a complex type is aligned as its parts are.
  const uintptr_t alignment =
      IsComplex(spec.datatype) ? spec.element_bytes / 2 : spec.element_bytes;
  if (!comm.Translate(pointer, size_bytes, kernel_pointer)) {
    return Error(occlInvalidArgument,
                 "%s: %s (%p, %zu bytes) is not memory of openreg device %d, which communicator %s "
                 "uses",
                 OpName(spec.kind), what, pointer, size_bytes, comm.device(), comm.name());
  }
  if ((reinterpret_cast<uintptr_t>(pointer) & (alignment - 1)) != 0) {
    return Error(occlInvalidArgument, "%s: %s (%p) is not aligned to %zu bytes as %s needs",
                 OpName(spec.kind), what, pointer, alignment, DataTypeName(spec.datatype));
  }
  return Status();
}

Status CheckParts(const Comm& comm, const char* what, const void* const* pointers,
                  const size_t* counts, int n, const CollectiveSpec& spec,
                  std::vector<Part>* parts) {
  if (pointers == nullptr || counts == nullptr) {
    return Error(occlInvalidArgument, "%s: %s and its counts must not be NULL", OpName(spec.kind),
                 what);
  }
  parts->resize(n);
  for (int i = 0; i < n; ++i) {
    (*parts)[i].count = counts[i];
    OCCL_RETURN_IF_ERROR(
        CheckBuffer(comm, what, pointers[i], counts[i], 1, spec, &(*parts)[i].data));
  }
  return Status();
}

Status CheckOverlap(const CollectiveSpec& spec, const Range& send, const Range& recv,
                    const unsigned char* in_place_send, const unsigned char* in_place_recv) {
  if (!Overlap(send.data, send.size_bytes, recv.data, recv.size_bytes)) return Status();
  if (in_place_send != nullptr && in_place_send == in_place_recv) return Status();
  return Overlapping(spec);
}

Status CheckPartsOverlap(const CollectiveSpec& spec, const std::vector<Part>& sends,
                         const std::vector<Part>& recvs, const Part* in_place_send,
                         const Part* in_place_recv) {
  const size_t element = spec.element_bytes;
  for (size_t i = 0; i < recvs.size(); ++i) {
    for (size_t j = 0; j < i; ++j) {
      if (Overlap(recvs[i].data, recvs[i].count * element, recvs[j].data,
                  recvs[j].count * element)) {
        return Error(occlInvalidArgument, "%s: the receive buffers %zu and %zu overlap",
                     OpName(spec.kind), j, i);
      }
    }
    for (const Part& send : sends) {
      const bool in_place =
          &send == in_place_send && &recvs[i] == in_place_recv && send.data == recvs[i].data;
      if (!in_place &&
          Overlap(send.data, send.count * element, recvs[i].data, recvs[i].count * element)) {
        return Overlapping(spec);
      }
    }
  }
  return Status();
}

}  // namespace occl
