// Reductions give the same bits in every run, whoever comes first: 100 runs with random delays, on
// the caller's thread or the stream's worker, over values whose sum depends on the order.
#include <time.h>

#include <cstdlib>
#include <cstring>
#include <random>
#include <vector>

#include "gtest/gtest.h"
#include "occl/conformance/oracle.h"
#include "occl/conformance/ranks.h"

namespace occl_conformance {
namespace {

constexpr int kRuns = 100;

uint64_t Seed() {
  const char* text = std::getenv("OCCL_TEST_SEED");
  return text != nullptr ? std::strtoull(text, nullptr, 10) : std::random_device()();
}

void Delay(std::mt19937_64* rng) {
  constexpr long kMost_ns = 120'000;
  if ((*rng)() % 3 == 0) return;
  const timespec pause = {0, static_cast<long>((*rng)() % kMost_ns)};
  nanosleep(&pause, nullptr);
}

struct Case {
  occlDataType_t datatype;
  size_t count;
};

// Sums of numbers of very different sizes and both signs: no other order gives the same bits.
void FillSensitive(const Case& c, int rank, unsigned char* bytes) {
  std::mt19937_64 rng(static_cast<uint64_t>(1000 * c.datatype + rank));
  for (size_t i = 0; i < c.count; ++i) {
    const double value = std::ldexp(static_cast<double>(static_cast<int64_t>(rng())) * 0x1p-63,
                                    static_cast<int>(rng() % 12));
    if (c.datatype == occlFloat32) {
      const float single = static_cast<float>(value);
      std::memcpy(bytes + 4 * i, &single, 4);
    } else if (c.datatype == occlFloat64) {
      std::memcpy(bytes + 8 * i, &value, 8);
    } else {
      const uint16_t bits = c.datatype == occlFloat16
                                ? oracle::Half::Nearest(static_cast<float>(value)).bits
                                : oracle::BFloat::Nearest(static_cast<float>(value)).bits;
      std::memcpy(bytes + 2 * i, &bits, 2);
    }
  }
}

class Repeatability : public testing::TestWithParam<int> {};

void RunCase(const Rank& rank, const Case& c, std::mt19937_64* rng) {
  const size_t size = occlDataTypeSize(c.datatype), n = static_cast<size_t>(rank.nranks);
  const size_t part = c.count / n, bytes = c.count * size;
  DeviceBuffer input(bytes), sums(bytes), block(part * size);
  FillSensitive(c, rank.rank, input.host());
  std::vector<unsigned char> first_sums, first_block;
  for (int run = 0; run < kRuns; ++run) {
    occlCallOptions_t options = OCCL_CALL_OPTIONS_INITIALIZER;
    if ((*rng)() % 2 == 0) options.flags = OCCL_CALL_ASYNC;
    std::memset(sums.host(), 0, bytes);
    Delay(rng);
    ASSERT_EQ(occlAllReduce(input.device(), sums.device(), c.count, c.datatype, occlSum, rank.comm,
                            rank.stream, &options),
              occlSuccess);
    Delay(rng);
    ASSERT_EQ(occlReduceScatter(input.device(), block.device(), part, c.datatype, occlSum,
                                rank.comm, rank.stream, &options),
              occlSuccess);
    ASSERT_EQ(orStreamSynchronizeTimeout(rank.stream, 30'000), orSuccess);
    occlResult_t error = occlSuccess;
    ASSERT_EQ(occlCommGetAsyncError(rank.comm, &error), occlSuccess);
    ASSERT_EQ(error, occlSuccess) << occlGetLastError(rank.comm);
    if (run == 0) {
      first_sums.assign(sums.host(), sums.host() + bytes);
      first_block.assign(block.host(), block.host() + part * size);
      // The block is this rank's part of the same sums.
      const size_t own = static_cast<size_t>(rank.rank) * part * size;
      ASSERT_EQ(std::memcmp(sums.host() + own, block.host(), part * size), 0);
    }
    ASSERT_EQ(std::memcmp(sums.host(), first_sums.data(), bytes), 0)
        << "run " << run << " of datatype " << c.datatype << ", count " << c.count;
    ASSERT_EQ(std::memcmp(block.host(), first_block.data(), part * size), 0)
        << "run " << run << " of datatype " << c.datatype << ", count " << c.count;
  }
}

TEST_P(Repeatability, AHundredRunsGiveTheSameBits) {
  const uint64_t seed = Seed();
  SCOPED_TRACE(testing::Message() << "OCCL_TEST_SEED=" << seed);
  RecordProperty("seed", std::to_string(seed));
  RunThreads(GetParam(), [&](const Rank& rank) {
    std::mt19937_64 rng(seed + static_cast<uint64_t>(rank.rank));
    for (occlDataType_t datatype : {occlFloat32, occlBfloat16, occlFloat16, occlFloat64}) {
      for (size_t count : {size_t{24}, size_t{1021}, size_t{40'009}}) {
        RunCase(rank, {datatype, count}, &rng);
        if (testing::Test::HasFatalFailure()) return;
      }
    }
  });
}

INSTANTIATE_TEST_SUITE_P(Ranks, Repeatability, testing::Values(2, 3, 5));

}  // namespace
}  // namespace occl_conformance
