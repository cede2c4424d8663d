/* Inputs whose results are known: small whole numbers, exact in every datatype. */
#ifndef TOOLS_BENCH_PERF_VALUES_H_
#define TOOLS_BENCH_PERF_VALUES_H_

#include <stddef.h>

#include "occl/api/occl.h"

/* Element `index` of the input of `rank`. */
double InputValue(occlRedOp_t op, int rank, size_t index);
/* Their reduction over all ranks. */
double ReducedValue(occlRedOp_t op, int ranks, size_t index);

void PutElement(void* array, size_t index, occlDataType_t datatype, double value);
/* 1 if the element is `value` rounded to the datatype, to the last bit. */
int ElementIs(const void* array, size_t index, occlDataType_t datatype, double value);

#endif /* TOOLS_BENCH_PERF_VALUES_H_ */
