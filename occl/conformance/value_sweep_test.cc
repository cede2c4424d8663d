// Every operation x datatype x reduce operation x 1..8 ranks x awkward counts, in place and out of
// place, against sequential oracles, to the last bit.
//
// The short form runs by default; OCCL_SWEEP=full takes every count, up to 5 million elements:
//     tools/bazel test //occl/conformance:value_sweep_full
//
// Inputs repeat with a prime period, so that the oracle works out one period and every element is
// still compared; no block, slot or share of the library is a multiple of it.
#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <map>
#include <memory>
#include <mutex>
#include <tuple>
#include <vector>

#include "gtest/gtest.h"
#include "occl/conformance/oracle.h"
#include "occl/conformance/ranks.h"

namespace occl_conformance {
namespace {

constexpr size_t kPeriod = 8191;
constexpr size_t kGuardBytes = 64;
constexpr size_t kLargest = 5'000'000;
constexpr uint8_t kUntouched = 0x5a;

using Bytes = std::vector<uint8_t>;

bool Full() {
  const char* sweep = std::getenv("OCCL_SWEEP");
  return sweep != nullptr && std::strcmp(sweep, "full") == 0;
}

// Calls f.template operator()<T>() with the oracle's type of a datatype that can be reduced.
template <class F>
void WithType(occlDataType_t datatype, F f) {
  switch (datatype) {
    case occlInt8:
      return f.template operator()<int8_t>();
    case occlUint8:
      return f.template operator()<uint8_t>();
    case occlInt16:
      return f.template operator()<int16_t>();
    case occlUint16:
      return f.template operator()<uint16_t>();
    case occlInt32:
      return f.template operator()<int32_t>();
    case occlUint32:
      return f.template operator()<uint32_t>();
    case occlInt64:
      return f.template operator()<int64_t>();
    case occlUint64:
      return f.template operator()<uint64_t>();
    case occlFloat16:
      return f.template operator()<oracle::Half>();
    case occlBfloat16:
      return f.template operator()<oracle::BFloat>();
    case occlFloat32:
      return f.template operator()<float>();
    case occlFloat64:
      return f.template operator()<double>();
    case occlComplex32:
      return f.template operator()<oracle::ComplexHalf>();
    case occlComplex64:
      return f.template operator()<std::complex<float>>();
    case occlComplex128:
      return f.template operator()<std::complex<double>>();
    case occlBool:
      return f.template operator()<oracle::Boolean>();
    default:  // moved only
      return f.template operator()<uint8_t>();
  }
}

double Factor(int rank, int part) { return 0.375 * (rank + 1) - 0.75 * part; }

// The scalar of a rank's pre-multiplied sum, in `datatype`.
Bytes Scalar(occlDataType_t datatype, int rank) {
  Bytes bytes(16);
  WithType(datatype, [&]<class T>() {
    T value{};
    if constexpr (oracle::kIsComplex<T>) {
      using Real = typename T::value_type;
      value = T(static_cast<Real>(Factor(rank, 0)), static_cast<Real>(Factor(rank, 1)));
    } else if constexpr (std::is_same_v<T, oracle::ComplexHalf>) {
      value = {oracle::Half::Nearest(static_cast<float>(Factor(rank, 0))),
               oracle::Half::Nearest(static_cast<float>(Factor(rank, 1)))};
    } else if constexpr (oracle::kIsSmallFloat<T>) {
      value = T::Nearest(static_cast<float>(Factor(rank, 0)));
    } else if constexpr (std::is_floating_point_v<T>) {
      value = static_cast<T>(Factor(rank, 0));
    }
    std::memcpy(bytes.data(), &value, sizeof(value));
  });
  return bytes;
}

// One period of every rank's input and of every result; made once, whoever asks first.
class Values {
 public:
  const Bytes& Input(occlDataType_t datatype, int rank) {
    std::lock_guard<std::mutex> lock(mutex_);
    return InputLocked(datatype, rank);
  }
  const Bytes& Reduced(occlDataType_t datatype, occlRedOp_t op, int nranks) {
    std::lock_guard<std::mutex> lock(mutex_);
    Bytes& out = reduced_[{datatype, op, nranks}];
    if (!out.empty()) return out;
    out.resize(kPeriod * occlDataTypeSize(datatype));
    const bool is_complex = oracle::IsComplex(datatype);
    std::vector<double> scales;
    std::vector<const uint8_t*> inputs;
    for (int r = 0; r < nranks; ++r) {
      inputs.push_back(InputLocked(datatype, r).data());
      for (int part = 0; part < (is_complex ? 2 : 1); ++part) scales.push_back(Factor(r, part));
    }
    const oracle::ReduceArgs args = {scales.data(), static_cast<uint32_t>(nranks)};
    WithType(datatype, [&]<class T>() {
      for (size_t i = 0; i < kPeriod; ++i) {
        const T element = oracle::Element<T>(op, inputs, i, args);
        std::memcpy(&out[i * sizeof(T)], &element, sizeof(T));
      }
    });
    return out;
  }

