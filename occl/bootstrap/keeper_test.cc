#include "occl/bootstrap/keeper.h"

#include <dirent.h>
#include <unistd.h>

#include <cstring>
#include <fstream>
#include <memory>
#include <string>
#include <utility>

#include "gtest/gtest.h"
#include "occl/bootstrap/local_socket.h"

namespace occl {
namespace {

// Of ranks that are in this process.
class OwnMeeting final : public Meeting {
 public:
  void ChooseAddress(LeaderInfo* info) override { ChooseRandomAddress(info); }
  Status Publish(const LeaderInfo& info) override {
    info_ = info;
    return Status();
  }
  Status Find(LeaderInfo* info, const Deadline&) override {
    *info = info_;
    return Status();
  }
  void ReportFailure(const LeaderInfo&, const Status&) override {}
  Status CheckFailure(const LeaderInfo&) override { return Status(); }
  Status ComesFirst(bool* first, bool* some_left) override {
    *first = true;
    *some_left = false;
    return Status();
  }

 private:
  LeaderInfo info_ = {};
};

RendezvousOptions OptionsOf(int rank) {
  RendezvousOptions options = {};
  options.nranks = 2;
  options.rank = rank;
  options.deadline = Deadline::After(30'000);
  options.name = "test";
  return options;
}

// Descriptors that this process watches with epoll, as proc(5) tells: as often as it has copies of
// the one that watches.
int WatchedDescriptors() {
  int count = 0;
  DIR* const folder = opendir("/proc/self/fd");
  while (const dirent* entry = readdir(folder)) {
    char target[64] = "";
    const std::string name = entry->d_name;
    if (readlink(("/proc/self/fd/" + name).c_str(), target, sizeof(target) - 1) <= 0 ||
        std::strstr(target, "eventpoll") == nullptr) {
      continue;
    }
    std::ifstream info("/proc/self/fdinfo/" + name);
    std::string line;
    while (std::getline(info, line)) count += line.rfind("tfd:", 0) == 0 ? 1 : 0;
  }
  closedir(folder);
  return count;
}

// The first of two ranks that meet in `meeting`.
std::shared_ptr<Keeper> Start(OwnMeeting* meeting) {
  UniqueFd file;
  std::shared_ptr<ControlSegment> segment;
  EXPECT_TRUE(ControlSegment::Create(2, &file).ok());
  EXPECT_TRUE(ControlSegment::Map(file, 2, &segment).ok());
  LeaderInfo info = {};
  std::shared_ptr<Keeper> keeper;
  const auto fail = [](ControlSegment*, int, const Status&) {};
  EXPECT_TRUE(
      Keeper::Start(meeting, OptionsOf(0), 0, std::move(file), segment, fail, &info, &keeper).ok());
  return keeper;
}

TEST(Keeper, NoLongerWatchesASocketThatAnotherRankHasWhenAllHaveCome) {
  OwnMeeting meeting, other;
  const std::shared_ptr<Keeper> keeper = Start(&meeting);
  const std::shared_ptr<Keeper> open = Start(&other);  // what is watched stays a while with it
  const int both = WatchedDescriptors();
  EXPECT_GT(both, 1);
  LeaderInfo info = {};
  Kept kept;
  ASSERT_TRUE(FetchSegment(&meeting, OptionsOf(1), &info, &kept).ok());
  ASSERT_TRUE(kept.listener.valid());
  const Deadline deadline = Deadline::After(10'000);
  while (WatchedDescriptors() > both / 2 && !deadline.Passed()) usleep(5'000);
  EXPECT_EQ(WatchedDescriptors(), both / 2);
}

}  // namespace
}  // namespace occl
