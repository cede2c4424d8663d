#include "openreg/runtime/capi_error.h"

#include <string>

namespace openreg {
namespace {

struct LastError {
  orError_t code = orSuccess;
  std::string message;
};
thread_local LastError last_error;

}  // namespace

orError_t Fail(const Status& status) {
  // An answer, not a failure; programs poll for it.
  if (status.code() == orErrorNotReady) return orErrorNotReady;
  last_error.code = status.code();
  last_error.message = status.message();
  return status.code();
}

}  // namespace openreg

extern "C" {

orError_t orGetLastError(void) {
  orError_t code = openreg::last_error.code;
  openreg::last_error.code = orSuccess;
  return code;
}

orError_t orPeekAtLastError(void) { return openreg::last_error.code; }

const char* orGetLastErrorMessage(void) { return openreg::last_error.message.c_str(); }

}  // extern "C"
