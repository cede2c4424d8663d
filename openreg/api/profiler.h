/* What profilers see. Part of openreg.h, which has the conventions. */
#ifndef OPENREG_API_PROFILER_H_
#define OPENREG_API_PROFILER_H_

#include <stddef.h>
#include <stdint.h>

#include "openreg/api/base.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef enum orActivityKind {
  orActivityKernel = 0,
  orActivityMemcpy = 1,
  orActivityMemset = 2,
  orActivityHostFunc = 3,
  orActivityMarker = 4 /* reported by a library, e.g. a collective */
} orActivityKind;

typedef struct orActivity {
  orActivityKind kind;
  const char* name; /* static storage */
  int device;
  uint64_t streamId;
  int64_t start_ns, end_ns; /* CLOCK_MONOTONIC */
  size_t bytes;             /* moved, 0 if unknown */
} orActivity;

/* What the calling thread's hold of the stream, or the work that it runs there, is reported as,
 * instead of a kernel without bytes; name (static storage) NULL: as it was. Costs nothing to leave
 * out, and does nothing inside of a nested hold or without a callback. Errors: orErrorNotPermitted
 * (this thread neither holds the stream nor runs its work). */
orError_t orStreamSetActivity(orStream_t stream, orActivityKind kind, const char* name,
                              size_t bytes);

/* Called for each piece of work that ends, on the thread that ran it; must be fast and must not
 * call back into the runtime. NULL switches off (the default: then it costs one relaxed load). */
typedef void (*orActivityCallback)(const orActivity* activity, void* context);
/* After return no call of the previous callback is running. */
orError_t orProfilerSetCallback(orActivityCallback callback, void* context);
/* Hands a library's own activity (orActivityMarker) to the callback, if there is one. */
orError_t orProfilerReport(const orActivity* activity);

#ifdef __cplusplus
} /* extern "C" */
#endif
#endif /* OPENREG_API_PROFILER_H_ */
