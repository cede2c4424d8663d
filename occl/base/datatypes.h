// Sizes and names of the datatypes and reduce operations of the C API.
#ifndef OCCL_BASE_DATATYPES_H_
#define OCCL_BASE_DATATYPES_H_

#include <cstddef>

#include "occl/api/occl.h"

namespace occl {

// Bytes of one element; 0 for a value that is no datatype (such values arrive from callers and
// from peers).
size_t DataTypeSize(int datatype);
// "float32", ...; "datatype 99" is spelt "unknown datatype".
const char* DataTypeName(int datatype);
bool IsComplex(int datatype);
// "SUM", ...; a pre-multiplied sum is "PREMUL_SUM".
const char* RedOpName(int op);

}  // namespace occl

#endif  // OCCL_BASE_DATATYPES_H_
