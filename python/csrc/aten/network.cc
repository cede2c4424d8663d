// Layers of networks, with their derivatives: the CPU's kernels without boxing.
#include <ATen/core/Tensor.h>
#include <ATen/ops/_adaptive_avg_pool2d_backward_ops.h>
#include <ATen/ops/_adaptive_avg_pool2d_ops.h>
#include <ATen/ops/_embedding_bag_dense_backward_ops.h>
#include <ATen/ops/_embedding_bag_forward_only_ops.h>
#include <ATen/ops/_embedding_bag_ops.h>
#include <ATen/ops/_native_batch_norm_legit_ops.h>
#include <ATen/ops/avg_pool2d_backward_ops.h>
#include <ATen/ops/avg_pool2d_ops.h>
#include <ATen/ops/constant_pad_nd_ops.h>
#include <ATen/ops/embedding_dense_backward_ops.h>
#include <ATen/ops/embedding_ops.h>
#include <ATen/ops/glu_backward_ops.h>
#include <ATen/ops/glu_ops.h>
#include <ATen/ops/max_pool2d_with_indices_backward_ops.h>
#include <ATen/ops/max_pool2d_with_indices_ops.h>
#include <ATen/ops/native_batch_norm_backward_ops.h>
#include <ATen/ops/native_group_norm_backward_ops.h>
#include <ATen/ops/native_group_norm_ops.h>
#include <ATen/ops/native_layer_norm_backward_ops.h>
#include <ATen/ops/native_layer_norm_ops.h>
#include <ATen/ops/upsample_bilinear2d_backward_ops.h>
#include <ATen/ops/upsample_bilinear2d_ops.h>
#include <ATen/ops/upsample_nearest2d_backward_ops.h>
#include <ATen/ops/upsample_nearest2d_ops.h>

#include "python/csrc/aten/on_cpu.h"

namespace torch_openreg {

TORCH_LIBRARY_IMPL(aten, PrivateUse1, m) {
  namespace ops = at::_ops;
  register_all_on_cpu<
      ops::_adaptive_avg_pool2d, ops::_adaptive_avg_pool2d_backward, ops::_embedding_bag,
      ops::_embedding_bag_dense_backward, ops::_embedding_bag_forward_only,
      ops::_native_batch_norm_legit, ops::_native_batch_norm_legit_no_stats, ops::avg_pool2d,
      ops::avg_pool2d_backward, ops::constant_pad_nd, ops::embedding, ops::embedding_dense_backward,
      ops::glu, ops::glu_backward, ops::max_pool2d_with_indices,
      ops::max_pool2d_with_indices_backward, ops::native_batch_norm_backward,
      ops::native_group_norm, ops::native_group_norm_backward, ops::native_layer_norm,
      ops::native_layer_norm_backward, ops::upsample_bilinear2d, ops::upsample_bilinear2d_backward,
      ops::upsample_nearest2d, ops::upsample_nearest2d_backward>(m);
}

}  // namespace torch_openreg
