// What the runtime's own operations cost. Run by hand, on a machine that is quiet:
//   tools/bazel run -c opt //openreg/bench:runtime_bench
// Each line is the best and the median of several batches. Nothing is asserted.
#include <time.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <thread>
#include <vector>

#include "openreg/api/openreg.h"

namespace {

constexpr int kBatches = 15;

void Check(orError_t error, const char* call) {
  if (error == orSuccess) return;
  std::fprintf(stderr, "%s: %s: %s\n", call, orGetErrorName(error), orGetLastErrorMessage());
  std::exit(1);
}
#define CHECK(call) Check((call), #call)

double Seconds() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

double CpuSeconds() {
  timespec now;
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &now);
  return static_cast<double>(now.tv_sec) + static_cast<double>(now.tv_nsec) * 1e-9;
}

struct Result {
  double best, median;
};

// Seconds of one call of body, which is called `count` times a batch.
template <class F>
Result Time(int count, F body) {
  body();
  std::vector<double> batches;
  for (int i = 0; i < kBatches; ++i) {
    double start = Seconds();
    for (int j = 0; j < count; ++j) body();
    batches.push_back((Seconds() - start) / count);
  }
  std::sort(batches.begin(), batches.end());
  return {batches.front(), batches[batches.size() / 2]};
}

template <class F>
void Report(const char* name, int count, F body) {
  Result result = Time(count, body);
  std::printf("%-44s %9.1f %9.1f ns\n", name, result.best * 1e9, result.median * 1e9);
}

orError_t Nothing(void*) { return orSuccess; }

void Allocation() {
  std::printf("\nallocation and free                         best    median\n");
  for (size_t size : {size_t{512}, size_t{1000}, size_t{60000}, size_t{1} << 20, size_t{8} << 20}) {
    char name[64];
    std::snprintf(name, sizeof name, "orMallocAsync + orFreeAsync, %zu bytes", size);
    Report(name, 20000, [size] {
      void* ptr;
      orMallocAsync(&ptr, size, nullptr);
      orFreeAsync(ptr);
    });
  }
  Report("malloc + free, 1000 bytes", 20000, [] {
    void* volatile ptr = std::malloc(1000);
    std::free(ptr);
  });
  Report("orMalloc + orFree, 1000 bytes", 20000, [] {
    void* ptr;
    orMalloc(&ptr, 1000);
    orFree(ptr);
  });
  Report("100 blocks of 3000 bytes, one after another", 200, [] {
    void* blocks[100];
    for (void*& ptr : blocks) orMallocAsync(&ptr, 3000, nullptr);
    for (void* ptr : blocks) orFreeAsync(ptr);
  });
  void* ptr;
  CHECK(orMallocAsync(&ptr, 100000, nullptr));
  Report("orPointerGetAttributes", 20000, [ptr] {
    orPointerAttributes attributes;
    orPointerGetAttributes(&attributes, static_cast<char*>(ptr) + 50000);
  });
  CHECK(orFreeAsync(ptr));
}

void Threads() {
  std::printf("\nthreads that allocate and free 1000 bytes at once on one stream\n");
  for (unsigned count : {1u, 2u, 4u, 8u}) {
    constexpr int kPairs = 200000;
    double start = CpuSeconds();
    std::vector<std::thread> threads;
    for (unsigned t = 0; t < count; ++t) {
      threads.emplace_back([] {
        for (int i = 0; i < kPairs; ++i) {
          void* ptr;
          orMallocAsync(&ptr, 1000, nullptr);
          orFreeAsync(ptr);
        }
      });
    }
    for (std::thread& thread : threads) thread.join();
    // Processor time, so that it does not matter how many cores there are.
    std::printf("%u threads: %.1f ns per pair\n", count,
                (CpuSeconds() - start) / kPairs / count * 1e9);
  }
}

