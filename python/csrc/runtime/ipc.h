// Storages shared between processes without a copy.
#ifndef PYTHON_CSRC_RUNTIME_IPC_H_
#define PYTHON_CSRC_RUNTIME_IPC_H_

#include <c10/core/Storage.h>

#include <cstdint>
#include <string>

namespace torch_openreg {

// A storage as another process can open it. Plain values: they travel by pickle.
struct SharedStorage {
  std::string handle;             // of the block that the storage lies in; empty for no bytes
  std::int64_t offset_bytes = 0;  // of the storage in its block
  std::int64_t size_bytes = 0;
  c10::DeviceIndex device = 0;
};

// Describes `storage`; its owner has to keep it until the importer has opened it. Waits until the
// work queued on the storage's device has run (without the interpreter lock), so that the importer
// sees the values.
SharedStorage share_storage(const c10::Storage& storage);

// The peer's storage, mapped here: writes are seen by both. The owner keeps the block until the
// storage is destroyed. Throws torch.AcceleratorError if the owner has ended or dropped the block.
c10::Storage open_storage(const SharedStorage& shared);

}  // namespace torch_openreg

#endif  // PYTHON_CSRC_RUNTIME_IPC_H_
