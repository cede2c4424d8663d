// The C++ header, used by ranks that are threads.
#include <functional>
#include <numeric>
#include <thread>

#include "gtest/gtest.h"
#include "occl/api/occl.hpp"

namespace {

const occl::Config kConfig = {.timeout_ms = 60000, .init_timeout_ms = 60000};

// Runs body(communicator) on nranks threads, each with a device of its own: on one stream, the
// ranks' operations would wait for each other in its order.
void Ranks(int nranks, const std::function<void(const occl::Communicator&)>& body) {
  const occlUniqueId id = occl::GetUniqueId();
  std::vector<std::thread> threads;
  for (int rank = 0; rank < nranks; ++rank) {
    threads.emplace_back([&, rank] {
      try {
        ASSERT_EQ(orSetDevice(rank), orSuccess);
        const occl::Communicator comm(nranks, id, rank, kConfig);
        body(comm);
        comm.Finalize();
      } catch (const std::exception& e) {
        ADD_FAILURE() << "rank " << rank << ": " << e.what();
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
}

template <class T>
occl::DeviceBuffer<T> OnDevice(const std::vector<T>& values) {
  occl::DeviceBuffer<T> buffer(values.size());
  EXPECT_EQ(orMemcpy(buffer.data(), values.data(), values.size() * sizeof(T), orMemcpyHostToDevice),
            orSuccess);
  return buffer;
}
template <class T>
std::vector<T> OnHost(std::span<T> device) {
  std::vector<T> values(device.size());
  EXPECT_EQ(orMemcpy(values.data(), device.data(), device.size_bytes(), orMemcpyDeviceToHost),
            orSuccess);
  return values;
}
using Floats = std::vector<float>;

TEST(OcclHppTest, CollectivesMoveSpans) {
  Ranks(3, [](const occl::Communicator& comm) {
    const float r = static_cast<float>(comm.rank());
    EXPECT_EQ(comm.size(), 3);
    const auto own = OnDevice(Floats{r, r + 1, r + 2});
    occl::DeviceBuffer<float> three(3), nine(9), one(1);

    comm.AllReduce(own.span(), three.span());
    EXPECT_EQ(OnHost(three.span()), (Floats{3, 6, 9}));
    comm.AllReduce(own.span(), three.span(), occlMax);
    EXPECT_EQ(OnHost(three.span()), (Floats{2, 3, 4}));
    comm.Broadcast(comm.rank() == 1 ? own.span() : std::span<float>(), three.span(), 1);
    EXPECT_EQ(OnHost(three.span()), (Floats{1, 2, 3}));
    comm.AllGather(own.span(), nine.span());
    EXPECT_EQ(OnHost(nine.span()), (Floats{0, 1, 2, 1, 2, 3, 2, 3, 4}));
    comm.ReduceScatter(own.span(), one.span());
    EXPECT_EQ(OnHost(one.span()), (Floats{3 + 3 * r}));
    comm.AllToAll(own.span(), three.span());
    EXPECT_EQ(OnHost(three.span()), (Floats{r, r + 1, r + 2}));
    comm.Reduce(own.span(), comm.rank() == 2 ? three.span() : std::span<float>(), occlSum, 2);
    if (comm.rank() == 2) {
      EXPECT_EQ(OnHost(three.span()), (Floats{3, 6, 9}));
    }
    comm.Gather(own.span(), comm.rank() == 0 ? nine.span() : std::span<float>(), 0);
    if (comm.rank() == 0) {
      EXPECT_EQ(OnHost(nine.span()), (Floats{0, 1, 2, 1, 2, 3, 2, 3, 4}));
    }
    comm.Scatter(comm.rank() == 0 ? own.span() : std::span<float>(), one.span(), 0);
    EXPECT_EQ(OnHost(one.span()), Floats{r});
    comm.Barrier();
  });
}

TEST(OcclHppTest, PartsMayBeUneven) {
  Ranks(2, [](const occl::Communicator& comm) {
    const size_t rank = static_cast<size_t>(comm.rank());
    const auto own = OnDevice(std::vector<int32_t>(rank + 1, comm.rank() + 5));
    occl::DeviceBuffer<int32_t> three(3);
    const std::span<int32_t> all = three.span();
    const std::vector<std::span<int32_t>> gathered = {all.first(1), all.subspan(1, 2)};
    comm.AllGatherv<int32_t>(own.span(), gathered);
    EXPECT_EQ(OnHost(all), (std::vector<int32_t>{5, 6, 6}));

    // Rank r sends r + 1 elements to each rank.
    const std::vector<std::span<const int32_t>> sent = {own.span(), own.span()};
    comm.AllToAllv<int32_t>(sent, gathered);
    EXPECT_EQ(OnHost(all), (std::vector<int32_t>{5, 6, 6}));

    const bool root = comm.rank() == 1;
    const std::vector<std::span<int32_t>> none;
    comm.Gatherv<int32_t>(own.span(), root ? gathered : none, 1);
    if (root) {
      EXPECT_EQ(OnHost(all), (std::vector<int32_t>{5, 6, 6}));
    }

    // Rank 0 gets one element, rank 1 the next two.
    const auto three_own = OnDevice(std::vector<int32_t>{1, 2 + comm.rank(), 3});
    const std::vector<std::span<const int32_t>> shares = {three_own.span().first(1),
                                                          three_own.span().subspan(1, 2)};
    const std::vector<int32_t> sums[] = {{2}, {5, 6}}, from_root[] = {{1}, {3, 3}};
    const std::span<int32_t> own_share = all.first(rank + 1);
    comm.ReduceScatterv<int32_t>(shares, own_share);
    EXPECT_EQ(OnHost(own_share), sums[rank]);
    const std::vector<std::span<const int32_t>> no_shares;
    comm.Scatterv<int32_t>(root ? shares : no_shares, own_share, 1);
    EXPECT_EQ(OnHost(own_share), from_root[rank]);
  });
}

TEST(OcclHppTest, MessagesInAGroupTellTheirSource) {
  Ranks(2, [](const occl::Communicator& comm) {
    const auto own = OnDevice(std::vector<int64_t>{comm.rank() * int64_t{100}});
    occl::DeviceBuffer<int64_t> got(1);
    occl::Request request;
    occl::Group([&] {
      comm.Send(own.span(), 1 - comm.rank(), 7);
      comm.Recv(got.span(), OCCL_ANY_SOURCE, 7, {.request = &request});
    });
    request.Wait(std::chrono::seconds(60));
    EXPECT_TRUE(request.Test());
    EXPECT_EQ(request.Source(), 1 - comm.rank());
    EXPECT_EQ(OnHost(got.span())[0], (1 - comm.rank()) * 100);
  });
}

TEST(OcclHppTest, SplitMakesOneCommunicatorPerColor) {
  Ranks(4, [](const occl::Communicator& comm) {
    // Rank 3 stays out; among the others the keys turn the order round.
    const bool out = comm.rank() == 3;
    const occl::Communicator part =
        comm.Split(out ? OCCL_SPLIT_NOCOLOR : 0, -comm.rank(), {.name = "part"});
    EXPECT_EQ(static_cast<bool>(part), !out);
    if (out) return;
    EXPECT_EQ(part.size(), 3);
    EXPECT_EQ(part.rank(), 2 - comm.rank());
    const auto own = OnDevice(std::vector<int32_t>{10 * comm.rank()});
    occl::DeviceBuffer<int32_t> all(3);
    part.AllGather(own.span(), all.span());
    EXPECT_EQ(OnHost(all.span()), (std::vector<int32_t>{20, 10, 0}));
    part.Finalize();
  });
}

TEST(OcclHppTest, ShrinkLeavesTheExcludedOut) {
  std::vector<std::thread> threads;
  const occlUniqueId id = occl::GetUniqueId();
  for (int rank = 0; rank < 3; ++rank) {
    threads.emplace_back([&, rank] {
      try {
        ASSERT_EQ(orSetDevice(rank), orSuccess);
        const occl::Communicator comm(3, id, rank, kConfig);
        if (rank == 1) return;  // excluded, and gone
        const int excluded[] = {1};
        const occl::Communicator rest = comm.Shrink(excluded, OCCL_SHRINK_ABORT);
        EXPECT_EQ(comm.AsyncError(), occlAborted);
        EXPECT_EQ(rest.size(), 2);
        EXPECT_EQ(rest.rank(), rank / 2);
        const auto own = OnDevice(Floats{static_cast<float>(rank + 1)});
        occl::DeviceBuffer<float> sum(1);
        rest.AllReduce(own.span(), sum.span());
        EXPECT_EQ(OnHost(sum.span()), Floats{4});
        rest.Finalize();
      } catch (const std::exception& e) {
        ADD_FAILURE() << "rank " << rank << ": " << e.what();
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
}

TEST(OcclHppTest, SizesThatDoNotFitThrowBeforeAnythingIsSent) {
  Ranks(1, [](const occl::Communicator& comm) {
    occl::DeviceBuffer<float> three(3), two(2);
    const auto refuses = [](const std::function<void()>& call) {
      try {
        call();
        ADD_FAILURE() << "not refused";
      } catch (const occl::CallError& e) {
        EXPECT_EQ(e.result(), occlInvalidArgument);
      }
    };
    refuses([&] { comm.AllReduce(three.span(), two.span()); });
    refuses([&] { comm.AllGather(three.span(), two.span()); });
    const std::vector<std::span<float>> no_parts;
    const std::vector<std::span<const float>> one_part = {three.span()};
    refuses([&] { comm.Gatherv<float>(three.span(), no_parts, 0); });
    refuses([&] { comm.Scatterv<float>({}, three.span(), 0); });
    refuses([&] { comm.ReduceScatterv<float>(one_part, two.span()); });
    refuses([&] { comm.Broadcast(three.span(), three.span(), 5); });
    EXPECT_EQ(comm.AsyncError(), occlSuccess);
  });
}

TEST(OcclHppTest, HandlesMove) {
  occl::Communicator empty;
  EXPECT_FALSE(empty);
  occl::Communicator first(1, occl::GetUniqueId(), 0, kConfig);
  occl::Communicator second = std::move(first);
  EXPECT_FALSE(first);
  EXPECT_TRUE(second);
  occl::DeviceBuffer<double> a(4);
  const double* data = a.data();
  const occl::DeviceBuffer<double> b = std::move(a);
  EXPECT_EQ(b.data(), data);
  EXPECT_EQ(a.size(), 0u);
  second.Finalize();
}

}  // namespace