 private:
  const Bytes& InputLocked(occlDataType_t datatype, int rank) {
    Bytes& bytes = inputs_[{datatype, rank}];
    if (bytes.empty()) {
      bytes.resize(kPeriod * occlDataTypeSize(datatype));
      std::mt19937_64 rng(100 * static_cast<uint64_t>(datatype) + static_cast<uint64_t>(rank));
      WithType(datatype, [&]<class T>() { oracle::FillRandom<T>(rng, bytes.data(), kPeriod); });
    }
    return bytes;
  }

  std::mutex mutex_;
  std::map<std::pair<int, int>, Bytes> inputs_;
  std::map<std::tuple<int, int, int>, Bytes> reduced_;
};

// Calls f(position, first element of the period, elements) for the pieces of [first, first +
// count).
template <class F>
void ForPieces(size_t first, size_t count, F f) {
  for (size_t done = 0; done < count;) {
    const size_t at = (first + done) % kPeriod, n = std::min(count - done, kPeriod - at);
    f(done, at, n);
    done += n;
  }
}

// A rank's buffer with guards on both sides.
class Guarded {
 public:
  explicit Guarded(size_t size_bytes) : memory_(size_bytes + 4 * kGuardBytes) {}

  // Where `size_bytes` of the next case lie: at another multiple of the element size each time.
  void Place(size_t shift, size_t size_bytes) {
    start_ = kGuardBytes + shift;
    size_ = size_bytes;
    std::memset(host() - kGuardBytes, kUntouched, kGuardBytes);
    std::memset(host() + size_, kUntouched, kGuardBytes);
  }
  unsigned char* device() const { return memory_.device_bytes() + start_; }
  unsigned char* host() const { return memory_.host() + start_; }
  void Blank() { std::memset(host(), kUntouched, size_); }
  bool GuardsHold() const {
    const auto holds = [](const unsigned char* p) {
      return std::all_of(p, p + kGuardBytes, [](unsigned char c) { return c == kUntouched; });
    };
    return holds(host() - kGuardBytes) && holds(host() + size_);
  }

 private:
  DeviceBuffer memory_;
  size_t start_ = kGuardBytes;
  size_t size_ = 0;
};

uint64_t Digest(const unsigned char* bytes, size_t size) {
  uint64_t digest = size;
  for (size_t i = 0; i < size; i += 8) {
    uint64_t word = 0;
    std::memcpy(&word, bytes + i, std::min<size_t>(8, size - i));
    digest = (digest ^ word) * 0x9e3779b97f4a7c15u;
    digest ^= digest >> 29;
  }
  return digest;
}

// One rank's run through all cases. All ranks make the same sequence of calls.
class Sweep {
 public:
  Sweep(const Rank& rank, Values* values, std::vector<uint64_t>* digests)
      : rank_(rank),
        n_(static_cast<size_t>(rank.nranks)),
        me_(static_cast<size_t>(rank.rank)),
        values_(*values),
        digests_(*digests),
        send_(BufferBytes()),
        recv_(BufferBytes()) {}

