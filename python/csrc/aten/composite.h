// Tensors that are made of dense ones: sparse (COO and compressed) and nested. They need no kernels
// of their own: the CPU's get the same made of aliases.
#ifndef PYTHON_CSRC_ATEN_COMPOSITE_H_
#define PYTHON_CSRC_ATEN_COMPOSITE_H_

#include <ATen/core/Tensor.h>

#include <list>
#include <vector>

#include "python/csrc/aten/cpu_call.h"

namespace torch_openreg {

// Sparse or nested. (A nested tensor of layout torch.jagged is none: it is a class in Python.)
bool is_composite(const at::Tensor& tensor);

// The arguments and results of one call, composite ones among them: what CpuCall does with dense
// ones. The originals have to outlive the object, and it the call's finish().
class Composites {
 public:
  explicit Composites(CpuCall& call) : call_(call) {}

  // What the kernel gets for `original`, dense or composite.
  at::Tensor add(const at::Tensor& original, bool written);
  // Carries what the kernel did to composite arguments over to the originals. After the call's
  // finish(), which does that for the dense ones.
  void finish();
  // A result, dense or composite, as a tensor of the device. After finish().
  at::Tensor wrap(at::Tensor&& result);

 private:
  struct Entry {
    at::Tensor host;             // made of aliases; the host's tensor itself if it is one
    const at::Tensor* original;  // the caller's
    bool written;
  };

  std::vector<at::Tensor> wrapped_parts(const at::Tensor& composite);

  CpuCall& call_;
  std::vector<Entry> entries_;
  std::list<at::Tensor> parts_;  // of originals; the call refers to them
};

}  // namespace torch_openreg

#endif  // PYTHON_CSRC_ATEN_COMPOSITE_H_
