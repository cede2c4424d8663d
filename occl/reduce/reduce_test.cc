// Every kernel of every path against the oracle: all datatypes and operations, 1..9 sources and a
// few larger numbers, awkward counts, every misalignment class, every allowed aliasing.
#include "occl/reduce/reduce.h"

#include <algorithm>
#include <random>
#include <string>

#include "gtest/gtest.h"
#include "occl/base/datatypes.h"
#include "occl/conformance/oracle.h"

namespace occl::reduce {
namespace {

namespace oracle = occl_conformance::oracle;
using oracle::Boolean;

constexpr size_t kMaxCount = 1100;
constexpr size_t kMaxMisalign = 16;
constexpr size_t kGuard = 128;
constexpr uint8_t kGuardByte = 0xa5;

std::vector<CpuPath> Paths() {
  std::vector<CpuPath> paths;
  for (int p = 0; p <= static_cast<int>(BestCpuPath()); ++p) {
    paths.push_back(static_cast<CpuPath>(p));
  }
  return paths;
}

occlRedOp_t OpOf(RedKind kind) {
  constexpr occlRedOp_t kOps[kNumRedKinds] = {occlSum, occlProd, occlMin,
                                              occlMax, occlAvg,  occlBand,
                                              occlBor, occlBxor, oracle::kPremulSum};
  return kOps[static_cast<int>(kind)];
}

bool MakesSense(occlDataType_t t, RedKind kind) { return oracle::MakesSense(t, OpOf(kind)); }

template <class T>
class Case {
 public:
  Case(occlDataType_t datatype, RedKind kind, int n_srcs, uint64_t seed)
      : datatype_(datatype), kind_(kind), n_srcs_(n_srcs), rng_(seed) {
    for (int s = 0; s < n_srcs; ++s) {
      inputs_.emplace_back(kMaxCount * sizeof(T));
      oracle::FillRandom<T>(rng_, inputs_.back().data(), kMaxCount);
      for (int part = 0; part < 2; ++part) scales_.push_back(0.1 * (s + 1) - 0.7 * part);
    }
    args_ = {scales_.data(), static_cast<uint32_t>(n_srcs)};
    const oracle::ReduceArgs args = {args_.scales, args_.avg_divisor};
    std::vector<const uint8_t*> srcs;
    for (const auto& input : inputs_) srcs.push_back(input.data());
    for (size_t i = 0; i < kMaxCount; ++i) {
      expected_.push_back(oracle::Element<T>(OpOf(kind), srcs, i, args));
    }
  }

  // dst_is_source: index of the source that is also the first destination, or -1.
  void Check(CpuPath path, size_t count, size_t misalign, int dst_is_source, bool second_dst) {
    Plan plan;
    ASSERT_TRUE(Resolve(datatype_, kind_, &plan, path).ok());
    ASSERT_EQ(plan.element_bytes, sizeof(T));
    std::vector<std::vector<uint8_t>> memory;
    std::vector<void*> srcs;
    for (int s = 0; s < n_srcs_; ++s) {
      const size_t shift = kGuard + (misalign * static_cast<size_t>(s + 1)) % kMaxMisalign;
      srcs.push_back(Place(memory, shift, count));
      std::memcpy(srcs.back(), inputs_[static_cast<size_t>(s)].data(), count * sizeof(T));
    }
    std::vector<void*> dsts;
    if (dst_is_source >= 0) dsts.push_back(srcs[static_cast<size_t>(dst_is_source)]);
    if (dst_is_source < 0 || second_dst) dsts.push_back(Place(memory, kGuard + misalign, count));
    if (dst_is_source < 0 && second_dst) dsts.push_back(Place(memory, kGuard, count));
    Run(plan, dsts.data(), static_cast<int>(dsts.size()), srcs.data(), n_srcs_, count, args_);
    for (void* dst : dsts) Compare(static_cast<const uint8_t*>(dst), path, count);
    if (dst_is_source >= 0 || testing::Test::HasFatalFailure()) return;
    ReduceArgs args = args_;
    args.stream = true;
    for (void*& dst : dsts) dst = PlaceOnLine(memory, misalign % 2 * 8, count);
    Run(plan, dsts.data(), static_cast<int>(dsts.size()), srcs.data(), n_srcs_, count, args);
    for (void* dst : dsts) Compare(static_cast<const uint8_t*>(dst), path, count);
  }

