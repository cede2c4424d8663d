// The reduce operations a caller has made with occlRedOpCreatePreMulSum.
#ifndef OCCL_CORE_FACTORS_H_
#define OCCL_CORE_FACTORS_H_

#include <map>
#include <mutex>

#include "occl/base/status.h"

namespace occl {

class Factors {
 public:
  // `scalar`: one element of the datatype, in host memory.
  Status Create(const void* scalar, occlDataType_t datatype, int* op);
  Status Destroy(int op);
  // The factor as (re, im).
  Status Find(int op, occlDataType_t datatype, double* scale) const;

 private:
  struct Factor {
    occlDataType_t datatype;
    double scale[2];
  };
  mutable std::mutex mutex_;  // guards all below
  std::map<int, Factor> factors_;
  int next_ = occlNumOps;
};

}  // namespace occl

#endif  // OCCL_CORE_FACTORS_H_
