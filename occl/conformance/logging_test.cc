// OCCL_DEBUG, OCCL_DEBUG_SUBSYS and OCCL_DEBUG_FILE. They are read once per process, so that each
// case is a child process of its own.
#include <stdlib.h>
#include <unistd.h>

#include <fstream>
#include <sstream>
#include <string>

#include "gtest/gtest.h"
#include "occl/api/occl_debug.h"
#include "occl/conformance/ranks.h"

namespace occl_conformance {
namespace {

struct Settings {
  const char* level;  // NULL: not set
  const char* subsystems;
  const char* changed_to = nullptr;  // before the warning
};

int RunBoth(int rank, const occlUniqueId& id, const std::string& pattern, Settings settings) {
  setenv("OCCL_DEBUG_FILE", pattern.c_str(), 1);
  setenv("OCCL_TIMEOUT_MS", "45000", 1);
  if (settings.level != nullptr) setenv("OCCL_DEBUG", settings.level, 1);
  if (settings.subsystems != nullptr) setenv("OCCL_DEBUG_SUBSYS", settings.subsystems, 1);
  occlComm_t comm = nullptr;
  if (orSetDevice(rank) != orSuccess) return 1;
  if (occlCommInitRank(&comm, 2, id, rank, nullptr) != occlSuccess) return 2;
  void* data = nullptr;
  if (occlMemAlloc(&data, 64) != occlSuccess || orMemset(data, 0, 64) != orSuccess) return 3;
  if (occlReduce(data, data, 4, occlFloat32, occlMax, 1, comm, nullptr, nullptr) != occlSuccess) {
    return 4;
  }
  const occlResult_t sent = rank == 0 ? occlSend(data, 3, occlInt8, 1, 5, comm, nullptr, nullptr)
                                      : occlRecv(data, 3, occlInt8, 0, 5, comm, nullptr, nullptr);
  if (sent != occlSuccess) return 5;
  if (settings.changed_to != nullptr && occlSetDebugLevel != nullptr) {
    if (occlSetDebugLevel("LOUD") != occlInvalidArgument) return 8;
    if (occlSetDebugLevel(settings.changed_to) != occlSuccess) return 9;
  }
  const occlResult_t finished = occlCommFinalize(comm);
  if (rank == 0) {  // a warning on purpose; it may catch rank 1 before its end
    if (finished != occlSuccess || occlCommAbort(comm, "enough") != occlSuccess) return 6;
  }
  return occlCommDestroy(comm) == occlSuccess ? 0 : 7;
}

// What rank 0 logged. Each case forks before this process has used the device.
std::string LogOf(const std::string& test, Settings settings) {
  const char* folder = getenv("TEST_TMPDIR");
  const std::string base = std::string(folder != nullptr ? folder : "/tmp") + "/" + test;
  RankProcesses ranks(2, [&](int rank, const occlUniqueId& id) {
    return RunBoth(rank, id, base + ".%p", settings);
  });
  const std::string path = base + "." + std::to_string(ranks.pid(0));
  EXPECT_EQ(ranks.Wait(0), 0);
  EXPECT_EQ(ranks.Wait(1), 0);
  std::stringstream text;
  text << std::ifstream(path).rdbuf();
  return text.str();
}

bool Has(const std::string& log, const std::string& text) {
  return log.find(text) != std::string::npos;
}

TEST(Logging, OnlyWarningsAreShownByDefault) {
  const std::string log = LogOf("default", {nullptr, nullptr});
  EXPECT_TRUE(Has(log, "OCCL WARN ") && Has(log, "enough")) << log;
  EXPECT_FALSE(Has(log, "version") || Has(log, "OCCL INFO")) << log;
}

TEST(Logging, TheLevelCanBeChanged) {
  EXPECT_EQ(LogOf("none", {nullptr, nullptr, "none"}), "");
  const std::string log = LogOf("changed", {"NONE", "COLL", "INFO"});
  EXPECT_TRUE(Has(log, "OCCL WARN ") && Has(log, "enough")) << log;
}

TEST(Logging, VersionShowsNothingElse) {
  const std::string log = LogOf("version", {"version", nullptr});
  EXPECT_TRUE(Has(log, "OCCL VERSION version ")) << log;
  EXPECT_FALSE(Has(log, "WARN") || Has(log, "INFO")) << log;
}

TEST(Logging, InfoShowsInitAndEnvironment) {
  const std::string log = LogOf("info", {"INFO", nullptr});
  EXPECT_TRUE(Has(log, "rank 0 of 2 on device 0 is ready")) << log;
  EXPECT_TRUE(Has(log, "OCCL_TIMEOUT_MS set by environment to 45000")) << log;
  EXPECT_FALSE(Has(log, "reduce #1")) << log;
}

TEST(Logging, SubsystemsShowTheirOperations) {
  const std::string coll = LogOf("coll", {"INFO", "COLL"});
  EXPECT_TRUE(Has(coll, "reduce #1 on rank 0") && Has(coll, ": 4 of float32, MAX, root 1")) << coll;
  EXPECT_FALSE(Has(coll, "send #1") || Has(coll, "is ready") || Has(coll, "complete")) << coll;
  const std::string p2p = LogOf("p2p", {"INFO", "p2p,INIT"});
  EXPECT_TRUE(Has(p2p, "send #1 on rank 0") && Has(p2p, ": 3 of int8, peer 1, tag 5")) << p2p;
  EXPECT_TRUE(Has(p2p, "is ready")) << p2p;
  EXPECT_FALSE(Has(p2p, "reduce #1")) << p2p;
}

TEST(Logging, ACaretExcludes) {
  const std::string log = LogOf("caret", {"TRACE", "^COLL,INIT"});
  EXPECT_TRUE(Has(log, "send #1") && Has(log, ": complete after ")) << log;
  EXPECT_FALSE(Has(log, "reduce #1") || Has(log, "is ready")) << log;
}

}  // namespace
}  // namespace occl_conformance
