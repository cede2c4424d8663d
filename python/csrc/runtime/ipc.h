// Storages shared between processes without a copy.
#ifndef PYTHON_CSRC_RUNTIME_IPC_H_
#define PYTHON_CSRC_RUNTIME_IPC_H_

#include <c10/core/Storage.h>

#include <cstdint>
#include <optional>
#include <string>

#include "python/csrc/runtime/event.h"

namespace torch_openreg {

// A storage as another process can open it. Plain values: they travel by pickle.
struct SharedStorage {
  std::string handle;             // of the block that the storage lies in; empty for no bytes
  std::int64_t offset_bytes = 0;  // of the storage in its block
  std::int64_t size_bytes = 0;
  c10::DeviceIndex device = 0;
};

// Describes `storage`; its owner has to keep it until the importer has opened it.
SharedStorage share_storage(const c10::Storage& storage);

// An interprocess event that captures what is queued now on the device's streams (all: who shares a
// storage may do so from a thread with other current streams than the one that filled it), or
// nothing if they are idle. Does not block. It has to live until the importer has opened it.
std::optional<OpenregEvent> capture_device(c10::DeviceIndex device);

// What another process needs to open an interprocess event, and the event there. open_event throws
// ValueError unless `handle` has a handle's length, torch.AcceleratorError if it is none or its
// owner has ended.
std::string event_handle(const OpenregEvent& event);
OpenregEvent open_event(const std::string& handle);

// The peer's storage, mapped here: writes are seen by both. The owner keeps the block until the
// storage is destroyed. Throws torch.AcceleratorError if the owner has ended or dropped the block.
c10::Storage open_storage(const SharedStorage& shared);

}  // namespace torch_openreg

#endif  // PYTHON_CSRC_RUNTIME_IPC_H_
