#define _GNU_SOURCE
#include "tools/bench/perf/ranks.h"

#include <errno.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

static void Pause(void) {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#endif
}

double Seconds(void) {
  struct timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return (double)now.tv_sec + (double)now.tv_nsec * 1e-9;
}

/* Yielding takes longer than a small operation: who is in the middle of it starts late. Spin where
 * each rank has a processor. */
static int SpinsBeforeYielding(const Rank* rank) {
  static long processors = 0;
  if (processors == 0) processors = sysconf(_SC_NPROCESSORS_ONLN);
  return rank->ranks <= processors ? 20000 : 50;
}

void Barrier(Rank* rank) {
  const uint64_t mine = ++rank->barriers;
  const int spins_at_first = SpinsBeforeYielding(rank);
  atomic_store_explicit(&rank->shared->rank[rank->rank].arrived, mine, memory_order_release);
  double deadline = 0;
  for (int peer = 0; peer < rank->ranks; ++peer) {
    int spins = 0;
    while (atomic_load_explicit(&rank->shared->rank[peer].arrived, memory_order_acquire) < mine) {
      if (++spins <= spins_at_first) {
        Pause();
        continue;
      }
      sched_yield();
      if (spins % 1024 != 0) continue;
      if (deadline == 0) deadline = Seconds() + rank->timeout_s;
      if (Seconds() > deadline) {
        fprintf(stderr, "occl_perf: rank %d: rank %d did not come in %.0f s\n", rank->rank, peer,
                rank->timeout_s);
        exit(1);
      }
    }
  }
}

double Slowest(Rank* rank, double value) {
  rank->shared->rank[rank->rank].value = value;
  Barrier(rank);
  double slowest = 0;
  for (int r = 0; r < rank->ranks; ++r) {
    if (rank->shared->rank[r].value > slowest) slowest = rank->shared->rank[r].value;
  }
  Barrier(rank); /* nobody overwrites what another still reads */
  return slowest;
}

double Sum(Rank* rank, double value) {
  rank->shared->rank[rank->rank].value = value;
  Barrier(rank);
  double sum = 0;
  for (int r = 0; r < rank->ranks; ++r) sum += rank->shared->rank[r].value;
  Barrier(rank);
  return sum;
}

void* SharedMemory(size_t size_bytes) {
  void* memory = mmap(NULL, size_bytes, PROT_READ | PROT_WRITE,
                      MAP_SHARED | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (memory == MAP_FAILED) {
    fprintf(stderr, "occl_perf: %zu bytes of shared memory: %s\n", size_bytes, strerror(errno));
    exit(1);
  }
  return memory;
}

static void Pin(int rank) {
  cpu_set_t allowed, one;
  CPU_ZERO(&one);
  if (sched_getaffinity(0, sizeof allowed, &allowed) != 0) return;
  int skip = rank % CPU_COUNT(&allowed);
  for (int cpu = 0; cpu < CPU_SETSIZE; ++cpu) {
    if (!CPU_ISSET(cpu, &allowed) || skip-- > 0) continue;
    CPU_SET(cpu, &one);
    if (sched_setaffinity(0, sizeof one, &one) != 0) perror("occl_perf: --pin");
    return;
  }
}

int RunRanks(const Options* options, Shared* shared, int (*body)(Rank*, void*), void* context) {
  pid_t pids[PERF_MAX_RANKS];
  const pid_t parent = getpid();
  fflush(NULL);
  for (int r = 0; r < options->ranks; ++r) {
    pids[r] = fork();
    if (pids[r] < 0) perror("occl_perf: fork");
    if (pids[r] != 0) continue;
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (getppid() != parent) exit(1);
    if (options->pin) Pin(r);
    Rank rank = {r, options->ranks, shared, 0, options->timeout_s};
    exit(body(&rank, context));
  }
  int failed = 0;
  for (int left = options->ranks; left > 0; --left) {
    int status = 0;
    const pid_t ended = wait(&status);
    if (ended < 0) break;
    if (status == 0) continue;
    /* Every wait in a rank has a deadline; this only makes the end come sooner. */
    for (int r = 0; r < options->ranks && !failed; ++r) {
      if (pids[r] > 0 && pids[r] != ended) kill(pids[r], SIGKILL);
    }
    failed = 1;
  }
  return failed;
}
