// Checks that the collectives share.
#ifndef OCCL_COLLECTIVES_CHECKS_H_
#define OCCL_COLLECTIVES_CHECKS_H_

#include <cstddef>

#include "occl/base/status.h"
#include "occl/core/collective_spec.h"
#include "occl/core/comm.h"

namespace occl {

// Fills kind, datatype and element size.
Status StartSpec(OpKind kind, occlDataType_t datatype, CollectiveSpec* spec);
Status CheckRoot(const Comm& comm, int root, CollectiveSpec* spec);
// Resolves the reduction of the spec's datatype.
Status CheckReduction(Comm& comm, occlRedOp_t op, CollectiveSpec* spec);

// A buffer of `parts` times `count` elements: device memory of the communicator's device, aligned.
// NULL is good for an empty one. `what` is the parameter's name.
Status CheckBuffer(const Comm& comm, const char* what, const void* pointer, size_t count,
                   size_t parts, const CollectiveSpec& spec, unsigned char** kernel_pointer);
// n buffers with a count each.
Status CheckParts(const Comm& comm, const char* what, const void* const* pointers,
                  const size_t* counts, int n, const CollectiveSpec& spec,
                  std::vector<Part>* parts);

// The ranges may be apart, or the same address where `in_place` says that is allowed.
struct Range {
  const unsigned char* data;
  size_t size_bytes;
};
Status CheckOverlap(const CollectiveSpec& spec, const Range& send, const Range& recv,
                    const unsigned char* in_place_send, const unsigned char* in_place_recv);
Status CheckPartsOverlap(const CollectiveSpec& spec, const std::vector<Part>& sends,
                         const std::vector<Part>& recvs, const Part* in_place_send,
                         const Part* in_place_recv);

}  // namespace occl

#endif  // OCCL_COLLECTIVES_CHECKS_H_