  void Run() {
    for (int t = 0; t < occlNumTypes && !testing::Test::HasFatalFailure(); ++t) {
      type_ = static_cast<occlDataType_t>(t);
      size_ = occlDataTypeSize(type_);
      for (size_t count : Counts()) {
        for (bool in_place : {false, true}) {
          count_ = count;
          in_place_ = in_place;
          root_ = static_cast<int>((count + (in_place ? 1 : 0)) % n_);
          MoveAll();
          for (int op = occlSum; op <= oracle::kPremulSum; ++op) {
            if (oracle::MakesSense(type_, static_cast<occlRedOp_t>(op))) {
              ReduceAll(static_cast<occlRedOp_t>(op));
            }
          }
          if (testing::Test::HasFatalFailure()) return;
        }
      }
    }
  }

 private:
  size_t BufferBytes() const {
    return Full() ? 16 * (kLargest + n_ * n_) : 16 * n_ * 70'000 + 4096;
  }

  // Around every border: nothing, fewer than ranks, primes, where the way of the data changes.
  std::vector<size_t> Counts() const {
    std::vector<size_t> counts = {0, 3, n_ - 1, 1021};
#ifdef __SANITIZE_THREAD__  // 20 times slower: one size has to do
    if (size_ == 4) counts.push_back(65536 / size_ + 1);
#else
    counts.insert(counts.end(), {65536 / size_, 65536 / size_ + 1});
#endif
    std::vector<size_t> borders;
    if (Full()) {
      counts.insert(counts.end(), {1, 2, 5, 7, 17, 257, 4099, 65537, kLargest});
      borders = {24, 2048, 4096, 8192, 16384, 32768, 65536, 131072, 262144};
    }
    for (size_t border : borders) {
      for (size_t parts : {size_t{1}, n_}) {
        const size_t edge = border / size_ / parts;
        for (size_t count : {edge - 1, edge, edge + 1}) {
          if (edge > 0) counts.push_back(count);
        }
      }
    }
    std::sort(counts.begin(), counts.end());
    counts.erase(std::unique(counts.begin(), counts.end()), counts.end());
    return counts;
  }
  // Elements per rank where the buffer is divided: the whole one stays within the buffer.
  size_t Part() const { return count_ > 65'600 ? count_ / n_ : count_; }

  const Bytes& Input(size_t rank) { return values_.Input(type_, static_cast<int>(rank)); }

  void Put(unsigned char* to, const Bytes& period, size_t first, size_t count) {
    ForPieces(first, count, [&](size_t done, size_t at, size_t n) {
      std::memcpy(to + done * size_, &period[at * size_], n * size_);
    });
  }

  void Expect(const unsigned char* found, const Bytes& period, size_t first, size_t count,
              const char* what) {
    ForPieces(first, count, [&](size_t done, size_t at, size_t n) {
      const unsigned char* here = found + done * size_;
      if (std::memcmp(here, &period[at * size_], n * size_) == 0) return;
      WithType(type_, [&]<class T>() {
        for (size_t i = 0; i < n && !testing::Test::HasFatalFailure(); ++i) {
          const T got = oracle::Load<T>(here + i * sizeof(T));
          const T wanted = oracle::Load<T>(&period[(at + i) * sizeof(T)]);
          if (!oracle::Same(got, wanted)) Report(what, done + i, count);
        }
      });
    });
  }
  void Report(const char* what, size_t index, size_t count) {
    FAIL() << what << ", datatype " << type_ << ", operation " << op_ << ", rank " << me_ << " of "
           << n_ << ", count " << count_ << (in_place_ ? ", in place" : "") << ", root " << root_
           << ": element " << index << " of " << count << " is wrong";
  }

  void Untouched(const unsigned char* found, size_t bytes, const char* what) {
    for (size_t i = 0; i < bytes; ++i) {
      if (found[i] != kUntouched) return Report(what, i / size_, bytes / size_);
    }
  }

  // Both buffers for `send` and `recv` elements; the send buffer holds this rank's input.
  void Prepare(size_t send, size_t recv) {
    ++cases_;
    send_.Place(cases_ % 4 * size_, send * size_);
    recv_.Place((cases_ + 1) % 3 * size_, recv * size_);
    Put(send_.host(), Input(me_), 0, send);
    if (in_place_) return;
    recv_.Blank();
  }
  void Finish(occlResult_t issued, const char* what) {
    ASSERT_EQ(issued, occlSuccess) << what << ": " << occlGetLastError(nullptr);
    ASSERT_EQ(orStreamSynchronizeTimeout(rank_.stream, 60'000), orSuccess) << what;
    occlResult_t error = occlSuccess;
    ASSERT_EQ(occlCommGetAsyncError(rank_.comm, &error), occlSuccess);
    ASSERT_EQ(error, occlSuccess) << what << ": " << occlGetLastError(rank_.comm);
    if (!send_.GuardsHold() || !recv_.GuardsHold()) Report(what, count_, count_);
  }

  void MoveAll() {
    Broadcast();
    AllGather();
    GatherAndScatter();
    Uneven();
    Messages();
    if (!in_place_) AllToAll();
  }

  void Broadcast() {
    Prepare(count_, count_);
    unsigned char* const from = in_place_ ? recv_.device() : send_.device();
    if (in_place_) Put(recv_.host(), Input(me_), 0, count_);
    Finish(occlBroadcast(from, recv_.device(), count_, type_, root_, rank_.comm, rank_.stream,
                         nullptr),
           "broadcast");
    Expect(recv_.host(), Input(static_cast<size_t>(root_)), 0, count_, "broadcast");
  }

  void AllGather() {
    const size_t part = Part();
    Prepare(part, n_ * part);
    const size_t own = me_ * part * size_;
    if (in_place_) std::memcpy(recv_.host() + own, send_.host(), part * size_);
    Finish(occlAllGather(in_place_ ? recv_.device() + own : send_.device(), recv_.device(), part,
                         type_, rank_.comm, rank_.stream, nullptr),
           "all_gather");
    for (size_t r = 0; r < n_; ++r) {
      Expect(recv_.host() + r * part * size_, Input(r), 0, part, "all_gather");
    }
  }

  void GatherAndScatter() {
    const size_t part = Part(), own = me_ * part * size_;
    const bool is_root = rank_.rank == root_, in_place = in_place_ && is_root;
    Prepare(part, n_ * part);
    recv_.Blank();
    if (in_place) std::memcpy(recv_.host() + own, send_.host(), part * size_);
    Finish(occlGather(in_place ? recv_.device() + own : send_.device(),
                      is_root ? recv_.device() : nullptr, part, type_, root_, rank_.comm,
                      rank_.stream, nullptr),
           "gather");
    for (size_t r = 0; is_root && r < n_; ++r) {
      Expect(recv_.host() + r * part * size_, Input(r), 0, part, "gather");
    }
    if (!is_root) Untouched(recv_.host(), n_ * part * size_, "gather");

    Prepare(n_ * part, part);
    recv_.Blank();
    unsigned char* const to = in_place ? send_.device() + own : recv_.device();
    Finish(occlScatter(is_root ? send_.device() : nullptr, to, part, type_, root_, rank_.comm,
                       rank_.stream, nullptr),
           "scatter");
    Expect(in_place ? send_.host() + own : recv_.host(), Input(static_cast<size_t>(root_)),
           me_ * part, part, "scatter");
  }

  // Rank r has Uneven(r) elements: sizes differ, one is empty.
  size_t UnevenCount(size_t r) const {
    const size_t part = Part();
    return r + 1 == n_ && n_ > 1 ? 0 : part - std::min(part, r % 3);
  }
  struct Layout {
    std::vector<size_t> counts, starts;
    std::vector<void*> pointers;
    size_t total = 0;
  };
  Layout LayOut() const {
    Layout layout;
    for (size_t r = 0; r < n_; ++r) {
      layout.counts.push_back(UnevenCount(r));
      layout.starts.push_back(layout.total);
      layout.total += UnevenCount(r);
    }
    return layout;
  }
  void Point(Layout* layout, unsigned char* base) const {
    layout->pointers.clear();
    for (size_t start : layout->starts) layout->pointers.push_back(base + start * size_);
  }

  void Uneven() {
    Layout layout = LayOut();
    const size_t own = layout.counts[me_], own_at = layout.starts[me_] * size_;
    const bool is_root = rank_.rank == root_;
    for (const bool all : {true, false}) {
      Prepare(own, layout.total);
      recv_.Blank();
      Point(&layout, recv_.device());
      const bool in_place = in_place_ && (all || is_root);
      if (in_place) std::memcpy(recv_.host() + own_at, send_.host(), own * size_);
      unsigned char* const from = in_place ? recv_.device() + own_at : send_.device();
      Finish(all ? occlAllGatherv(from, layout.pointers.data(), layout.counts.data(), type_,
                                  rank_.comm, rank_.stream, nullptr)
                 : occlGatherv(from, own, layout.pointers.data(), layout.counts.data(), type_,
                               root_, rank_.comm, rank_.stream, nullptr),
             all ? "all_gatherv" : "gatherv");
      for (size_t r = 0; (all || is_root) && r < n_; ++r) {
        Expect(recv_.host() + layout.starts[r] * size_, Input(r), 0, layout.counts[r],
               all ? "all_gatherv" : "gatherv");
      }
    }
    Prepare(layout.total, own);
    recv_.Blank();
    Point(&layout, send_.device());
    const bool in_place = in_place_ && is_root;
    Finish(occlScatterv(layout.pointers.data(), layout.counts.data(),
                        in_place ? send_.device() + own_at : recv_.device(), own, type_, root_,
                        rank_.comm, rank_.stream, nullptr),
           "scatterv");
    Expect(in_place ? send_.host() + own_at : recv_.host(), Input(static_cast<size_t>(root_)),
           layout.starts[me_], own, "scatterv");
  }

  // In a ring: to the next rank, from the one before; with one rank, to itself.
  void Messages() {
    Prepare(count_, count_);
    recv_.Blank();
    const int next = static_cast<int>((me_ + 1) % n_), last = static_cast<int>((me_ + n_ - 1) % n_);
    ASSERT_EQ(occlGroupStart(), occlSuccess);
    EXPECT_EQ(occlRecv(recv_.device(), count_, type_, in_place_ ? OCCL_ANY_SOURCE : last, 7,
                       rank_.comm, rank_.stream, nullptr),
              occlSuccess);
    EXPECT_EQ(occlSend(send_.device(), count_, type_, next, 7, rank_.comm, rank_.stream, nullptr),
              occlSuccess);
    Finish(occlGroupEnd(), "send/recv");
    Expect(recv_.host(), Input(static_cast<size_t>(last)), 0, count_, "send/recv");
  }

  void AllToAll() {
    const size_t part = Part();
    Prepare(n_ * part, n_ * part);
    Finish(occlAllToAll(send_.device(), recv_.device(), part, type_, rank_.comm, rank_.stream,
                        nullptr),
           "all_to_all");
    for (size_t r = 0; r < n_; ++r) {
      Expect(recv_.host() + r * part * size_, Input(r), me_ * part, part, "all_to_all");
    }
    // From r to s: the part of s, less one for each odd sender.
    const auto pair = [&](size_t r, size_t s) {
      return UnevenCount(s) - std::min(UnevenCount(s), r % 2);
    };
    std::vector<size_t> sends(n_), recvs(n_);
    std::vector<const void*> from(n_);
    std::vector<void*> to(n_);
    Prepare(n_ * part, n_ * part);
    for (size_t r = 0; r < n_; ++r) {
      sends[r] = pair(me_, r);
      recvs[r] = pair(r, me_);
      from[r] = send_.device() + r * part * size_;
      to[r] = recv_.device() + r * part * size_;
    }
    Finish(occlAllToAllv(from.data(), sends.data(), to.data(), recvs.data(), type_, rank_.comm,
                         rank_.stream, nullptr),
           "all_to_allv");
    for (size_t r = 0; r < n_; ++r) {
      unsigned char* const block = recv_.host() + r * part * size_;
      Expect(block, Input(r), me_ * part, recvs[r], "all_to_allv");
      Untouched(block + recvs[r] * size_, (part - recvs[r]) * size_, "all_to_allv");
    }
  }

  void ReduceAll(occlRedOp_t op) {
    op_ = op;
    if (op == oracle::kPremulSum) {
      const Bytes scalar = Scalar(type_, rank_.rank);
      ASSERT_EQ(occlRedOpCreatePreMulSum(&op, scalar.data(), type_, rank_.comm), occlSuccess);
    }
    const Bytes& sums = values_.Reduced(type_, op_, rank_.nranks);
    AllReduce(op, sums);
    ReduceToRoot(op, sums);
    ReduceScatter(op, sums);
    if (op_ == oracle::kPremulSum) {
      ASSERT_EQ(occlRedOpDestroy(op, rank_.comm), occlSuccess);
    }
  }

  void AllReduce(occlRedOp_t op, const Bytes& sums) {
    Prepare(count_, count_);
    const Guarded& result = in_place_ ? send_ : recv_;
    Finish(occlAllReduce(send_.device(), result.device(), count_, type_, op, rank_.comm,
                         rank_.stream, nullptr),
           "all_reduce");
    Expect(result.host(), sums, 0, count_, "all_reduce");
    digests_.push_back(Digest(result.host(), count_ * size_));
  }

  void ReduceToRoot(occlRedOp_t op, const Bytes& sums) {
    Prepare(count_, count_);
    recv_.Blank();
    const bool is_root = rank_.rank == root_;
    const Guarded& result = in_place_ ? send_ : recv_;
    Finish(occlReduce(send_.device(), is_root ? result.device() : nullptr, count_, type_, op, root_,
                      rank_.comm, rank_.stream, nullptr),
           "reduce");
    if (is_root) Expect(result.host(), sums, 0, count_, "reduce");
    if (!is_root) Expect(send_.host(), Input(me_), 0, count_, "reduce");
    if (!is_root || in_place_) Untouched(recv_.host(), count_ * size_, "reduce");
  }

  void ReduceScatter(occlRedOp_t op, const Bytes& sums) {
    const size_t part = Part(), own = me_ * part;
    Prepare(n_ * part, part);
    unsigned char* to = in_place_ ? send_.device() + own * size_ : recv_.device();
    Finish(
        occlReduceScatter(send_.device(), to, part, type_, op, rank_.comm, rank_.stream, nullptr),
        "reduce_scatter");
    Expect(in_place_ ? send_.host() + own * size_ : recv_.host(), sums, own, part,
           "reduce_scatter");

    Layout layout = LayOut();
    const size_t count = layout.counts[me_], own_at = layout.starts[me_];
    Prepare(layout.total, count);
    Point(&layout, send_.device());
    to = in_place_ ? send_.device() + own_at * size_ : recv_.device();
    Finish(occlReduceScatterv(layout.pointers.data(), to, layout.counts.data(), type_, op,
                              rank_.comm, rank_.stream, nullptr),
           "reduce_scatterv");
    Expect(in_place_ ? send_.host() + own_at * size_ : recv_.host(), sums, own_at, count,
           "reduce_scatterv");
  }

  const Rank& rank_;
  const size_t n_, me_;
  Values& values_;
  std::vector<uint64_t>& digests_;
  Guarded send_, recv_;
  occlDataType_t type_ = occlInt8;
  size_t size_ = 1;
  size_t count_ = 0;
  bool in_place_ = false;
  int root_ = 0;
  occlRedOp_t op_ = occlSum;
  size_t cases_ = 0;
};

class ValueSweep : public testing::TestWithParam<int> {};

TEST_P(ValueSweep, EveryResultEqualsTheOracles) {
  Values values;
  std::vector<std::vector<uint64_t>> digests(static_cast<size_t>(GetParam()));
  RankOptions options;
  options.timeout_ms = 60'000;
  RunThreads(
      GetParam(),
      [&](const Rank& rank) {
        Sweep(rank, &values, &digests[static_cast<size_t>(rank.rank)]).Run();
      },
      options);
  // The oracle leaves the bits of a NaN open; that all ranks have the same is part of the contract.
  for (const auto& of_rank : digests) EXPECT_EQ(of_rank, digests[0]);
}

INSTANTIATE_TEST_SUITE_P(Ranks, ValueSweep, testing::Range(1, 9));

}  // namespace
}  // namespace occl_conformance
