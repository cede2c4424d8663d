// The part of a vendor's runtime that swapped_test.cc asks for: three devices, version 9.

#include "openreg/api/openreg.h"

extern "C" {

orError_t orGetDeviceCount(int* count) {
  if (count == nullptr) return orErrorInvalidValue;
  *count = 3;
  return orSuccess;
}

orError_t orRuntimeGetVersion(int* version) {
  if (version == nullptr) return orErrorInvalidValue;
  *version = 90000;
  return orSuccess;
}

}  // extern "C"
