// Batch normalisation: the CPU's kernels that update running statistics, and the statistics across
// ranks, which SyncBatchNorm exchanges. For those the CPU has no kernels (torch has CUDA's only);
// the formulas are those of torch.nn.SyncBatchNorm's documentation and of Ioffe and Szegedy, "Batch
// Normalization", 2015, section 3.
//
// Statistics are accumulated in float for 16-bit inputs. Dimension 1 holds the channels.
#include <ATen/ATen.h>
#include <torch/library.h>

#include <numeric>
#include <tuple>
#include <vector>

#include "python/csrc/aten/on_cpu.h"
#include "python/csrc/sanitizer/operations.h"

namespace torch_openreg {
namespace {

using OptionalTensor = std::optional<at::Tensor>;

// All dimensions but the channels'.
std::vector<int64_t> reduced_dims(const at::Tensor& input) {
  std::vector<int64_t> dims;
  for (int64_t dim = 0; dim < input.dim(); ++dim) {
    if (dim != 1) {
      dims.push_back(dim);
    }
  }
  return dims;
}

at::Tensor per_channel(const at::Tensor& vector, const at::Tensor& input) {
  std::vector<int64_t> shape(static_cast<size_t>(input.dim()), 1);
  shape[1] = vector.numel();
  return vector.reshape(shape);
}

at::ScalarType accumulate_type(const at::Tensor& input) {
  const at::ScalarType type = input.scalar_type();
  return type == at::kHalf || type == at::kBFloat16 ? at::kFloat : type;
}

void check_input(const at::Tensor& input, const char* op) {
  TORCH_CHECK(input.dim() >= 2, op,
              " expects an input of at least 2 dimensions (batch, channels, "
              "...), got ",
              input.sizes());
}

c10::DeviceIndex device_of(const char* op, std::initializer_list<const at::Tensor*> tensors) {
  DeviceFinder finder(op);
  for (const at::Tensor* tensor : tensors) {
    finder.see(*tensor);
  }
  return finder.device();
}

const at::Tensor& or_undefined(const OptionalTensor& tensor) {
  static const at::Tensor undefined;
  return tensor.has_value() ? *tensor : undefined;
}

// In training the running statistics are written to, which the schemas do not say.
std::tuple<at::Tensor, at::Tensor, at::Tensor> native_batch_norm(
    const at::Tensor& input, const OptionalTensor& weight, const OptionalTensor& bias,
    const OptionalTensor& running_mean, const OptionalTensor& running_var, bool training,
    double momentum, double eps) {
  static const OptionalTensor none;
  const sanitizer::AlsoWritten written(or_undefined(training ? running_mean : none),
                                       or_undefined(training ? running_var : none));
  using Op = at::_ops::native_batch_norm;
  return detail::OnCpu<Op, Op::schema>::call(input, weight, bias, running_mean, running_var,
                                             training, momentum, eps);
}

std::tuple<at::Tensor, at::Tensor> batch_norm_update_stats(const at::Tensor& input,
                                                           const OptionalTensor& running_mean,
                                                           const OptionalTensor& running_var,
                                                           double momentum) {
  const sanitizer::AlsoWritten written(or_undefined(running_mean), or_undefined(running_var));
  using Op = at::_ops::batch_norm_update_stats;
  return detail::OnCpu<Op, Op::schema>::call(input, running_mean, running_var, momentum);
}

std::tuple<at::Tensor, at::Tensor> batch_norm_stats(const at::Tensor& input, double eps) {
  constexpr const char* kOp = "aten::batch_norm_stats";
  check_input(input, kOp);
  CpuCall call(kOp, device_of(kOp, {&input}));
  const at::Tensor x = call.at(call.add(input, false)).to(accumulate_type(input));
  auto [variance, mean] = at::var_mean(x, reduced_dims(x), /*unbiased=*/false);
  at::Tensor invstd = variance.add_(eps).rsqrt_();
  return {call.wrap(std::move(mean)), call.wrap(std::move(invstd))};
}

at::Tensor batch_norm_elemt(const at::Tensor& input, const OptionalTensor& weight,
                            const OptionalTensor& bias, const at::Tensor& mean,
                            const at::Tensor& invstd, double /*eps*/) {
  constexpr const char* kOp = "aten::batch_norm_elemt";
  check_input(input, kOp);
  CpuCall call(
      kOp, device_of(kOp, {&input, &or_undefined(weight), &or_undefined(bias), &mean, &invstd}));
  const at::Tensor x = call.at(call.add(input, false));
  const at::ScalarType type = accumulate_type(input);
  at::Tensor scale = call.at(call.add(invstd, false)).to(type);
  if (weight.has_value() && weight->defined()) {
    scale = scale * call.at(call.add(*weight, false)).to(type);
  }
  at::Tensor out = x.to(type) - per_channel(call.at(call.add(mean, false)).to(type), x);
  out.mul_(per_channel(scale, x));
  if (bias.has_value() && bias->defined()) {
    out.add_(per_channel(call.at(call.add(*bias, false)).to(type), x));
  }
  return call.wrap(out.to(input.scalar_type()));
}

at::Tensor& batch_norm_elemt_out(const at::Tensor& input, const OptionalTensor& weight,
                                 const OptionalTensor& bias, const at::Tensor& mean,
                                 const at::Tensor& invstd, double eps, at::Tensor& out) {
  const at::Tensor result = torch_openreg::batch_norm_elemt(input, weight, bias, mean, invstd, eps);
  return out.resize_(result.sizes()).copy_(result);
}

// Merges the statistics of all ranks: `mean` and `invstd` have a row a rank, of `counts` elements
// a channel (T. Chan et al., "Updating formulae and a pairwise algorithm for computing sample
// variances", 1979, with all parts at once).
std::tuple<at::Tensor, at::Tensor> gather_stats_with_counts(
    const at::Tensor& input, const at::Tensor& mean, const at::Tensor& invstd,
    const OptionalTensor& running_mean, const OptionalTensor& running_var, double momentum,
    double eps, const at::Tensor& counts) {
  constexpr const char* kOp = "aten::batch_norm_gather_stats_with_counts";
  TORCH_CHECK(mean.dim() == 2 && invstd.sizes() == mean.sizes() && counts.numel() == mean.size(0),
              kOp, " expects mean and invstd of shape (ranks, channels) and a count a rank, got ",
              mean.sizes(), ", ", invstd.sizes(), " and ", counts.sizes());
  CpuCall call(kOp, device_of(kOp, {&input, &mean, &invstd, &or_undefined(running_mean),
                                    &or_undefined(running_var), &counts}));
  const at::ScalarType type = accumulate_type(mean);
  const at::Tensor means = call.at(call.add(mean, false)).to(type);
  const at::Tensor variances = call.at(call.add(invstd, false)).to(type).pow(-2).sub_(eps);
  const at::Tensor weights = call.at(call.add(counts, false)).to(type).reshape({-1, 1});
  const at::Tensor total = weights.sum();
  at::Tensor merged_mean = (means * weights).sum(0).div_(total);
  const at::Tensor deviation = (means - merged_mean).square_();
  const at::Tensor merged_var = (variances + deviation).mul_(weights).sum(0).div_(total);
  if (running_mean.has_value() && running_mean->defined()) {
    const at::Tensor running = call.at(call.add(*running_mean, true));
    running.mul_(1 - momentum).add_(merged_mean.to(running.scalar_type()), momentum);
  }
  if (running_var.has_value() && running_var->defined()) {
    const at::Tensor running = call.at(call.add(*running_var, true));
    const at::Tensor unbiased = merged_var * (total / (total - 1));
    running.mul_(1 - momentum).add_(unbiased.to(running.scalar_type()), momentum);
  }
  at::Tensor merged_invstd = (merged_var + eps).rsqrt_();
  return {call.wrap(std::move(merged_mean)), call.wrap(std::move(merged_invstd))};
}

std::tuple<at::Tensor, at::Tensor> gather_stats(const at::Tensor& input, const at::Tensor& mean,
                                                const at::Tensor& invstd,
                                                const OptionalTensor& running_mean,
                                                const OptionalTensor& running_var, double momentum,
                                                double eps, int64_t count) {
  const at::Tensor counts = at::full({mean.size(0)}, count, mean.options());
  return gather_stats_with_counts(input, mean, invstd, running_mean, running_var, momentum, eps,
                                  counts);
}

std::tuple<at::Tensor, at::Tensor, at::Tensor, at::Tensor> backward_reduce(
    const at::Tensor& grad_out, const at::Tensor& input, const at::Tensor& mean,
    const at::Tensor& invstd, const OptionalTensor& weight, bool input_g, bool weight_g,
    bool bias_g) {
  constexpr const char* kOp = "aten::batch_norm_backward_reduce";
  check_input(input, kOp);
  CpuCall call(kOp, device_of(kOp, {&grad_out, &input, &mean, &invstd, &or_undefined(weight)}));
  const at::ScalarType type = accumulate_type(input);
  const at::Tensor dy = call.at(call.add(grad_out, false)).to(type);
  const at::Tensor x = call.at(call.add(input, false)).to(type);
  const at::Tensor mu = call.at(call.add(mean, false)).to(type);
  const at::Tensor scale = call.at(call.add(invstd, false)).to(type);
  const std::vector<int64_t> dims = reduced_dims(x);
  at::Tensor sum_dy = dy.sum(dims);
  at::Tensor sum_dy_xmu = (dy * (x - per_channel(mu, x))).sum(dims);
  const at::ScalarType weight_type =
      weight.has_value() && weight->defined() ? weight->scalar_type() : type;
  at::Tensor grad_weight = weight_g ? (sum_dy_xmu * scale).to(weight_type) : at::Tensor();
  at::Tensor grad_bias = bias_g ? sum_dy.clone().to(weight_type) : at::Tensor();
  if (!input_g) {
    sum_dy = at::Tensor();
    sum_dy_xmu = at::Tensor();
  }
  return {call.wrap(std::move(sum_dy)), call.wrap(std::move(sum_dy_xmu)),
          call.wrap(std::move(grad_weight)), call.wrap(std::move(grad_bias))};
}

at::Tensor backward_elemt(const at::Tensor& grad_out, const at::Tensor& input,
                          const at::Tensor& mean, const at::Tensor& invstd,
                          const OptionalTensor& weight, const at::Tensor& sum_dy,
                          const at::Tensor& sum_dy_xmu, const at::Tensor& count) {
  constexpr const char* kOp = "aten::batch_norm_backward_elemt";
  check_input(input, kOp);
  CpuCall call(kOp, device_of(kOp, {&grad_out, &input, &mean, &invstd, &or_undefined(weight),
                                    &sum_dy, &sum_dy_xmu, &count}));
  const at::ScalarType type = accumulate_type(input);
  const auto alias = [&](const at::Tensor& tensor) {
    return call.at(call.add(tensor, false)).to(type);
  };
  const at::Tensor x = alias(input);
  const at::Tensor total = call.at(call.add(count, false)).sum().to(type);
  const at::Tensor scale = alias(invstd);
  const at::Tensor mean_dy = alias(sum_dy).div(total);
  const at::Tensor mean_dy_xmu = alias(sum_dy_xmu).div(total);
  at::Tensor gain = scale;
  if (weight.has_value() && weight->defined()) {
    gain = gain * alias(*weight);
  }
  at::Tensor grad = alias(grad_out) - per_channel(mean_dy, x);
  grad.sub_((x - per_channel(alias(mean), x)).mul_(per_channel(scale.square() * mean_dy_xmu, x)));
  grad.mul_(per_channel(gain, x));
  return call.wrap(grad.to(input.scalar_type()));
}

}  // namespace

TORCH_LIBRARY_IMPL(aten, PrivateUse1, m) {
  m.impl("native_batch_norm", native_batch_norm);
  m.impl("batch_norm_update_stats", batch_norm_update_stats);
  m.impl("batch_norm_stats", batch_norm_stats);
  m.impl("batch_norm_elemt", batch_norm_elemt);
  m.impl("batch_norm_elemt.out", batch_norm_elemt_out);
  m.impl("batch_norm_gather_stats", gather_stats);
  m.impl("batch_norm_gather_stats_with_counts", gather_stats_with_counts);
  m.impl("batch_norm_backward_reduce", backward_reduce);
  m.impl("batch_norm_backward_elemt", backward_elemt);
}

}  // namespace torch_openreg
