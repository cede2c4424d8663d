/* The public header from C: it compiles as C11, and a program in C can use the device. */
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "openreg/api/openreg.h"

static void check(orError_t error, const char* call) {
  if (error == orSuccess) return;
  fprintf(stderr, "%s: %s: %s\n", call, orGetErrorName(error), orGetLastErrorMessage());
  exit(1);
}
#define CHECK(call) check((call), #call)

static void expect(int condition, const char* what) {
  if (condition) return;
  fprintf(stderr, "expected: %s\n", what);
  exit(1);
}
#define EXPECT(condition) expect((condition), #condition)

struct add {
  int* values;
  int count;
};

static orError_t add_one(void* arg) {
  struct add* add = arg;
  for (int i = 0; i < add->count; ++i) add->values[i] += 1;
  return orSuccess;
}

/* In a process of its own, because the host has no access to device memory. */
static void dereferencing_is_a_segmentation_fault(void) {
  const pid_t child = fork();
  EXPECT(child >= 0);
  if (child == 0) {
    int* device = NULL;
    CHECK(orMalloc((void**)&device, sizeof *device));
    signal(SIGSEGV, SIG_DFL); /* a sanitizer has a handler of its own */
    *(volatile int*)device = 1;
    _exit(0);
  }
  int status = 0;
  EXPECT(waitpid(child, &status, 0) == child);
  EXPECT(WIFSIGNALED(status) && WTERMSIG(status) == SIGSEGV);
}

int main(void) {
  dereferencing_is_a_segmentation_fault();

  int count = 0, version = 0;
  CHECK(orRuntimeGetVersion(&version));
  EXPECT(version == OPENREG_VERSION);
  CHECK(orGetDeviceCount(&count));
  EXPECT(count >= 1);

  orStream_t stream;
  orEvent_t start, end;
  CHECK(orStreamCreate(&stream));
  CHECK(orEventCreate(&start));
  CHECK(orEventCreate(&end));

  int host[100], back[100];
  for (int i = 0; i < 100; ++i) host[i] = i;
  void* device = NULL;
  CHECK(orMallocAsync(&device, sizeof host, stream));
  CHECK(orEventRecord(start, stream));
  CHECK(orMemcpyAsync(device, host, sizeof host, orMemcpyHostToDevice, stream));

  orPointerAttributes attributes;
  CHECK(orPointerGetAttributes(&attributes, device));
  EXPECT(attributes.type == orMemoryTypeDevice);
  struct add add = {attributes.kernelPointer, 100};
  CHECK(orLaunchKernel("add_one", add_one, &add, stream));
  CHECK(orMemcpyAsync(back, device, sizeof back, orMemcpyDeviceToHost, stream));
  CHECK(orEventRecord(end, stream));
  CHECK(orEventSynchronizeTimeout(end, 30000));
  for (int i = 0; i < 100; ++i) EXPECT(back[i] == i + 1);

  float ms = -1;
  CHECK(orEventElapsedTime(&ms, start, end));
  EXPECT(ms >= 0);
  EXPECT(orFreeAsync(&count) == orErrorInvalidDevicePointer);
  EXPECT(strlen(orGetLastErrorMessage()) > 0);

  CHECK(orFreeAsync(device));
  CHECK(orEventDestroy(start));
  CHECK(orEventDestroy(end));
  CHECK(orStreamDestroy(stream));
  puts("ok");
  return 0;
}
