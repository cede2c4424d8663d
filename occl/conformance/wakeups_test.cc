// Nobody sleeps through what it waits for. A thread that waits looks by itself now and then, so a
// peer that does not wake it costs time and nothing else. Here it looks only every ten minutes
// (OCCL_CHECK_INTERVAL_MS, set by the target) and no operation has a deadline: it hangs.
#include <cstdlib>
#include <string>
#include <vector>

#include "gtest/gtest.h"
#include "occl/conformance/ranks.h"

namespace occl_conformance {
namespace {

constexpr int64_t kHangs_ms = 60'000;

// In the manner of occlAllReduce; `part` elements of each rank for each rank.
using Call = occlResult_t (*)(const Rank& rank, const void* send, void* recv, size_t part,
                              const occlCallOptions_t* options);

struct Operation {
  const char* name;
  Call call;
};

constexpr Operation kOperations[] = {
    {"all_reduce",
     [](const Rank& rank, const void* send, void* recv, size_t part, const occlCallOptions_t* o) {
       return occlAllReduce(send, recv, part * rank.nranks, occlInt32, occlSum, rank.comm,
                            rank.stream, o);
     }},
    {"reduce_scatter",
     [](const Rank& rank, const void* send, void* recv, size_t part, const occlCallOptions_t* o) {
       return occlReduceScatter(send, recv, part, occlInt32, occlSum, rank.comm, rank.stream, o);
     }},
    {"all_gather",
     [](const Rank& rank, const void* send, void* recv, size_t part, const occlCallOptions_t* o) {
       return occlAllGather(send, recv, part, occlInt32, rank.comm, rank.stream, o);
     }},
    {"all_to_all",
     [](const Rank& rank, const void* send, void* recv, size_t part, const occlCallOptions_t* o) {
       return occlAllToAll(send, recv, part, occlInt32, rank.comm, rank.stream, o);
     }},
    {"broadcast",
     [](const Rank& rank, const void* send, void* recv, size_t part, const occlCallOptions_t* o) {
       return occlBroadcast(send, recv, part * rank.nranks, occlInt32, 1, rank.comm, rank.stream,
                            o);
     }},
    {"reduce",
     [](const Rank& rank, const void* send, void* recv, size_t part, const occlCallOptions_t* o) {
       return occlReduce(send, recv, part * rank.nranks, occlInt32, occlSum, 0, rank.comm,
                         rank.stream, o);
     }},
    {"gather",
     [](const Rank& rank, const void* send, void* recv, size_t part, const occlCallOptions_t* o) {
       return occlGather(send, recv, part, occlInt32, 0, rank.comm, rank.stream, o);
     }},
    {"scatter",
     [](const Rank& rank, const void* send, void* recv, size_t part, const occlCallOptions_t* o) {
       return occlScatter(send, recv, part, occlInt32, 1, rank.comm, rank.stream, o);
     }},
    {"messages in a ring",
     [](const Rank& rank, const void* send, void* recv, size_t part, const occlCallOptions_t* o) {
       const int next = (rank.rank + 1) % rank.nranks;
       const int previous = (rank.rank + rank.nranks - 1) % rank.nranks;
       occlCallOptions_t unwatched = *o;
       unwatched.request = nullptr;
       EXPECT_EQ(occlGroupStart(), occlSuccess);
       EXPECT_EQ(occlSend(send, part * rank.nranks, occlInt32, next, 0, rank.comm, rank.stream,
                          &unwatched),
                 occlSuccess);
       EXPECT_EQ(
           occlRecv(recv, part * rank.nranks, occlInt32, previous, 0, rank.comm, rank.stream, o),
           occlSuccess);
       return occlGroupEnd();
     }},
};

class Wakeups : public testing::TestWithParam<int> {};

// False: it hung, and the communicator has been aborted.
bool Ends(const Rank& rank, const Operation& operation, size_t part, bool async,
          const DeviceBuffer& send, const DeviceBuffer& recv) {
  occlCallOptions_t options = OCCL_CALL_OPTIONS_INITIALIZER;
  occlRequest_t request = nullptr;
  options.request = &request;
  options.flags = async ? OCCL_CALL_ASYNC : 0;
  const occlResult_t issued = operation.call(rank, send.device(), recv.device(), part, &options);
  EXPECT_EQ(issued, occlSuccess) << occlGetLastError(nullptr);
  if (issued != occlSuccess) return false;
  const occlResult_t ended = occlRequestWait(request, kHangs_ms);
  EXPECT_EQ(ended, occlSuccess) << operation.name << ", " << part
                                << " elements for each rank: " << occlGetErrorString(ended);
  if (ended != occlSuccess) {
    EXPECT_EQ(occlCommAbort(rank.comm, "an operation hangs"), occlSuccess);
  }
  EXPECT_EQ(occlRequestFree(request), occlSuccess);
  // The send of a ring, too.
  EXPECT_EQ(orStreamSynchronizeTimeout(rank.stream, kHangs_ms), orSuccess);
  return ended == occlSuccess;
}

TEST_P(Wakeups, EveryOperationEndsThoughNobodyLooksByItself) {
  ASSERT_NE(std::getenv("OCCL_CHECK_INTERVAL_MS"), nullptr) << "set by the target";
  RankOptions options;
  options.timeout_ms = -1;
  RunThreads(
      GetParam(),
      [](const Rank& rank) {
        // One element, one slot's worth, several windows of a slot.
        constexpr size_t kParts[] = {1, 3'000, 60'001};
        const size_t bytes = kParts[2] * rank.nranks * sizeof(int32_t);
        const DeviceBuffer send(bytes), recv(bytes);
        for (int round = 0; round < 6; ++round) {
          for (const Operation& operation : kOperations) {
            for (const size_t part : kParts) {
              if (!Ends(rank, operation, part, round % 2 == 1, send, recv)) return;
            }
          }
        }
      },
      options);
}

INSTANTIATE_TEST_SUITE_P(Ranks, Wakeups, testing::Values(2, 3, 4, 7));

}  // namespace
}  // namespace occl_conformance
