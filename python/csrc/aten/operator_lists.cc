#include "python/csrc/aten/operator_lists.h"

#include <algorithm>
#include <array>

namespace torch_openreg {
namespace {

// `names` has to be sorted.
template <size_t N>
bool contains(const std::array<std::string_view, N>& names, std::string_view name) {
  return std::binary_search(names.begin(), names.end(), name);
}

}  // namespace

bool accepts_host_tensors(std::string_view op) {
  static constexpr std::array<std::string_view, 9> kNames = {"aten::_index_put_impl_",
                                                             "aten::_pack_padded_sequence",
                                                             "aten::_unsafe_index",
                                                             "aten::_unsafe_index_put",
                                                             "aten::copy_",
                                                             "aten::index",
                                                             "aten::index_put",
                                                             "aten::index_put_",
                                                             "aten::tensor_split"};
  return contains(kNames, op);
}

bool is_composed_for_cpu_only(const c10::OperatorName& op) {
  static constexpr std::array<std::string_view, 5> kNames = {"aten::addr_", "aten::conj_physical_",
                                                             "aten::linalg_svd.U",
                                                             "aten::mode.values", "aten::svd.U"};
  return contains(kNames, c10::toString(op));
}

}  // namespace torch_openreg
