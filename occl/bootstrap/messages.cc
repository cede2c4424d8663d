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

Members MakeMembers(const std::string& text) {
  constexpr uint64_t kOffset = 0xcbf29ce484222325, kPrime = 0x100000001b3;  // FNV-1a, RFC 9923
  Members members = {kOffset, {}};
  for (const char c : text) {
    members.digest = (members.digest ^ static_cast<unsigned char>(c)) * kPrime;
  }
  std::snprintf(members.text, sizeof(members.text), "%s", text.c_str());
  if (text.size() >= sizeof(members.text)) {
    std::memcpy(members.text + sizeof(members.text) - 4, "...", 4);
  }
  return members;
}

Status CheckAgreement(const char* name, const RankCard& own, const RankCard& card) {
  const auto pid = static_cast<long long>(card.pid);
  if (card.version != own.version) {
    return Error(occlMismatch, "init of %s: rank %d has OCCL %u, rank %d (pid %lld) has OCCL %u",
                 name, own.rank, own.version, card.rank, pid, card.version);
  }
  if (card.nranks != own.nranks) {
    return Error(occlMismatch,
                 "init of %s: rank %d was told nranks = %d, rank %d (pid %lld) nranks = %d", name,
                 own.rank, own.nranks, card.rank, pid, card.nranks);
  }
  if (card.members.digest != own.members.digest) {
    return Error(occlMismatch,
                 "init of %s: rank %d was told members = [%s], rank %d (pid %lld) members = [%s]",
                 name, own.rank, own.members.text, card.rank, pid,
                 PrintableText(card.members.text, sizeof(card.members.text)).c_str());
  }
  return Status();
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

namespace {

// Bytes of the character of UTF-8 that `text` begins with; 0: it is none (Unicode, table 3-7).
size_t CharacterBytes(const std::string& text, size_t at) {
  const auto byte = [&](size_t i) {
    return at + i < text.size() ? static_cast<unsigned char>(text[at + i]) : 0;
  };
  const auto within = [](int value, int low, int high) { return value >= low && value <= high; };
  const int lead = byte(0);
  if (within(lead, 0x20, 0x7e)) return 1;
  if (!within(lead, 0xc2, 0xf4)) return 0;
  const int low = lead == 0xe0 ? 0xa0 : lead == 0xf0 ? 0x90 : 0x80;
  const int high = lead == 0xed ? 0x9f : lead == 0xf4 ? 0x8f : 0xbf;
  const size_t bytes = lead < 0xe0 ? 2 : lead < 0xf0 ? 3 : 4;
  bool good = within(byte(1), low, high);
  for (size_t i = 2; i < bytes; ++i) good = good && within(byte(i), 0x80, 0xbf);
  return good ? bytes : 0;
}

}  // namespace

std::string PrintableText(const char* text, size_t capacity) {
  std::string result(text, strnlen(text, capacity));
  for (size_t at = 0; at < result.size();) {
    const size_t bytes = CharacterBytes(result, at);
    if (bytes == 0) result[at] = '?';
    at += bytes == 0 ? 1 : bytes;
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
