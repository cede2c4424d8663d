#include "occl/base/datatypes.h"

namespace occl {
namespace {

struct DataType {
  const char* name;
  size_t size_bytes;
};

constexpr DataType kDataTypes[occlNumTypes] = {
    {"int8", 1},        {"uint8", 1},          {"int32", 4},           {"uint32", 4},
    {"int64", 8},       {"uint64", 8},         {"float16", 2},         {"float32", 4},
    {"float64", 8},     {"bfloat16", 2},       {"int16", 2},           {"uint16", 2},
    {"bool", 1},        {"complex64", 8},      {"complex128", 16},     {"complex32", 4},
    {"float8_e4m3", 1}, {"float8_e5m2", 1},    {"float8_e4m3fnuz", 1}, {"float8_e5m2fnuz", 1},
    {"float8_e8m0", 1}, {"float4_e2m1_x2", 1}, {"bytes", 1},
};

constexpr const char* kRedOps[occlNumOps] = {"SUM", "PROD", "MAX", "MIN",
                                             "AVG", "BAND", "BOR", "BXOR"};

}  // namespace

size_t DataTypeSize(int datatype) {
  return datatype >= 0 && datatype < occlNumTypes ? kDataTypes[datatype].size_bytes : 0;
}

const char* DataTypeName(int datatype) {
  return datatype >= 0 && datatype < occlNumTypes ? kDataTypes[datatype].name : "unknown datatype";
}

bool IsComplex(int datatype) {
  return datatype == occlComplex32 || datatype == occlComplex64 || datatype == occlComplex128;
}

const char* RedOpName(int op) {
  if (op >= occlNumOps) return "PREMUL_SUM";
  return op >= 0 ? kRedOps[op] : "unknown operation";
}

}  // namespace occl
