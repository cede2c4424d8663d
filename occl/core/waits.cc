#include "occl/core/waits.h"

#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <mutex>
#include <vector>

#include "occl/base/futex.h"
#include "occl/bootstrap/messages.h"

namespace occl {
namespace {

constexpr size_t kWaitWords = kWaitTextBytes / sizeof(uint64_t);
constexpr int kPlacesOfAKind = kWaitPlaces / 2;
// Of a text that its owner is changing.
constexpr int kReadAttempts = 4;

std::string ReadPlace(const WaitPlace& place) {
  for (int i = 0; i < kReadAttempts; ++i) {
    const uint64_t before = place.version.load(std::memory_order_acquire);
    uint64_t words[kWaitWords];
    // acquire: the version below is loaded after every word.
    for (size_t w = 0; w < kWaitWords; ++w) {
      words[w] = place.words[w].load(std::memory_order_acquire);
    }
    if ((before & 1) == 0 && place.version.load(std::memory_order_relaxed) == before) {
      return PrintableText(reinterpret_cast<const char*>(words), sizeof(words));
    }
    CpuPause();
  }
  return "";
}

}  // namespace

struct WaitBoard::All {
  std::mutex mutex;  // guards the rest, and every write to a place
  std::vector<WaitBoard*> boards;
  uint64_t changes = 1;   // of `boards`
  int shared_boards = 0;  // whose segment several ranks of this process use
  std::array<const WaitNotice*, kWaitPlaces> notices = {};
};

WaitBoard::All& WaitBoard::AllBoards() {
  static All* const all = new All;  // outlives every thread
  return *all;
}

WaitBoard::WaitBoard(std::shared_ptr<ControlSegment> segment, int rank, int device)
    : segment_(std::move(segment)), rank_(rank), device_(device) {
  All& all = AllBoards();
  std::lock_guard<std::mutex> lock(all.mutex);
  all.boards.push_back(this);
  ++all.changes;
  for (WaitBoard* board : all.boards) {
    if (board->segment_ != segment_) continue;
    const bool same_device = board->device_ == device_;
    if (board != this) {
      if (++board->ranks_here_ == 2) ++all.shared_boards;
      board->ranks_of_device_ += same_device ? 1 : 0;
    }
    ++ranks_here_;
    ranks_of_device_ += same_device ? 1 : 0;
  }
  if (ranks_here_ > 1) ++all.shared_boards;
}

WaitBoard::~WaitBoard() {
  All& all = AllBoards();
  std::lock_guard<std::mutex> lock(all.mutex);
  std::erase(all.boards, this);
  ++all.changes;
  if (ranks_here_ > 1) --all.shared_boards;
  for (WaitBoard* board : all.boards) {
    if (board->segment_ != segment_) continue;
    if (--board->ranks_here_ == 1) --all.shared_boards;
    board->ranks_of_device_ -= board->device_ == device_ ? 1 : 0;
  }
  for (int place = 0; place < kWaitPlaces; ++place) Write(place, "");
}

bool WaitBoard::SameRank(const WaitBoard& other, bool several_ranks_here) const {
  if (this == &other) return true;
  if (segment_ == other.segment_) return false;
  if (!several_ranks_here) return true;
  return device_ == other.device_ && ranks_of_device_ == 1 && other.ranks_of_device_ == 1;
}

// Words are written whole, so that a reader sees old or new ones, and the version, which is odd
// meanwhile, tells it whether it has seen both.
void WaitBoard::Write(int place, const std::string& text) {
  WaitPlace& to = segment_->rank(rank_).waits[place];
  if (text.empty() && to.words[0].load(std::memory_order_relaxed) == 0) return;
  char bytes[kWaitTextBytes] = {};
  std::memcpy(bytes, text.data(), std::min(text.size(), sizeof(bytes)));
  const uint64_t version = to.version.load(std::memory_order_relaxed) | 1;
  to.version.store(version, std::memory_order_relaxed);
  for (size_t w = 0; w < kWaitWords; ++w) {
    uint64_t word;
    std::memcpy(&word, bytes + w * sizeof(word), sizeof(word));
    // release: no word is seen before the odd version.
    to.words[w].store(word, std::memory_order_release);
  }
  to.version.store(version + 1, std::memory_order_release);
}

std::string WaitBoard::Read(ControlSegment* segment, int rank) {
  std::string all;
  for (const WaitPlace& place : segment->rank(rank).waits) {
    const std::string text = ReadPlace(place);
    if (!text.empty()) all += (all.empty() ? "" : " and in ") + text;
  }
  return all;
}

std::string WaitBoard::ReadProcess(int64_t pid) {
  if (pid == 0 || pid == getpid()) return "";
  All& all = AllBoards();
  std::lock_guard<std::mutex> lock(all.mutex);
  for (WaitBoard* board : all.boards) {
    for (int r = 0; r < board->segment_->nranks(); ++r) {
      RankCard card;
      std::memcpy(&card, board->segment_->rank(r).card, sizeof(card));
      if (r == board->rank_ || card.pid != pid || card.pid_namespace != OwnPidNamespace()) continue;
      const std::string text = Read(board->segment_.get(), r);
      if (!text.empty()) return text;
    }
  }
  return "";
}

void WaitNotice::Show(const std::string& text) {
  WaitBoard::All& all = WaitBoard::AllBoards();
  std::lock_guard<std::mutex> lock(all.mutex);
  if (place_ < 0) {
    const int first = what_ == What::kCollective ? 0 : kPlacesOfAKind;
    for (int place = first; place < first + kPlacesOfAKind && place_ < 0; ++place) {
      if (all.notices[place] == nullptr) place_ = place;
    }
    if (place_ < 0) return;
    all.notices[place_] = this;
  }
  if (text == text_ && shown_to_ == all.changes) return;
  text_ = text;
  shown_to_ = all.changes;
  for (WaitBoard* board : all.boards) {
    board->Write(place_, board_.SameRank(*board, all.shared_boards > 0) ? text : "");
  }
}

void WaitNotice::Clear() {
  WaitBoard::All& all = WaitBoard::AllBoards();
  std::lock_guard<std::mutex> lock(all.mutex);
  if (place_ < 0) return;
  for (WaitBoard* board : all.boards) board->Write(place_, "");
  all.notices[place_] = nullptr;
  place_ = -1;
  text_.clear();
}

}  // namespace occl
