// Matching of messages: first in, first out per (peer, direction, tag), whatever the streams do.
//
// Operations enter in the order of the caller's calls and may start in another. A send is posted
// when it has started and no earlier one to the same peer with the same tag is unposted. A message
// goes to the first receive, in call order, that accepts it; whichever thread looks assigns it.
#ifndef OCCL_CORE_MATCH_H_
#define OCCL_CORE_MATCH_H_

#include <cstdint>
#include <mutex>
#include <vector>

#include "occl/transport/control_segment.h"

namespace occl {

struct PendingSend {
  int peer;
  int tag;
};

struct PendingRecv {
  int peer;  // OCCL_ANY_SOURCE or a rank
  int tag;   // OCCL_ANY_TAG or a tag
  // Set by the matcher.
  bool matched = false;
  int source = -1;
  uint64_t sequence = 0;
  MessageHead head = {};
};

class MessageMatcher {
 public:
  MessageMatcher(ControlSegment* segment, int rank);

  // Returns the number of the send (receive) among this rank's to (from) that peer, from 1.
  uint64_t Add(PendingSend* send);
  uint64_t Add(PendingRecv* recv);
  void Remove(PendingSend* send);
  void Remove(PendingRecv* recv);

  // Posts the message if its turn has come and there is a place for it; then *sequence is its
  // number among the messages to that peer. inline_data: kInlineBytes, or NULL.
  bool Post(PendingSend* send, const MessageHead& head, const void* inline_data,
            uint64_t* sequence);
  // Looks for messages; true if one has been assigned to `recv`.
  bool Match(PendingRecv* recv);
  // Whether one has been; whichever thread looked.
  bool Matched(const PendingRecv& recv);
  // The tags of up to `most` messages from `source` that have come and that no receive accepts.
  std::vector<int> Unmatched(int source, size_t most);
  // The staging channel from `source` serves one receive at a time.
  bool ClaimStage(int source);
  void ReleaseStage(int source);

 private:
  void Scan(int source, const PendingRecv* wanted);
  bool Assign(int source, uint64_t sequence, const MessageHead& head);

  ControlSegment& segment_;
  const int rank_;
  const uint64_t places_;
  std::mutex mutex_;                                 // guards all below
  std::vector<PendingSend*> sends_;                  // in call order, not posted
  std::vector<PendingRecv*> recvs_;                  // in call order, not matched
  std::vector<uint64_t> sends_added_, recvs_added_;  // by peer; the last: from any source
  std::vector<uint64_t> sent_;                       // messages posted, by peer
  std::vector<uint64_t> lowest_;   // the first message that is not assigned, by source
  std::vector<bool> stage_busy_;   // by source
  std::vector<uint64_t> claimed_;  // bit sequence % places: assigned, and not below lowest_
};

}  // namespace occl

#endif  // OCCL_CORE_MATCH_H_
