// What is done with a finding: told to Python once per pair of places.
#ifndef PYTHON_CSRC_SANITIZER_REPORT_H_
#define PYTHON_CSRC_SANITIZER_REPORT_H_

#include <pybind11/pybind11.h>

#include <vector>

#include "python/csrc/sanitizer/engine/access.h"

namespace torch_openreg::sanitizer {

// Hands those that are new to the handler, and those that would end in a crash, and throws the
// exception that it returns. Takes the interpreter lock. Nothing happens at the end of the
// interpreter.
void report(const std::vector<Finding>& findings);
// As above where no exception can pass: it is raised when the thread is back in Python.
void report_after(const std::vector<Finding>& findings);
// As above, and nothing is raised.
void log_all(const std::vector<Finding>& findings);

// `handler(findings: list[dict]) -> SanitizerError | None`; see torch_openreg/openreg/sanitizer.py.
void set_handler(pybind11::object handler);
// So that pairs of places are reported again.
void forget_reported();

}  // namespace torch_openreg::sanitizer

#endif  // PYTHON_CSRC_SANITIZER_REPORT_H_
