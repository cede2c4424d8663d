// What a caller makes and gives back: reduce operations, memory, registrations.
#include <sys/mman.h>

#include <cerrno>

#include "occl/capi/shim.h"

using occl::Error;
using occl::Status;
using occl::capi::FromHandle;
using occl::capi::Run;

namespace {

#ifndef MADV_POPULATE_WRITE
#define MADV_POPULATE_WRITE 23
#endif

// Gives all pages of the range memory and table entries. A kernel that cannot (before 5.14) leaves
// that to the first operation.
Status Populate(unsigned char* begin, size_t size_bytes) {
  constexpr uintptr_t kPage = 4096;
  const uintptr_t first = reinterpret_cast<uintptr_t>(begin) / kPage * kPage;
  const uintptr_t end = reinterpret_cast<uintptr_t>(begin) + size_bytes;
  if (madvise(reinterpret_cast<void*>(first), end - first, MADV_POPULATE_WRITE) == 0 ||
      errno == EINVAL) {
    return Status();
  }
  return occl::SystemError(errno, "occlCommRegister: populating %zu bytes", size_bytes);
}

}  // namespace

extern "C" {

occlResult_t occlRedOpCreatePreMulSum(occlRedOp_t* op, const void* scalar, occlDataType_t datatype,
                                      occlComm_t comm) {
  return Run([&]() -> Status {
    OCCL_CHECK_NOT_NULL("occlRedOpCreatePreMulSum", op);
    OCCL_CHECK_NOT_NULL("occlRedOpCreatePreMulSum", scalar);
    OCCL_CHECK_NOT_NULL("occlRedOpCreatePreMulSum", comm);
    int number = 0;
    OCCL_RETURN_IF_ERROR(FromHandle(comm)->factors.Create(scalar, datatype, &number));
    *op = static_cast<occlRedOp_t>(number);
    return Status();
  });
}

occlResult_t occlRedOpDestroy(occlRedOp_t op, occlComm_t comm) {
  return Run([&]() -> Status {
    OCCL_CHECK_NOT_NULL("occlRedOpDestroy", comm);
    return FromHandle(comm)->factors.Destroy(static_cast<int>(op));
  });
}

occlResult_t occlMemAlloc(void** ptr, size_t size_bytes) {
  return Run([&]() -> Status {
    OCCL_CHECK_NOT_NULL("occlMemAlloc", ptr);
    return occl::FromRuntime(orMalloc(ptr, size_bytes), "orMalloc");
  });
}

occlResult_t occlMemFree(void* ptr) {
  return Run([&]() -> Status { return occl::FromRuntime(orFree(ptr), "orFree"); });
}

occlResult_t occlCommRegister(occlComm_t comm, void* buff, size_t size_bytes, void** handle) {
  return Run([&]() -> Status {
    OCCL_CHECK_NOT_NULL("occlCommRegister", comm);
    OCCL_CHECK_NOT_NULL("occlCommRegister", handle);
    unsigned char* kernel_pointer = nullptr;
    if (size_bytes == 0 || !FromHandle(comm)->Translate(buff, size_bytes, &kernel_pointer)) {
      return Error(occlInvalidArgument,
                   "occlCommRegister: buff (%p, %zu bytes) is not memory of device %d", buff,
                   size_bytes, FromHandle(comm)->device());
    }
    OCCL_RETURN_IF_ERROR(Populate(kernel_pointer, size_bytes));
    *handle = FromHandle(comm)->registrations.Add();
    return Status();
  });
}

occlResult_t occlCommDeregister(occlComm_t comm, void* handle) {
  return Run([&]() -> Status {
    OCCL_CHECK_NOT_NULL("occlCommDeregister", comm);
    if (FromHandle(comm)->registrations.Remove(handle)) return Status();
    return Error(occlInvalidArgument, "occlCommDeregister: %p is no registration", handle);
  });
}

}  // extern "C"
