#include "tools/bench/perf/values.h"

#include <math.h>
#include <stdint.h>
#include <string.h>

double InputValue(occlRedOp_t op, int rank, size_t index) {
  const size_t kinds = op == occlProd ? 2 : 5;
  return (double)((index * 7 + (size_t)rank * 3) % kinds + 1);
}

double ReducedValue(occlRedOp_t op, int ranks, size_t index) {
  double result = InputValue(op, 0, index);
  for (int r = 1; r < ranks; ++r) {
    const double value = InputValue(op, r, index);
    switch (op) {
      case occlProd:
        result *= value;
        break;
      case occlMax:
        result = fmax(result, value);
        break;
      case occlMin:
        result = fmin(result, value);
        break;
      default:
        result += value;
        break;
    }
  }
  return op == occlAvg ? result / ranks : result;
}

static uint16_t BFloat16Bits(double value) {
  const float narrow = (float)value;
  uint32_t bits;
  memcpy(&bits, &narrow, sizeof bits);
  return (uint16_t)((bits + 0x7fff + ((bits >> 16) & 1)) >> 16);
}

void PutElement(void* array, size_t index, occlDataType_t datatype, double value) {
  switch (datatype) {
    case occlInt8:
      ((int8_t*)array)[index] = (int8_t)(int64_t)value;
      break;
    case occlUint8:
      ((uint8_t*)array)[index] = (uint8_t)(int64_t)value;
      break;
    case occlInt32:
      ((int32_t*)array)[index] = (int32_t)(int64_t)value;
      break;
    case occlUint32:
      ((uint32_t*)array)[index] = (uint32_t)(int64_t)value;
      break;
    case occlInt64:
      ((int64_t*)array)[index] = (int64_t)value;
      break;
    case occlUint64:
      ((uint64_t*)array)[index] = (uint64_t)value;
      break;
    case occlFloat16:
      ((_Float16*)array)[index] = (_Float16)value;
      break;
    case occlFloat32:
      ((float*)array)[index] = (float)value;
      break;
    case occlFloat64:
      ((double*)array)[index] = value;
      break;
    default:
      ((uint16_t*)array)[index] = BFloat16Bits(value);
      break;
  }
}

int ElementIs(const void* array, size_t index, occlDataType_t datatype, double value) {
  unsigned char expected[8];
  const size_t size = occlDataTypeSize(datatype);
  /* An average was divided in double and is rounded again here. That gives the bits of one division
   * in float32: double has more than twice its digits (Figueroa, "When is double rounding
   * innocuous?", 1995). */
  PutElement(expected, 0, datatype, value);
  return memcmp((const unsigned char*)array + index * size, expected, size) == 0;
}
