/* Devices. Part of openreg.h, which has the conventions. */
#ifndef OPENREG_API_DEVICE_H_
#define OPENREG_API_DEVICE_H_

#include <stddef.h>
#include <stdint.h>

#include "openreg/api/base.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct orDeviceProp {
  char name[256];
  size_t totalGlobalMem;   /* bytes: OPENREG_DEVICE_MEMORY, shared by the process's devices */
  int major, minor;        /* compute capability, 1.0 */
  int multiProcessorCount; /* CPU cores that this process may use */
  int asyncEngineCount;    /* copies that may run beside kernels */
  int streamPriorityLow, streamPriorityHigh;
  int canImportMemory; /* 1: IPC memory handles work here */
  unsigned char uuid[16];
} orDeviceProp;

/* Reading the count does not bring the device to life; it is what OPENREG_DEVICE_COUNT says, and it
 * works after fork. */
orError_t orGetDeviceCount(int* count);
orError_t orGetDevice(int* device);
/* Errors: orErrorInvalidDevice. */
orError_t orSetDevice(int device);
orError_t orGetDeviceProperties(orDeviceProp* prop, int device);
/* 1 for every pair of devices of a process: they share memory. */
orError_t orDeviceCanAccessPeer(int* canAccess, int device, int peerDevice);
orError_t orDeviceGetStreamPriorityRange(int* leastPriority, int* greatestPriority);
/* Blocks until all streams of the current device are empty. Returns the first error that
 * asynchronous work of the device left behind, with the others in its message, and clears them. */
orError_t orDeviceSynchronize(void);
/* As above with a deadline; timeout_ms < 0 waits for ever. Errors: orErrorTimeout. */
orError_t orDeviceSynchronizeTimeout(int device, int64_t timeout_ms);

#ifdef __cplusplus
} /* extern "C" */
#endif
#endif /* OPENREG_API_DEVICE_H_ */
