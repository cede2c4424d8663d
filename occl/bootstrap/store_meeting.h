// Ranks that meet in a store of keys given by the caller.
#ifndef OCCL_BOOTSTRAP_STORE_MEETING_H_
#define OCCL_BOOTSTRAP_STORE_MEETING_H_

#include <string>
#include <vector>

#include "occl/bootstrap/rendezvous.h"

namespace occl {

struct RankRecord;

class StoreMeeting final : public Meeting {
 public:
  // Of ranks that ask the store for no longer than kSlice_ms at a time, because it may hold news of
  // another kind.
  static constexpr int64_t kSlice_ms = 200;

  // `prefix` starts every key; the store must outlive this. `slices`: a `get` of it may run out of
  // time and be asked again.
  StoreMeeting(const occlStore_t& store, std::string prefix, bool slices)
      : store_(store), prefix_(std::move(prefix)), slices_(slices) {}

  void ChooseAddress(LeaderInfo* info) override;
  Status Publish(const LeaderInfo& info) override;
  Status Find(LeaderInfo* info, const Deadline& deadline) override;
  void ReportFailure(const LeaderInfo& info, const Status& status) override;
  bool IsReused() const override { return slices_; }
  void ReportEnd(const LeaderInfo& info, const Status& status) override;
  Status CheckFailure(const LeaderInfo& info) override;
  Status ComesFirst(bool* first, bool* some_left) override;
  Status FindLeft(std::vector<LeftRank>* ranks) override;
  Status SayJoined(const LeaderInfo& leader, int rank) override;
  Status FindGone(uint32_t generation, std::vector<LeftRank>* ranks) override;
  Status Inherits(const LeaderInfo& leader, bool* inherits) override;
  Status CheckAborted() override;
  // What CheckAborted tells from now on.
  Status Abort(const Status& why);
  // `rank`, which has not come, will not. *some_came: those who have come do not know it; else the
  // first to come finds it.
  Status Leave(int rank, bool* some_came);
  // `rank`, which has joined, goes: for who inherits.
  Status LeaveJoined(int rank);

 private:
  Status Count(int64_t delta, int64_t* sum);
  std::string RecordKey(int rank) const;
  bool FindRecord(int rank, RankRecord* record);
  Status SetRecord(int rank, const RankRecord& record);
  occlResult_t Get(const std::string& key, LeaderInfo* info, size_t* size, const Deadline& deadline,
                   Status* aborted);
  std::string FailureKey(const LeaderInfo& info) const;

  const occlStore_t& store_;
  const std::string prefix_;
  const bool slices_;
};

}  // namespace occl

#endif  // OCCL_BOOTSTRAP_STORE_MEETING_H_
