#include "openreg/runtime/status.h"

#include <string.h>

namespace openreg {

Status SystemError(const char* call, int error) {
  char text[128];
  return Status(orErrorOperatingSystem,
                Format("%s failed: %s", call, strerror_r(error, text, sizeof text)));
}

}  // namespace openreg
