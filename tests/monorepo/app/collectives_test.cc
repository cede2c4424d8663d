// The C APIs from another repository: two ranks, as threads, all-reduce in device memory.

#include <gtest/gtest.h>

#include <string>
#include <thread>
#include <vector>

#include "occl/api/occl.h"
#include "openreg/api/openreg.h"

namespace {

constexpr int kRanks = 2;
constexpr size_t kCount = 1000;

// Runs one rank; returns an empty string, or what went wrong.
std::string AllReduce(occlUniqueId id, int rank) {
  occlComm_t comm = nullptr;
  occlConfig_t config = OCCL_CONFIG_INITIALIZER;
  config.timeout_ms = 60'000;
  config.initTimeout_ms = 60'000;
  if (occlCommInitRank(&comm, kRanks, id, rank, &config) != occlSuccess) {
    return occlGetLastError(nullptr);
  }
  orStream_t stream = nullptr;
  void* device = nullptr;
  std::vector<float> host(kCount, static_cast<float>(rank + 1));
  const size_t size_bytes = kCount * sizeof(float);
  bool good = orStreamCreate(&stream) == orSuccess && orMalloc(&device, size_bytes) == orSuccess &&
              orMemcpy(device, host.data(), size_bytes, orMemcpyHostToDevice) == orSuccess &&
              occlAllReduce(device, device, kCount, occlFloat32, occlSum, comm, stream, nullptr) ==
                  occlSuccess &&
              orStreamSynchronizeTimeout(stream, 60'000) == orSuccess &&
              orMemcpy(host.data(), device, size_bytes, orMemcpyDeviceToHost) == orSuccess;
  std::string error = good ? "" : std::string(occlGetLastError(comm)) + orGetLastErrorMessage();
  for (float value : host) {
    if (good && value != 3.0F) error = "wrong sum " + std::to_string(value);
  }
  occlCommFinalize(comm);
  occlCommDestroy(comm);
  orFree(device);
  orStreamDestroy(stream);
  return error;
}

TEST(Embedding, TwoRanksAllReduceInDeviceMemory) {
  occlUniqueId id;
  ASSERT_EQ(occlGetUniqueId(&id), occlSuccess);
  std::vector<std::string> errors(kRanks);
  std::vector<std::thread> ranks;
  for (int rank = 0; rank < kRanks; ++rank) {
    ranks.emplace_back([&, rank] { errors[rank] = AllReduce(id, rank); });
  }
  for (std::thread& rank : ranks) rank.join();
  EXPECT_EQ(errors, std::vector<std::string>(kRanks));
}

}  // namespace
