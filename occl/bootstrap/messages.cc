#include "occl/bootstrap/messages.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstring>

namespace occl {

HostId OwnHostId() {
  HostId host = {};
  gethostname(host.name, sizeof(host.name) - 1);
  struct stat info;
  if (stat("/proc/self/ns/net", &info) == 0) host.network_namespace = info.st_ino;
  const UniqueFd file(open("/proc/sys/kernel/random/boot_id", O_RDONLY | O_CLOEXEC));
  char text[40] = {};
  if (file.valid() && read(file.get(), text, sizeof(text) - 1) > 0) {
    // 8-4-4-4-12 hexadecimal digits.
    std::string digits(text);
    std::erase(digits, '-');
    std::sscanf(digits.c_str(), "%16lx%16lx", &host.boot_id[0], &host.boot_id[1]);
  }
  return host;
}

Notice MakeNotice(const Status& status) {
  Notice notice = {};
  notice.magic = kBootstrapMagic;
  notice.code = status.code();
  std::snprintf(notice.message, sizeof(notice.message), "%s", status.message().c_str());
  return notice;
}

Status FromNotice(const Notice& notice) {
  if (notice.magic != kBootstrapMagic) {
    return Status(occlInternalError, "a bootstrap message of another protocol came");
  }
  if (notice.code == occlSuccess) return Status();
  return Status(CheckedCode(notice.code), PrintableText(notice.message, sizeof(notice.message)));
}

std::string PrintableText(const char* text, size_t capacity) {
  std::string result(text, strnlen(text, capacity));
  for (char& c : result) {
    const auto byte = static_cast<unsigned char>(c);
    if (byte < 0x20 || byte == 0x7f) c = '?';
  }
  return result;
}

occlResult_t CheckedCode(int32_t code) {
  if (code <= occlSuccess || code > occlNotSupported || code == occlInProgress) {
    return occlInternalError;
  }
  return static_cast<occlResult_t>(code);
}

}  // namespace occl
