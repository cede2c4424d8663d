#include "occl/conformance/ranks.h"

#include <limits.h>
#include <pthread.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <thread>

#include "gtest/gtest.h"

namespace occl_conformance {

occlStore_t MemoryStore::AsStore() { return {this, &Set, &Get, &Add}; }

occlResult_t MemoryStore::Set(void* context, const char* key, const void* value, size_t size) {
  auto* store = static_cast<MemoryStore*>(context);
  std::lock_guard<std::mutex> lock(store->mutex_);
  store->values_[key].assign(static_cast<const char*>(value), size);
  store->changed_.notify_all();
  return occlSuccess;
}

occlResult_t MemoryStore::Get(void* context, const char* key, void* value, size_t capacity,
                              size_t* size, int64_t timeout_ms) {
  auto* store = static_cast<MemoryStore*>(context);
  std::unique_lock<std::mutex> lock(store->mutex_);
  const auto there = [&] { return store->values_.count(key) > 0; };
  const auto limit = std::chrono::milliseconds(timeout_ms < 0 ? 600'000 : timeout_ms);
  if (!store->changed_.wait_for(lock, limit, there)) return occlTimeout;
  const std::string& found = store->values_[key];
  if (found.size() > capacity) return occlInternalError;
  std::memcpy(value, found.data(), found.size());
  *size = found.size();
  return occlSuccess;
}

occlResult_t MemoryStore::Add(void* context, const char* key, int64_t delta, int64_t* sum) {
  auto* store = static_cast<MemoryStore*>(context);
  std::lock_guard<std::mutex> lock(store->mutex_);
  *sum = store->numbers_[key] += delta;
  return occlSuccess;
}

struct SharedStore::Content {
  static constexpr size_t kPlaces = 256, kKeyBytes = 160, kValueBytes = 4096;
  struct Place {
    char key[kKeyBytes];  // "": free
    size_t size;
    int64_t number;
    bool is_set;
    unsigned char value[kValueBytes];
  };
  pthread_mutex_t mutex;
  Place places[kPlaces];

  // Of a rank that was killed, it is taken over.
  void Lock() {
    if (pthread_mutex_lock(&mutex) == EOWNERDEAD) pthread_mutex_consistent(&mutex);
  }
  void Unlock() { pthread_mutex_unlock(&mutex); }
  Place* Find(const char* key) {
    for (Place& place : places) {
      if (place.key[0] == '\0') std::snprintf(place.key, sizeof(place.key), "%s", key);
      if (std::strcmp(place.key, key) == 0) return &place;
    }
    std::abort();
  }
};

SharedStore::SharedStore() {
  void* const memory =
      mmap(nullptr, sizeof(Content), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  if (memory == MAP_FAILED) std::abort();
  content_ = static_cast<Content*>(memory);
  pthread_mutexattr_t attributes;
  pthread_mutexattr_init(&attributes);
  pthread_mutexattr_setpshared(&attributes, PTHREAD_PROCESS_SHARED);
  pthread_mutexattr_setrobust(&attributes, PTHREAD_MUTEX_ROBUST);
  pthread_mutex_init(&content_->mutex, &attributes);
  pthread_mutexattr_destroy(&attributes);
}

SharedStore::~SharedStore() { munmap(content_, sizeof(Content)); }

occlStore_t SharedStore::AsStore() { return {this, &Set, &Get, &Add}; }

void SharedStore::Tell(const std::string& mark) { Set(this, mark.c_str(), "1", 1); }

bool SharedStore::Await(const std::string& mark, int64_t timeout_ms) {
  char value;
  size_t size;
  return Get(this, mark.c_str(), &value, 1, &size, timeout_ms) == occlSuccess;
}

occlResult_t SharedStore::Set(void* context, const char* key, const void* value, size_t size) {
  Content* const content = static_cast<SharedStore*>(context)->content_;
  if (size > Content::kValueBytes) return occlInvalidArgument;
  content->Lock();
  Content::Place* const place = content->Find(key);
  std::memcpy(place->value, value, size);
  place->size = size;
  place->is_set = true;
  content->Unlock();
  return occlSuccess;
}

occlResult_t SharedStore::Get(void* context, const char* key, void* value, size_t capacity,
                              size_t* size, int64_t timeout_ms) {
  Content* const content = static_cast<SharedStore*>(context)->content_;
  const int64_t end_ms = NowMs() + (timeout_ms < 0 ? 600'000 : timeout_ms);
  while (true) {
    content->Lock();
    Content::Place* const place = content->Find(key);
    const bool found = place->is_set && place->size <= capacity;
    if (found) {
      std::memcpy(value, place->value, place->size);
      *size = place->size;
    }
    content->Unlock();
    if (found) return occlSuccess;
    if (NowMs() >= end_ms) return occlTimeout;
    usleep(500);
  }
}

occlResult_t SharedStore::Add(void* context, const char* key, int64_t delta, int64_t* sum) {
  Content* const content = static_cast<SharedStore*>(context)->content_;
  content->Lock();
  *sum = content->Find(key)->number += delta;
  content->Unlock();
  return occlSuccess;
}

void RunThreads(int nranks, const std::function<void(const Rank&)>& body,
                const RankOptions& options) {
  MemoryStore memory;
  const occlStore_t store = memory.AsStore();
  std::vector<std::thread> threads;
  for (int r = 0; r < nranks; ++r) {
    threads.emplace_back([&, r] {
      int devices = 1;
      ASSERT_EQ(orGetDeviceCount(&devices), orSuccess);
      ASSERT_EQ(orSetDevice(options.own_devices ? r % devices : 0), orSuccess);
      Rank rank = {r, nranks, nullptr, nullptr};
      ASSERT_EQ(orStreamCreate(&rank.stream), orSuccess);
      occlConfig_t config = OCCL_CONFIG_INITIALIZER;
      config.timeout_ms = options.timeout_ms;
      config.initTimeout_ms = 60'000;
      config.name = "test";
      config.early = options.early ? 1 : 0;
      ASSERT_EQ(occlCommInitRankStore(&rank.comm, nranks, r, &store, &config), occlSuccess)
          << occlGetLastError(nullptr);
      body(rank);
      EXPECT_EQ(occlCommDestroy(rank.comm), occlSuccess);
      EXPECT_EQ(orStreamDestroy(rank.stream), orSuccess);
    });
  }
  for (std::thread& thread : threads) thread.join();
}

DeviceBuffer::DeviceBuffer(size_t size_bytes) {
  ptrdiff_t delta = 0;
  EXPECT_EQ(orGetKernelDelta(&delta), orSuccess);
  EXPECT_EQ(orMalloc(&device_, size_bytes > 0 ? size_bytes : 1), orSuccess)
      << orGetLastErrorMessage();
  host_ = static_cast<unsigned char*>(device_) + delta;
}

DeviceBuffer::~DeviceBuffer() { EXPECT_EQ(orFree(device_), orSuccess); }

RankProcesses::RankProcesses(int nranks, const std::function<int(int, const occlUniqueId&)>& body) {
  // The children are there before the thread that hands out the unique id: a child forked beside a
  // running thread can inherit a lock of the sanitizer's allocator that nobody releases.
  int ids[2];
  EXPECT_EQ(pipe(ids), 0);
  occlUniqueId id;
  for (int r = 0; r < nranks; ++r) {
    const pid_t pid = fork();
    if (pid == 0) {
      close(ids[1]);
      if (read(ids[0], &id, sizeof id) != sizeof id) _exit(kNoUniqueId);
      close(ids[0]);
      _exit(body(r, id));
    }
    pids_.push_back(pid);
  }
  close(ids[0]);
  EXPECT_EQ(occlGetUniqueId(&id), occlSuccess);
  static_assert(sizeof id <= PIPE_BUF, "each read gets one whole id");
  for (int r = 0; r < nranks; ++r) EXPECT_EQ(write(ids[1], &id, sizeof id), ssize_t{sizeof id});
  close(ids[1]);
}

RankProcesses::~RankProcesses() {
  for (size_t r = 0; r < pids_.size(); ++r) {
    if (pids_[r] <= 0) continue;
    kill(pids_[r], SIGKILL);
    waitpid(pids_[r], nullptr, 0);
  }
}

int RankProcesses::Wait(int rank, int64_t timeout_ms) {
  const int64_t end_ms = NowMs() + timeout_ms;
  while (true) {
    int status = 0;
    const pid_t got = waitpid(pids_[rank], &status, WNOHANG);
    if (got == pids_[rank]) {
      pids_[rank] = 0;
      return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
    }
    if (NowMs() > end_ms) return -2;
    const timespec pause = {0, 2'000'000};
    nanosleep(&pause, nullptr);
  }
}

void RankProcesses::Kill(int rank, int signal) { kill(pids_[rank], signal); }

int64_t NowMs() {
  timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return int64_t{now.tv_sec} * 1000 + now.tv_nsec / 1'000'000;
}

}  // namespace occl_conformance
