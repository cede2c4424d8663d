#include "occl/core/match.h"

#include <algorithm>
#include <cstring>

namespace occl {

MessageMatcher::MessageMatcher(ControlSegment* segment, int rank)
    : segment_(*segment),
      rank_(rank),
      places_(segment->message_places()),
      sends_added_(segment->nranks(), 0),
      recvs_added_(segment->nranks() + 1, 0),
      sent_(segment->nranks(), 0),
      lowest_(segment->nranks(), 1),
      stage_busy_(segment->nranks(), false),
      claimed_(segment->nranks(), 0) {}

uint64_t MessageMatcher::Add(PendingSend* send) {
  std::lock_guard<std::mutex> lock(mutex_);
  sends_.push_back(send);
  return ++sends_added_[send->peer];
}

uint64_t MessageMatcher::Add(PendingRecv* recv) {
  std::lock_guard<std::mutex> lock(mutex_);
  recvs_.push_back(recv);
  return ++recvs_added_[recv->peer == OCCL_ANY_SOURCE ? segment_.nranks() : recv->peer];
}

void MessageMatcher::Remove(PendingSend* send) {
  std::lock_guard<std::mutex> lock(mutex_);
  std::erase(sends_, send);
}

void MessageMatcher::Remove(PendingRecv* recv) {
  std::lock_guard<std::mutex> lock(mutex_);
  std::erase(recvs_, recv);
}

bool MessageMatcher::Post(PendingSend* send, const MessageHead& head, const void* inline_data,
                          uint64_t* sequence) {
  std::lock_guard<std::mutex> lock(mutex_);
  for (const PendingSend* earlier : sends_) {
    if (earlier == send) break;
    if (earlier->peer == send->peer && earlier->tag == send->tag) return false;
  }
  const uint64_t number = sent_[send->peer] + 1;
  const auto& read = segment_.message_read(rank_, send->peer, number);
  if (number > places_ && read.load(std::memory_order_acquire) < number - places_) return false;
  MessageEntry& entry = segment_.message(rank_, send->peer, number);
  entry.head = head;
  if (inline_data != nullptr) std::memcpy(entry.inline_data, inline_data, kInlineBytes);
  entry.sequence.store(number, std::memory_order_release);
  sent_[send->peer] = number;
  std::erase(sends_, send);
  *sequence = number;
  return true;
}

bool MessageMatcher::Match(PendingRecv* recv) {
  std::lock_guard<std::mutex> lock(mutex_);
  if (recv->matched) return true;
  if (recv->peer != OCCL_ANY_SOURCE) {
    Scan(recv->peer, recv);
    return recv->matched;
  }
  for (int source = 0; source < segment_.nranks() && !recv->matched; ++source) Scan(source, recv);
  return recv->matched;
}

bool MessageMatcher::Matched(const PendingRecv& recv) {
  std::lock_guard<std::mutex> lock(mutex_);
  return recv.matched;
}

std::vector<int> MessageMatcher::Unmatched(int source, size_t most) {
  std::lock_guard<std::mutex> lock(mutex_);
  std::vector<int> tags;
  const uint64_t end = lowest_[source] + places_;
  for (uint64_t sequence = lowest_[source]; sequence < end && tags.size() < most; ++sequence) {
    const MessageEntry& entry = segment_.message(source, rank_, sequence);
    if (entry.sequence.load(std::memory_order_acquire) != sequence) break;
    const uint64_t bit = uint64_t{1} << (sequence % places_);
    if ((claimed_[source] & bit) == 0) tags.push_back(CopyOut(entry.head).tag);
  }
  return tags;
}

bool MessageMatcher::ClaimStage(int source) {
  std::lock_guard<std::mutex> lock(mutex_);
  if (stage_busy_[source]) return false;
  stage_busy_[source] = true;
  return true;
}

void MessageMatcher::ReleaseStage(int source) {
  std::lock_guard<std::mutex> lock(mutex_);
  stage_busy_[source] = false;
}

// Assigns the messages of one source, in their order, until `wanted` has one.
void MessageMatcher::Scan(int source, const PendingRecv* wanted) {
  const uint64_t end = lowest_[source] + places_;
  for (uint64_t sequence = lowest_[source]; sequence < end && !wanted->matched; ++sequence) {
    const MessageEntry& entry = segment_.message(source, rank_, sequence);
    if (entry.sequence.load(std::memory_order_acquire) != sequence) break;
    const uint64_t bit = uint64_t{1} << (sequence % places_);
    if ((claimed_[source] & bit) != 0) continue;
    if (Assign(source, sequence, CopyOut(entry.head))) claimed_[source] |= bit;
  }
  while (true) {
    const uint64_t bit = uint64_t{1} << (lowest_[source] % places_);
    if ((claimed_[source] & bit) == 0) break;
    claimed_[source] &= ~bit;
    ++lowest_[source];
  }
}

bool MessageMatcher::Assign(int source, uint64_t sequence, const MessageHead& head) {
  const auto accepts = [&](const PendingRecv* recv) {
    return !recv->matched && (recv->peer == OCCL_ANY_SOURCE || recv->peer == source) &&
           (recv->tag == OCCL_ANY_TAG || recv->tag == head.tag);
  };
  const auto found = std::find_if(recvs_.begin(), recvs_.end(), accepts);
  if (found == recvs_.end()) return false;
  PendingRecv* recv = *found;
  recv->head = head;
  recv->source = source;
  recv->sequence = sequence;
  recv->matched = true;
  recvs_.erase(found);
  return true;
}

}  // namespace occl