void Streams() {
  orStream_t stream;
  CHECK(orStreamCreate(&stream));
  std::printf("\nstreams                                     best    median\n");
  Report("orStreamTryAcquire + orStreamRelease", 20000, [stream] {
    orStreamTryAcquire(stream, "x");
    orStreamRelease(stream);
  });
  Report("orLaunchKernel, empty stream", 20000,
         [stream] { orLaunchKernel("x", Nothing, nullptr, stream); });
  Report("orStreamQuery", 20000, [stream] { orStreamQuery(stream); });
  Report("queue 100 kernels and synchronise", 20, [stream] {
    for (int i = 0; i < 100; ++i) orLaunchKernelQueued("x", Nothing, nullptr, stream);
    orStreamSynchronize(stream);
  });
  Report("queue one kernel and synchronise", 500, [stream] {
    orLaunchKernelQueued("x", Nothing, nullptr, stream);
    orStreamSynchronize(stream);
  });
  orEvent_t timed, untimed;
  CHECK(orEventCreate(&timed));
  CHECK(orEventCreateWithFlags(&untimed, orEventDisableTiming));
  std::printf("\nevents                                      best    median\n");
  Report("orEventRecord, empty stream, no timing", 20000, [=] { orEventRecord(untimed, stream); });
  Report("orEventRecord, empty stream, timing", 20000, [=] { orEventRecord(timed, stream); });
  Report("orStreamWaitEvent, complete", 20000, [=] { orStreamWaitEvent(nullptr, untimed); });
  Report("orEventQuery", 20000, [=] { orEventQuery(untimed); });
  Report("orEventCreate + orEventDestroy", 20000, [] {
    orEvent_t event;
    orEventCreate(&event);
    orEventDestroy(event);
  });
  orEventDestroy(timed);
  orEventDestroy(untimed);
  CHECK(orStreamDestroy(stream));
}

// Copies and memcpy take turns, so that both see the same noise.
void Copies() {
  std::printf("\ncopies, GB/s (best)   memcpy      HtoD      DtoH      DtoD  pinned, async\n");
  ptrdiff_t delta;
  CHECK(orGetKernelDelta(&delta));
  for (size_t size :
       {size_t{4} << 10, size_t{64} << 10, size_t{1} << 20, size_t{16} << 20, size_t{128} << 20}) {
    std::vector<char> source(size, 1), target(size, 2);
    void *first, *second, *pinned;
    CHECK(orMalloc(&first, size));
    CHECK(orMalloc(&second, size));
    CHECK(orHostAlloc(&pinned, size));
    std::memset(pinned, 3, size);
    CHECK(orMemset(first, 1, size));
    CHECK(orMemset(second, 1, size));
    const std::function<void()> ways[] = {
        [&] { std::memcpy(target.data(), source.data(), size); },
        [&] { orMemcpy(first, source.data(), size, orMemcpyHostToDevice); },
        [&] { orMemcpy(target.data(), first, size, orMemcpyDeviceToHost); },
        [&] { orMemcpy(second, first, size, orMemcpyDeviceToDevice); },
        [&] {
          orMemcpyAsync(first, pinned, size, orMemcpyHostToDevice, nullptr);
          orStreamSynchronize(nullptr);
        },
    };
    double best[5] = {1e9, 1e9, 1e9, 1e9, 1e9};
    int count = static_cast<int>(std::max<size_t>(1, (size_t{8} << 20) / size));
    for (int round = 0; round < 12; ++round) {
      for (int way = 0; way < 5; ++way) {
        double start = Seconds();
        for (int i = 0; i < count; ++i) ways[way]();
        best[way] = std::min(best[way], (Seconds() - start) / count);
      }
    }
    std::printf("%9zu KB", size >> 10);
    for (double seconds : best) std::printf("%10.2f", static_cast<double>(size) / seconds * 1e-9);
    std::printf("\n");
    CHECK(orFree(first));
    CHECK(orFree(second));
    CHECK(orHostFree(pinned));
  }
}

}  // namespace

int main() {
  Allocation();
  Threads();
  Streams();
  Copies();
  return 0;
}
