// What ranks must agree on, compared before any data moves.
#include "occl/base/datatypes.h"
#include "occl/core/collective_op.h"

namespace occl {
namespace {

Status Differ(const std::string& title, const char* field, int rank, const std::string& own,
              const std::string& peer_name, const std::string& found) {
  return Error(occlMismatch, "%s: the ranks disagree about the %s: rank %d has %s, rank %s has %s",
               title.c_str(), field, rank, own.c_str(), peer_name.c_str(), found.c_str());
}

}  // namespace

Status CollectiveOp::Compare(int peer, const RoundHead& head) const {
  const auto differ = [&](const char* field, const std::string& own, const std::string& found) {
    return Differ(Title(), field, comm().rank(), own, comm().peers.Name(peer), found);
  };
  if (head.kind != static_cast<uint8_t>(spec_.kind)) {
    return differ("operation", name(), OpName(int{head.kind}));
  }
  // What an even form posts is no table of parts: what lies there is an earlier operation's.
  if ((head.uneven == 1) != spec_.uneven) {
    const auto form = [](bool uneven) { return uneven ? "a count for each rank" : "one count"; };
    return differ("form of the operation", form(spec_.uneven), form(head.uneven == 1));
  }
  if (head.datatype != spec_.datatype) {
    return differ("datatype", DataTypeName(spec_.datatype), DataTypeName(head.datatype));
  }
  if (head.root != spec_.root) {
    return differ("root", std::to_string(spec_.root), std::to_string(head.root));
  }
  if (spec_.reduces && head.op != spec_.op) {
    return differ("reduce operation", RedOpName(spec_.op), RedOpName(head.op));
  }
  if (spec_.uneven) return CompareParts(peer);
  if (head.count != spec_.count) {
    return differ("count", std::to_string(spec_.count), std::to_string(head.count));
  }
  const bool peer_direct = head.path == static_cast<uint8_t>(DataPath::kDirect);
  const bool shares = spec_.kind == OpKind::kAllReduce || spec_.kind == OpKind::kReduce;
  if (shares && peer_direct != (path_ == DataPath::kDirect)) {
    return differ("algorithm (is OCCL_ALGO the same everywhere?)",
                  std::to_string(static_cast<int>(path_)), std::to_string(head.path));
  }
  return Status();
}

// The peer's part for this rank must be as long as this rank expects.
Status CollectiveOp::CompareParts(int peer) const {
  if (!spec_.Reads(comm().rank(), peer)) return Status();
  const int index = spec_.part_per_rank ? comm().rank() : 0;
  const PartEntry part = CopyOut(comm().segment().parts(peer, round_)[index]);
  const uint64_t expected = spec_.RecvPart(peer).count;
  if (part.count == expected) return Status();
  return Differ(Title(), "counts (splits)", comm().rank(),
                std::to_string(expected) + " elements to come from there", comm().peers.Name(peer),
                std::to_string(part.count) + " to send here");
}

}  // namespace occl
