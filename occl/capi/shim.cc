#include "occl/capi/shim.h"

#include <string>

namespace occl::capi {
namespace {

thread_local std::string last_message;
thread_local std::string comm_message;

}  // namespace

occlResult_t Report(const Status& status) {
  last_message = status.message();
  return status.code();
}

const char* LastMessage() { return last_message.c_str(); }

const char* KeepCommMessage(const std::string& text) {
  comm_message = text;
  return comm_message.c_str();
}

}  // namespace occl::capi
