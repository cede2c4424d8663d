// The fused cells that torch asks of every device but the CPU: LSTM (S. Hochreiter and J.
// Schmidhuber, 1997, with the forget gates of F. Gers et al., 2000) and GRU (K. Cho et al., 2014),
// with the gates in torch's order: LSTM input, forget, cell, output; GRU reset, update, new. The
// workspace holds what the backward needs.
#include <ATen/ATen.h>
#include <torch/library.h>

#include <tuple>
#include <vector>

#include "python/csrc/aten/cpu_call.h"

namespace torch_openreg {
namespace {

using OptionalTensor = std::optional<at::Tensor>;

bool is_given(const OptionalTensor& tensor) { return tensor.has_value() && tensor->defined(); }

// The scope of a cell, with the aliases that its formulas use.
class Cell {
 public:
  Cell(const char* op, const at::Tensor& first) : call_(op, device_of(op, first)) {}

  at::Tensor in(const at::Tensor& tensor) { return call_.at(call_.add(tensor, false)); }
  at::Tensor in(const OptionalTensor& tensor) {
    return is_given(tensor) ? in(*tensor) : at::Tensor();
  }
  at::Tensor out(at::Tensor tensor) { return call_.wrap(std::move(tensor)); }
  // gates + bias, where there is a bias.
  at::Tensor biased(const at::Tensor& gates, const OptionalTensor& bias) {
    return is_given(bias) ? in(gates) + in(bias) : in(gates);
  }

 private:
  static c10::DeviceIndex device_of(const char* op, const at::Tensor& tensor) {
    DeviceFinder finder(op);
    finder.see(tensor);
    return finder.device();
  }

  CpuCall call_;
};

std::tuple<at::Tensor, at::Tensor, at::Tensor> lstm_cell(const at::Tensor& input_gates,
                                                         const at::Tensor& hidden_gates,
                                                         const at::Tensor& cx,
                                                         const OptionalTensor& input_bias,
                                                         const OptionalTensor& hidden_bias) {
  Cell cell("aten::_thnn_fused_lstm_cell", input_gates);
  const auto gates =
      (cell.biased(input_gates, input_bias) + cell.biased(hidden_gates, hidden_bias)).chunk(4, 1);
  const at::Tensor in = gates[0].sigmoid();
  const at::Tensor forget = gates[1].sigmoid();
  const at::Tensor candidate = gates[2].tanh();
  const at::Tensor output = gates[3].sigmoid();
  const at::Tensor cy = forget * cell.in(cx) + in * candidate;
  const at::Tensor hy = output * cy.tanh();
  return {cell.out(hy), cell.out(cy), cell.out(at::cat({in, forget, candidate, output}, 1))};
}

// sigmoid'(x) and tanh'(x) from the function's value.
at::Tensor sigmoid_slope(const at::Tensor& value) { return value * (1 - value); }
at::Tensor tanh_slope(const at::Tensor& value) { return 1 - value * value; }

std::tuple<at::Tensor, at::Tensor, at::Tensor> lstm_cell_backward(
    const OptionalTensor& grad_hy, const OptionalTensor& grad_cy, const at::Tensor& cx,
    const at::Tensor& cy, const at::Tensor& workspace, bool has_bias) {
  if (!is_given(grad_hy) && !is_given(grad_cy)) {
    return {};
  }
  Cell cell("aten::_thnn_fused_lstm_cell_backward_impl", cx);
  const auto gates = cell.in(workspace).chunk(4, 1);
  const at::Tensor squashed = cell.in(cy).tanh();
  at::Tensor to_cell = is_given(grad_cy) ? cell.in(grad_cy) : at::zeros_like(squashed);
  at::Tensor to_output = at::zeros_like(squashed);
  if (is_given(grad_hy)) {
    const at::Tensor grad = cell.in(grad_hy);
    to_cell = to_cell + grad * gates[3] * tanh_slope(squashed);
    to_output = grad * squashed * sigmoid_slope(gates[3]);
  }
  const at::Tensor to_in = to_cell * gates[2] * sigmoid_slope(gates[0]);
  const at::Tensor to_forget = to_cell * cell.in(cx) * sigmoid_slope(gates[1]);
  const at::Tensor to_candidate = to_cell * gates[0] * tanh_slope(gates[2]);
  const at::Tensor grad_gates = at::cat({to_in, to_forget, to_candidate, to_output}, 1);
  const at::Tensor grad_bias = has_bias ? grad_gates.sum(0) : at::Tensor();
  return {cell.out(grad_gates), cell.out(to_cell * gates[1]), cell.out(grad_bias)};
}

std::tuple<at::Tensor, at::Tensor> gru_cell(const at::Tensor& input_gates,
                                            const at::Tensor& hidden_gates, const at::Tensor& hx,
                                            const OptionalTensor& input_bias,
                                            const OptionalTensor& hidden_bias) {
  Cell cell("aten::_thnn_fused_gru_cell", input_gates);
  const auto input = cell.biased(input_gates, input_bias).chunk(3, 1);
  const auto hidden = cell.biased(hidden_gates, hidden_bias).chunk(3, 1);
  const at::Tensor previous = cell.in(hx);
  const at::Tensor reset = (input[0] + hidden[0]).sigmoid();
  const at::Tensor update = (input[1] + hidden[1]).sigmoid();
  const at::Tensor candidate = (input[2] + reset * hidden[2]).tanh();
  const at::Tensor hy = candidate + update * (previous - candidate);
  return {cell.out(hy), cell.out(at::cat({reset, update, candidate, previous, hidden[2]}, 1))};
}

std::tuple<at::Tensor, at::Tensor, at::Tensor, at::Tensor, at::Tensor> gru_cell_backward(
    const at::Tensor& grad_hy, const at::Tensor& workspace, bool has_bias) {
  Cell cell("aten::_thnn_fused_gru_cell_backward", grad_hy);
  const auto parts = cell.in(workspace).chunk(5, 1);
  const at::Tensor& reset = parts[0];
  const at::Tensor& update = parts[1];
  const at::Tensor& candidate = parts[2];
  const at::Tensor grad = cell.in(grad_hy);
  const at::Tensor to_update = grad * (parts[3] - candidate) * sigmoid_slope(update);
  const at::Tensor to_candidate = grad * (1 - update) * tanh_slope(candidate);
  const at::Tensor to_reset = to_candidate * parts[4] * sigmoid_slope(reset);
  const at::Tensor grad_input = at::cat({to_reset, to_update, to_candidate}, 1);
  const at::Tensor grad_hidden = at::cat({to_reset, to_update, to_candidate * reset}, 1);
  const at::Tensor input_bias = has_bias ? grad_input.sum(0) : at::Tensor();
  const at::Tensor hidden_bias = has_bias ? grad_hidden.sum(0) : at::Tensor();
  return {cell.out(grad_input), cell.out(grad_hidden), cell.out(grad * update),
          cell.out(input_bias), cell.out(hidden_bias)};
}

}  // namespace

TORCH_LIBRARY_IMPL(aten, PrivateUse1, m) {
  m.impl("_thnn_fused_lstm_cell", lstm_cell);
  m.impl("_thnn_fused_lstm_cell_backward_impl", lstm_cell_backward);
  m.impl("_thnn_fused_gru_cell", gru_cell);
  m.impl("_thnn_fused_gru_cell_backward", gru_cell_backward);
}

}  // namespace torch_openreg
