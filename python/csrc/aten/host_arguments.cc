#include "python/csrc/aten/host_arguments.h"

#include <algorithm>
#include <array>

namespace torch_openreg {

bool accepts_host_tensors(std::string_view op) {
  // Sorted.
  static constexpr std::array<std::string_view, 8> kNames = {"aten::_index_put_impl_",
                                                             "aten::_pack_padded_sequence",
                                                             "aten::_unsafe_index",
                                                             "aten::_unsafe_index_put",
                                                             "aten::index",
                                                             "aten::index_put",
                                                             "aten::index_put_",
                                                             "aten::tensor_split"};
  return std::binary_search(kNames.begin(), kNames.end(), op);
}

}  // namespace torch_openreg
