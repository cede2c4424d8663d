// What operators do that their arguments do not tell.
#ifndef PYTHON_CSRC_SANITIZER_OPERATORS_H_
#define PYTHON_CSRC_SANITIZER_OPERATORS_H_

namespace torch_openreg::sanitizer {

struct OperatorTraits {
  bool touches_memory = true;    // false: it answers from sizes and dtypes alone
  bool host_waits = false;       // its result, or its shape, is known to the host only afterwards
  bool writes_no_lists = false;  // a foreach operator that is not in place
};

// Of all overloads of `name` ("aten::add", static storage) together. Cached, thread-safe.
OperatorTraits traits_of(const char* name);

}  // namespace torch_openreg::sanitizer

#endif  // PYTHON_CSRC_SANITIZER_OPERATORS_H_
