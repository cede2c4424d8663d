#include "occl/bootstrap/rendezvous.h"

#include <unistd.h>

#include <cstring>
#include <string>
#include <thread>
#include <vector>

#include "gtest/gtest.h"
#include "occl/bootstrap/local_socket.h"

namespace occl {
namespace {

constexpr int kRanks = 3;

RendezvousOptions OptionsOf(int rank) {
  RendezvousOptions options = {};
  options.nranks = kRanks;
  options.rank = rank;
  options.deadline = Deadline::After(30'000);
  options.name = "test";
  options.prepare = [](const Gathering&, bool*) { return Status(); };
  return options;
}

// Tells nothing but the address, to those of this process.
class OwnMeeting final : public Meeting {
 public:
  void ChooseAddress(LeaderInfo* info) override {
    info->secret = secret_;
    std::memcpy(info->socket_name, name_.c_str(), name_.size() + 1);
  }
  Status Publish(const LeaderInfo&) override { return Status(); }
  Status Find(LeaderInfo*, const Deadline&) override { return Status(); }
  void ReportFailure(const LeaderInfo&, const Status&) override {}
  Status CheckFailure(const LeaderInfo&) override { return why_a_rank_cannot_come; }
  Status ComesFirst(bool*, bool*) override { return Status(); }

  Status why_a_rank_cannot_come;

  Status ConnectTo(UniqueFd* socket) const {
    const Deadline deadline = Deadline::After(30'000);
    Status connected;
    do {
      connected = Connect(name_, socket);
    } while (!connected.ok() && !deadline.Passed());
    return connected;
  }
  Hello HelloOf(int rank, int nranks) const {
    Hello hello = {};
    hello.magic = kBootstrapMagic;
    hello.secret = secret_;
    hello.card = OwnCard(OptionsOf(rank));
    hello.card.nranks = nranks;
    return hello;
  }

 private:
  const std::string name_ = RandomSocketName();
  const Secret secret_ = RandomSecret();
};

// What comes back after a hello.
std::string Answer(const UniqueFd& socket, const Hello& hello) {
  Notice notice;
  if (!SendMessage(socket, &hello, sizeof(hello), {}, Deadline::After(10'000)).ok()) return "";
  const Deadline deadline = Deadline::After(10'000);
  if (!ReceiveMessage(socket, &notice, sizeof(notice), nullptr, deadline).ok()) return "";
  return FromNotice(notice).message();
}

// Rank 1 has connected when rank 2, which is told another number of ranks, ends the init.
std::string WhatRank1IsTold(useconds_t pause_us) {
  OwnMeeting meeting;
  Status led;
  std::thread leader([&] {
    Gathering gathering;
    led = LeadRendezvous(&meeting, OptionsOf(0), &gathering);
  });
  UniqueFd one, two;
  EXPECT_TRUE(meeting.ConnectTo(&one).ok());
  EXPECT_TRUE(meeting.ConnectTo(&two).ok());
  usleep(pause_us);  // rank 0 may let both in before one of them says who it is
  const std::string refusal = Answer(two, meeting.HelloOf(2, kRanks + 1));
  const std::string told = Answer(one, meeting.HelloOf(1, kRanks));
  leader.join();
  EXPECT_EQ(led.code(), occlMismatch);
  EXPECT_EQ(refusal, led.message());
  return told == refusal ? "the reason" : told;
}

TEST(Rendezvous, ARankThatHasConnectedIsToldWhyInitFails) {
  for (const useconds_t pause_us : {0, 20'000}) {
    std::string told;
    // A rank that says hello much later than it connects is not waited for.
    for (int i = 0; i < 50 && told != "the reason"; ++i) told = WhatRank1IsTold(pause_us);
    EXPECT_EQ(told, "the reason") << pause_us;
  }
}

TEST(Rendezvous, AsksWithinASecondWhetherARankCannotCome) {
  OwnMeeting meeting;
  meeting.why_a_rank_cannot_come = Error(occlRemoteError, "rank 2 (pid 4711) has died");
  RendezvousOptions options = OptionsOf(0);
  options.deadline = Deadline::After(500);
  Gathering gathering;
  const Status led = LeadRendezvous(&meeting, options, &gathering);
  EXPECT_EQ(led.code(), occlRemoteError);
  EXPECT_EQ(led.message(), "rank 2 (pid 4711) has died");
}

}  // namespace
}  // namespace occl
