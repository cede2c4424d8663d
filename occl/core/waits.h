// Where this process waits, told to its peers in all its communicators: a rank that is missed in
// one of them may wait in another.
//
// Only waits that have lasted are told: until the first periodic look at deadlines and peers. Where
// a process is several ranks nobody knows which of its communicators belong together, unless each
// rank has a device of its own: then a wait is told in its own communicator only.
#ifndef OCCL_CORE_WAITS_H_
#define OCCL_CORE_WAITS_H_

#include <cstdint>
#include <memory>
#include <string>

#include "occl/transport/control_segment.h"

namespace occl {

// A communicator's part in that. Thread-safe.
class WaitBoard {
 public:
  WaitBoard(std::shared_ptr<ControlSegment> segment, int rank, int device);
  WaitBoard(const WaitBoard&) = delete;
  WaitBoard& operator=(const WaitBoard&) = delete;
  ~WaitBoard();

  // Where `rank` says that it waits: "all_reduce #1 for rank(s) 0 (pid 7) in communicator dp",
  // several joined by " and in "; "" if it says nothing.
  static std::string Read(ControlSegment* segment, int rank);
  // The same of another process (of this pid namespace) that is in a communicator with this one.
  static std::string ReadProcess(int64_t pid);

 private:
  friend class WaitNotice;
  struct All;
  static All& AllBoards();
  bool SameRank(const WaitBoard& other, bool several_ranks_here) const;
  void Write(int place, const std::string& text);

  // Constant after construction.
  const std::shared_ptr<ControlSegment> segment_;
  const int rank_;
  const int device_;

  // Guarded by the mutex of all boards: this process's ranks in the segment, and of those the ones
  // with this device.
  int ranks_here_ = 0;
  int ranks_of_device_ = 0;
};

// One wait. Thread-safe.
class WaitNotice {
 public:
  enum class What { kCollective, kMessage };  // each kind has its places

  WaitNotice(const WaitBoard* board, What what) : board_(*board), what_(what) {}
  WaitNotice(const WaitNotice&) = delete;
  WaitNotice& operator=(const WaitNotice&) = delete;
  ~WaitNotice() { Clear(); }

  // Tells the peers, or tells them something else. No effect while there is no place.
  void Show(const std::string& text);
  void Clear();

 private:
  friend class WaitBoard;

  const WaitBoard& board_;
  const What what_;
  // Guarded by the mutex of all boards.
  int place_ = -1;
  uint64_t shown_to_ = 0;  // the boards there were
  std::string text_;
};

}  // namespace occl

#endif  // OCCL_CORE_WAITS_H_
