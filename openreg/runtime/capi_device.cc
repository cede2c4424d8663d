// Devices, profiling.
#include <unistd.h>

#include <cstring>

#include "openreg/runtime/capi_error.h"

using openreg::Config;
using openreg::Deadline;
using openreg::Device;
using openreg::Runtime;
using openreg::Status;

extern "C" {

orError_t orRuntimeGetVersion(int* version) {
  return openreg::EnterWithoutDevice([&]() -> Status {
    OPENREG_CHECK_OUT(version);
    *version = OPENREG_VERSION;
    return Status();
  });
}

orError_t orGetDeviceCount(int* count) {
  return openreg::EnterWithoutDevice([&]() -> Status {
    OPENREG_CHECK_OUT(count);
    const Config* config;
    OPENREG_RETURN_IF_ERROR(openreg::GetConfig(&config));
    *count = config->device_count;
    return Status();
  });
}

orError_t orGetDevice(int* device) {
  return openreg::EnterWithoutDevice([&]() -> Status {
    OPENREG_CHECK_OUT(device);
    *device = openreg::current_device;
    return Status();
  });
}

orError_t orSetDevice(int device) {
  if (device == openreg::current_device) return orSuccess;
  return openreg::EnterWithoutDevice([&]() -> Status {
    const Config* config;
    OPENREG_RETURN_IF_ERROR(openreg::GetConfig(&config));
    if (device < 0 || device >= config->device_count) {
      return Status(orErrorInvalidDevice, openreg::Format("expected a device from 0 to %d, got %d",
                                                          config->device_count - 1, device));
    }
    openreg::current_device = device;
    return Status();
  });
}

orError_t orGetDeviceProperties(orDeviceProp* prop, int device) {
  return openreg::Enter([&](Runtime& runtime) -> Status {
    OPENREG_CHECK_OUT(prop);
    Device* found;
    OPENREG_RETURN_IF_ERROR(runtime.GetDevice(device, &found));
    *prop = orDeviceProp{};
    std::strncpy(prop->name, "OpenReg simulated accelerator", sizeof prop->name - 1);
    prop->totalGlobalMem = runtime.config().memory_bytes;
    prop->major = 1;
    prop->minor = 0;
    prop->multiProcessorCount = openreg::CpuCount();
    prop->asyncEngineCount = 2;
    prop->streamPriorityLow = Runtime::kLowestPriority;
    prop->streamPriorityHigh = Runtime::kHighestPriority;
    prop->canImportMemory = 1;
    // Devices are per process: the process is part of their identity.
    int pid = static_cast<int>(getpid());
    std::memcpy(prop->uuid, "openreg", 7);
    std::memcpy(prop->uuid + 8, &pid, sizeof pid);
    std::memcpy(prop->uuid + 12, &device, sizeof device);
    return Status();
  });
}

orError_t orDeviceCanAccessPeer(int* can_access, int device, int peer_device) {
  return openreg::Enter([&](Runtime& runtime) -> Status {
    OPENREG_CHECK_OUT(can_access);
    Device* found;
    OPENREG_RETURN_IF_ERROR(runtime.GetDevice(device, &found));
    OPENREG_RETURN_IF_ERROR(runtime.GetDevice(peer_device, &found));
    *can_access = 1;
    return Status();
  });
}

orError_t orDeviceGetStreamPriorityRange(int* least, int* greatest) {
  return openreg::EnterWithoutDevice([&]() -> Status {
    OPENREG_CHECK_OUT(least);
    OPENREG_CHECK_OUT(greatest);
    *least = Runtime::kLowestPriority;
    *greatest = Runtime::kHighestPriority;
    return Status();
  });
}

orError_t orDeviceSynchronize(void) {
  return orDeviceSynchronizeTimeout(openreg::current_device, -1);
}

orError_t orDeviceSynchronizeTimeout(int device, int64_t timeout_ms) {
  return openreg::Enter([&](Runtime& runtime) {
    return runtime.SynchronizeDevice(device, Deadline::AfterMs(timeout_ms));
  });
}

orError_t orProfilerSetCallback(orActivityCallback callback, void* context) {
  return openreg::Enter([&](Runtime& runtime) {
    runtime.activity().SetCallback(callback, context);
    return Status();
  });
}

orError_t orProfilerReport(const orActivity* activity) {
  return openreg::Enter([&](Runtime& runtime) -> Status {
    if (activity == nullptr) return openreg::InvalidValue("the activity is NULL");
    if (runtime.activity().enabled()) runtime.activity().Report(*activity);
    return Status();
  });
}

}  // extern "C"