 private:
  static void* Place(std::vector<std::vector<uint8_t>>& memory, size_t shift, size_t count) {
    memory.emplace_back(shift + count * sizeof(T) + kGuard, kGuardByte);
    return memory.back().data() + shift;
  }

  // `past` bytes after the beginning of a line.
  static void* PlaceOnLine(std::vector<std::vector<uint8_t>>& memory, size_t past, size_t count) {
    constexpr size_t kLine = 64;
    memory.emplace_back(2 * kGuard + kLine + past + count * sizeof(T), kGuardByte);
    uint8_t* const begin = memory.back().data() + kGuard;
    return begin + -reinterpret_cast<uintptr_t>(begin) % kLine + past;
  }

  void Compare(const uint8_t* dst, CpuPath path, size_t count) {
    for (size_t i = 0; i < count; ++i) {
      ASSERT_TRUE(oracle::Same(oracle::Load<T>(dst + i * sizeof(T)), expected_[i]))
          << RedKindName(kind_) << " of " << DataTypeName(datatype_) << ", path "
          << static_cast<int>(path) << ", " << n_srcs_ << " sources, element " << i << " of "
          << count;
    }
    for (size_t i = 1; i <= kGuard / 2; ++i) ASSERT_EQ(*(dst - i), kGuardByte) << "written before";
    for (size_t i = 0; i < kGuard; ++i) {
      ASSERT_EQ(dst[count * sizeof(T) + i], kGuardByte) << "written behind the end";
    }
  }

