// Ranks that meet in a store of keys given by the caller.
#ifndef OCCL_BOOTSTRAP_STORE_MEETING_H_
#define OCCL_BOOTSTRAP_STORE_MEETING_H_

#include <string>

#include "occl/bootstrap/rendezvous.h"

namespace occl {

class StoreMeeting final : public Meeting {
 public:
  // `prefix` starts every key; the store must outlive this.
  StoreMeeting(const occlStore_t& store, std::string prefix)
      : store_(store), prefix_(std::move(prefix)) {}

  void ChooseAddress(LeaderInfo* info) override;
  Status Publish(const LeaderInfo& info) override;
  Status Find(LeaderInfo* info, const Deadline& deadline) override;
  void ReportFailure(const LeaderInfo& info, const Status& status) override;
  Status CheckFailure(const LeaderInfo& info) override;
  Status ComesFirst(bool* first) override;

 private:
  std::string FailureKey(const LeaderInfo& info) const;

  const occlStore_t& store_;
  const std::string prefix_;
};

}  // namespace occl

#endif  // OCCL_BOOTSTRAP_STORE_MEETING_H_