  occlDataType_t datatype_;
  RedKind kind_;
  int n_srcs_;
  std::mt19937_64 rng_;
  std::vector<std::vector<uint8_t>> inputs_;
  std::vector<double> scales_;
  ReduceArgs args_;
  std::vector<T> expected_;
};

#ifdef __SANITIZE_THREAD__  // slow, and there is one thread
constexpr size_t kCounts[] = {0, 1, 3, 65, 257};
#else
constexpr size_t kCounts[] = {0,  1,  2,  3,  5,   7,   8,   15,  16,  17,  31,  32,   33,
                              63, 64, 65, 97, 127, 128, 129, 255, 257, 511, 513, 1031, 1100};
#endif
constexpr int kSourceCounts[] = {1, 2, 3, 4, 5, 6, 7, 8, 9, 16, 17, 33, 64};

template <class T>
void Sweep(occlDataType_t datatype) {
  for (int k = 0; k < kNumRedKinds; ++k) {
    const RedKind kind = static_cast<RedKind>(k);
    if (!MakesSense(datatype, kind)) continue;
    for (int n_srcs : kSourceCounts) {
      Case<T> one(datatype, kind, n_srcs, /*seed=*/static_cast<uint64_t>(1000 * k + n_srcs));
      for (CpuPath path : Paths()) {
        size_t round = 0;
        for (size_t count : kCounts) {
          // -1: out of place; each source in turn is the destination otherwise.
          const int alias = static_cast<int>(round % static_cast<size_t>(n_srcs + 1)) - 1;
          one.Check(path, count, round % kMaxMisalign, alias, round % 3 == 1);
          one.Check(path, count, 0, -1, false);
          if (testing::Test::HasFatalFailure()) return;
          ++round;
        }
      }
    }
  }
}

TEST(ReduceTest, Int8EqualsOracle) { Sweep<int8_t>(occlInt8); }
TEST(ReduceTest, Uint8EqualsOracle) { Sweep<uint8_t>(occlUint8); }
TEST(ReduceTest, Int16EqualsOracle) { Sweep<int16_t>(occlInt16); }
TEST(ReduceTest, Uint16EqualsOracle) { Sweep<uint16_t>(occlUint16); }
TEST(ReduceTest, Int32EqualsOracle) { Sweep<int32_t>(occlInt32); }
TEST(ReduceTest, Uint32EqualsOracle) { Sweep<uint32_t>(occlUint32); }
TEST(ReduceTest, Int64EqualsOracle) { Sweep<int64_t>(occlInt64); }
TEST(ReduceTest, Uint64EqualsOracle) { Sweep<uint64_t>(occlUint64); }
TEST(ReduceTest, BoolEqualsOracle) { Sweep<Boolean>(occlBool); }
TEST(ReduceTest, Float16EqualsOracle) { Sweep<oracle::Half>(occlFloat16); }
TEST(ReduceTest, BFloat16EqualsOracle) { Sweep<oracle::BFloat>(occlBfloat16); }
TEST(ReduceTest, Float32EqualsOracle) { Sweep<float>(occlFloat32); }
TEST(ReduceTest, Float64EqualsOracle) { Sweep<double>(occlFloat64); }
TEST(ReduceTest, Complex32EqualsOracle) { Sweep<oracle::ComplexHalf>(occlComplex32); }
TEST(ReduceTest, Complex64EqualsOracle) { Sweep<std::complex<float>>(occlComplex64); }
TEST(ReduceTest, Complex128EqualsOracle) { Sweep<std::complex<double>>(occlComplex128); }

TEST(ReduceTest, RefusesPairsThatMakeNoSenseAndNamesThem) {
  for (CpuPath path : Paths()) {
    for (int t = 0; t < occlNumTypes; ++t) {
      for (int k = 0; k < kNumRedKinds; ++k) {
        const auto datatype = static_cast<occlDataType_t>(t);
        const auto kind = static_cast<RedKind>(k);
        Plan plan;
        const Status status = Resolve(datatype, kind, &plan, path);
        if (MakesSense(datatype, kind)) {
          EXPECT_TRUE(status.ok()) << status.message();
          continue;
        }
        EXPECT_EQ(status.code(), occlInvalidArgument);
        EXPECT_EQ(plan.kernel, nullptr);
        EXPECT_NE(status.message().find(RedKindName(kind)), std::string::npos) << status.message();
        EXPECT_NE(status.message().find(DataTypeName(datatype)), std::string::npos)
            << status.message();
      }
    }
  }
}

TEST(ReduceTest, RefusesUnknownDatatype) {
  Plan plan;
  EXPECT_EQ(Resolve(static_cast<occlDataType_t>(occlNumTypes), RedKind::kSum, &plan).code(),
            occlInvalidArgument);
  EXPECT_EQ(Resolve(static_cast<occlDataType_t>(-1), RedKind::kSum, &plan).code(),
            occlInvalidArgument);
}

// All 65,536 values survive a trip through the accumulator, on each path.
template <class T>
void EveryValueStays(occlDataType_t datatype) {
  std::vector<uint16_t> all(65536), out(65536);
  for (size_t i = 0; i < all.size(); ++i) all[i] = static_cast<uint16_t>(i);
  for (CpuPath path : Paths()) {
    Plan plan;
    ASSERT_TRUE(Resolve(datatype, RedKind::kSum, &plan, path).ok());
    void* dst = out.data();
    const void* src = all.data();
    Run(plan, &dst, 1, &src, 1, all.size());
    for (size_t i = 0; i < all.size(); ++i) {
      ASSERT_TRUE(oracle::Same(T{out[i]}, T{all[i]})) << std::hex << i << " became " << out[i];
    }
  }
}
TEST(ReduceTest, EveryFloat16Stays) { EveryValueStays<oracle::Half>(occlFloat16); }
TEST(ReduceTest, EveryBFloat16Stays) { EveryValueStays<oracle::BFloat>(occlBfloat16); }

// A NaN keeps its payload: the bits are those of the lowest path on every other one.
TEST(ReduceTest, PathsAgreeOnTheBitsOfANaN) {
  for (occlDataType_t datatype : {occlFloat16, occlBfloat16}) {
    std::vector<uint16_t> nan, one;
    const uint16_t infinity = datatype == occlFloat16 ? 0x7c00 : 0x7f80;
    for (int i = 0; i < 65536; ++i) {
      const uint16_t bits = static_cast<uint16_t>(i);
      if ((bits & infinity) == infinity && (bits & 0x7fff) != infinity) nan.push_back(bits);
    }
    one.assign(nan.size(), datatype == occlFloat16 ? 0x3c00 : 0x3f80);
    std::vector<std::vector<uint16_t>> results;
    for (CpuPath path : Paths()) {
      Plan plan;
      ASSERT_TRUE(Resolve(datatype, RedKind::kSum, &plan, path).ok());
      results.emplace_back(nan.size());
      void* dst = results.back().data();
      const void* srcs[] = {one.data(), nan.data()};
      reduce::Run(plan, &dst, 1, srcs, 2, nan.size());
      EXPECT_EQ(results.back(), results.front());
    }
  }
}

}  // namespace
}  // namespace occl::reduce
