#include "python/csrc/aten/cpu_call.h"

#include <c10/util/Exception.h>

#include <cstring>
#include <exception>
#include <utility>

#include "python/csrc/aten/random.h"
#include "python/csrc/runtime/device.h"
#include "python/csrc/runtime/memory.h"
#include "python/csrc/sanitizer/operations.h"

namespace torch_openreg {
namespace {

// With more entries than this the search for a shared storage goes through a table.
constexpr size_t kMaxLinearSearch = 12;

// The stream on which the operator runs. Before it is held, since the sanitizer takes the
// interpreter lock, whose holder may wait for the stream.
OpenregStream begin(const char* op, c10::DeviceIndex device) {
  const OpenregStream stream = current_stream(device);
  sanitizer::operator_begins(op, stream);
  return stream;
}

}  // namespace

void DeviceFinder::see(const std::optional<c10::Device>& device) {
  if (device.has_value() && device->type() == kOpenreg) {
    argument_ = resolve_device(device->index());
  }
}

c10::DeviceIndex DeviceFinder::device() const {
  if (other_.has_value() && device_ >= 0 && !host_tensors_allowed_) [[unlikely]] {
    throw_two_devices(c10::Device(kOpenreg, device_), *other_);
  }
  if (device_ >= 0) [[likely]] {
    return device_;
  }
  TORCH_CHECK(!draws_ || !other_.has_value(), "Expected a '",
              c10::DeviceTypeName(other_.value_or(c10::Device(kOpenreg)).type(), true),
              "' device type for generator but found 'openreg' (in ", op_, ")");
  return argument_ >= 0 ? argument_ : current_device();
}

void DeviceFinder::throw_two_devices(c10::Device one, c10::Device other) const {
  TORCH_CHECK(false,
              "Expected all tensors to be on the same device, but found at least two devices, ",
              one, " and ", other, "! (in ", op_, ")");
}

CpuCall::CpuCall(const char* op, c10::DeviceIndex device, bool allocate_on_device)
    : device_(kOpenreg, device),
      hold_(std::in_place, begin(op, device), op),
      switch_(allocate_on_device ? device : c10::DeviceIndex{-1}) {}

CpuCall::CpuCall(std::try_to_lock_t /*try_to_lock*/, const char* op, c10::DeviceIndex device)
    : device_(kOpenreg, device), attempt_(std::in_place, begin(op, device), op), switch_(device) {}

CpuCall::CpuCall(c10::DeviceIndex device) : device_(kOpenreg, device), switch_(-1) {}

CpuCall::~CpuCall() {
  if (sanitizer::enabled() && std::uncaught_exceptions() > 0) [[unlikely]] {
    sanitizer::operator_failed();
  }
  // The last one first: then the next call finds each for the tensor that it last stood for, if it
  // has the same arguments, as the steps of a training have.
  for (auto entry = entries_.rbegin(); entry != entries_.rend(); ++entry) {
    if (entry->alias != nullptr) {
      entry->view.unsafeReleaseTensorImpl();
      AliasPool::give_back(c10::intrusive_ptr<Alias>::reclaim(entry->alias));
    }
  }
}

void CpuCall::reserve(size_t count) {
  // Lists come in twos and threes.
  const size_t all = entries_.empty() ? 3 * count : entries_.size() + count;
  entries_.reserve(all);
  if (all > kMaxLinearSearch) {
    first_of_.reserve(all);
  }
}

bool CpuCall::searches_table() const {
  return first_of_.reserved() || entries_.size() >= kMaxLinearSearch;
}

// Enters an entry into the table of those that came first.
void CpuCall::note(std::ptrdiff_t index) {
  const Entry& entry = entries_[static_cast<size_t>(index)];
  if (entry.alias == nullptr) {
    return;
  }
  const c10::TensorImpl* original = entry.original->unsafeGetTensorImpl();
  if (first_of_.insert(original->unsafe_storage().unsafeGetStorageImpl(), index) != index) {
    first_of_.insert(original, index);
  }
}

std::ptrdiff_t CpuCall::find_sharing(const c10::StorageImpl* storage) {
  const auto count = static_cast<std::ptrdiff_t>(entries_.size());
  if (searches_table()) {
    for (std::ptrdiff_t i = 0; first_of_.empty() && i < count; ++i) {
      note(i);
    }
    const std::ptrdiff_t first = first_of_.insert(storage, count);
    return first == count ? -1 : first;
  }
  for (std::ptrdiff_t i = 0; i < count; ++i) {
    const Entry& entry = entries_[static_cast<size_t>(i)];
    if (entry.alias != nullptr &&
        entry.original->unsafeGetTensorImpl()->unsafe_storage().unsafeGetStorageImpl() == storage) {
      return i;
    }
  }
  return -1;
}

std::ptrdiff_t CpuCall::find_again(const c10::TensorImpl* tensor, std::ptrdiff_t sharing) {
  const auto count = static_cast<std::ptrdiff_t>(entries_.size());
  if (searches_table()) {
    if (entries_[static_cast<size_t>(sharing)].original->unsafeGetTensorImpl() == tensor) {
      return sharing;
    }
    const std::ptrdiff_t first = first_of_.insert(tensor, count);
    return first == count ? -1 : first;
  }
  for (std::ptrdiff_t i = sharing; i < count; ++i) {
    if (entries_[static_cast<size_t>(i)].original->unsafeGetTensorImpl() == tensor) {
      return i;
    }
  }
  return -1;
}

size_t CpuCall::add(const at::Tensor& original, bool written, bool listed) {
  if (sanitizer::enabled() && (hold_.has_value() || attempt_.has_value())) [[unlikely]] {
    sanitizer::operator_uses(original, written);
  }
  const c10::TensorImpl* impl = original.unsafeGetTensorImpl();
  if (!original.defined() || impl->device_type() != kOpenreg) {
    entries_.push_back({original, &original, nullptr, written, listed});
    return entries_.size() - 1;
  }
  TORCH_CHECK_NOT_IMPLEMENTED(impl->unsafe_storage(), "openreg has no ", impl->layout(),
                              " tensors: convert the argument with to_dense() or move it with "
                              "cpu() first.");
  c10::StorageImpl* storage = impl->unsafe_storage().unsafeGetStorageImpl();
  if (storage->has_materializer()) [[unlikely]] {
    // A lazy copy: the kernel may write, and does not know that the memory is shared.
    storage->mutable_data();
  }
  const std::ptrdiff_t sharing = find_sharing(storage);
  const Alias* shared = nullptr;
  if (sharing >= 0) [[unlikely]] {
    // The same tensor twice has to stay one: kernels treat `out` that is an input differently.
    if (const std::ptrdiff_t same = find_again(impl, sharing); same >= 0) {
      Entry& entry = entries_[static_cast<size_t>(same)];
      entry.written = entry.written || written;
      entry.listed = entry.listed && listed;
      return static_cast<size_t>(same);
    }
    shared = entries_[static_cast<size_t>(sharing)].alias;
  }
  c10::intrusive_ptr<Alias> alias = AliasPool::take();
  alias->assign(*impl, shared);
  Alias* raw = alias.get();
  entries_.push_back({at::Tensor(std::move(alias)), &original, raw, written, listed});
  return entries_.size() - 1;
}

at::Generator CpuCall::generator(const std::optional<at::Generator>& given) {
  return cpu_generator(given, device_.index());
}

const CpuCall::Entry* CpuCall::find_storage(const c10::StorageImpl* storage) const {
  for (const Entry& entry : entries_) {
    if (entry.view.defined() &&
        entry.view.unsafeGetTensorImpl()->unsafe_storage().unsafeGetStorageImpl() == storage) {
      return &entry;
    }
  }
  return nullptr;
}

const CpuCall::Entry* CpuCall::find_tensor(const c10::TensorImpl* tensor) const {
  for (const Entry& entry : entries_) {
    if (entry.view.unsafeGetTensorImpl() == tensor) {
      return &entry;
    }
  }
  return nullptr;
}

void CpuCall::move_storage(c10::StorageImpl* storage) {
  c10::DataPtr& current = storage->_mutable_data_ptr_no_checks();
  if (is_switched_allocation(current)) [[likely]] {
    storage->set_data_ptr_noswap(to_device_form(std::move(current), device_));
  } else if (current.get() == nullptr) {
    storage->set_data_ptr_noswap(c10::DataPtr(nullptr, device_));
  } else {
    // Allocated by another thread, or by another allocator.
    c10::DataPtr copy = allocate(storage->nbytes(), device_.index());
    std::memcpy(kernel_ptr(copy.get()), current.get(), storage->nbytes());
    storage->set_data_ptr_noswap(std::move(copy));
  }
  storage->set_allocator(device_allocator());
}

// What `storage`, of a result, is on the device.
c10::Storage CpuCall::device_storage(const c10::Storage& storage) {
  c10::StorageImpl* impl = storage.unsafeGetStorageImpl();
  if (impl->device_type() == kOpenreg) {
    return storage;
  }
  if (!is_switched_allocation(impl->_mutable_data_ptr_no_checks())) {
    if (const Entry* entry = find_storage(impl)) {
      return entry->original->unsafeGetTensorImpl()->unsafe_storage();
    }
  }
  move_storage(impl);
  return storage;
}

void CpuCall::write_back(const Entry& entry) {
  c10::TensorImpl* original = entry.original->unsafeGetTensorImpl();
  if (entry.alias->has_other_storage()) [[unlikely]] {
    original->set_storage_keep_dtype(device_storage(entry.alias->unsafe_storage()));
  }
  if (entry.alias->geometry_differs(*original)) {
    original->set_sizes_and_strides(entry.alias->sizes(), entry.alias->strides(),
                                    entry.alias->storage_offset());
  }
  // Kernels also answer with lazy bits (lu_solve's out).
  if (entry.alias->is_conj() != original->is_conj()) [[unlikely]] {
    original->_set_conj(entry.alias->is_conj());
  }
  if (entry.alias->is_neg() != original->is_neg()) [[unlikely]] {
    original->_set_neg(entry.alias->is_neg());
  }
}

void CpuCall::finish() {
  for (const Entry& entry : entries_) {
    if (entry.alias == nullptr || entry.listed) {
      continue;
    }
    const bool was_resized = entry.alias->storage_was_resized();
    if (was_resized) [[unlikely]] {
      c10::StorageImpl* resized = entry.alias->storage_impl();
      c10::StorageImpl* storage =
          entry.original->unsafeGetTensorImpl()->unsafe_storage().unsafeGetStorageImpl();
      c10::DataPtr& block = resized->_mutable_data_ptr_no_checks();
      if (is_switched_allocation(block)) {
        storage->set_data_ptr_noswap(to_device_form(std::move(block), device_));
        storage->set_nbytes(resized->nbytes());
      } else if (resized->nbytes() == 0) {
        storage->set_data_ptr_noswap(c10::DataPtr(nullptr, device_));
        storage->set_nbytes(0);
      }
    }
    if (entry.written) {
      write_back(entry);
    }
    if (was_resized && (hold_.has_value() || attempt_.has_value())) [[unlikely]] {
      sanitizer::operator_makes(*entry.original);  // with the sizes that it has now
    }
  }
}

const at::Tensor& CpuCall::original(const at::Tensor& result) const {
  const Entry* entry = find_tensor(result.unsafeGetTensorImpl());
  TORCH_INTERNAL_ASSERT(entry != nullptr, "the kernel returned none of its arguments");
  return *entry->original;
}

at::Tensor CpuCall::wrap(at::Tensor&& result) {
  c10::TensorImpl* impl = result.unsafeGetTensorImpl();
  if (!result.defined() || impl->device_type() != c10::DeviceType::CPU) {
    return std::move(result);
  }
  if (result.use_count() > 1) {
    if (const Entry* entry = find_tensor(impl)) {
      return *entry->original;
    }
  }
  TORCH_CHECK_NOT_IMPLEMENTED(impl->has_storage() && !impl->is_quantized(), "openreg has no ",
                              impl->is_quantized() ? "quantized" : c10::str(impl->layout()),
                              " tensors, which this operator would return.");
  const c10::Storage& storage = impl->unsafe_storage();
  const Entry* host = nullptr;
  if (!is_switched_allocation(storage.unsafeGetStorageImpl()->_mutable_data_ptr_no_checks())) {
    host = find_storage(storage.unsafeGetStorageImpl());
    if (host != nullptr && host->alias == nullptr) {
      return std::move(result);  // a view of a tensor of the host stays one
    }
  }
  if (result.use_count() > 1 || impl->autograd_meta() != nullptr) [[unlikely]] {
    result = at::Tensor(impl->shallow_copy_and_detach(c10::VariableVersion(0), true));
    impl = result.unsafeGetTensorImpl();
  }
  if (host != nullptr) {
    impl->set_storage_keep_dtype(host->original->unsafeGetTensorImpl()->unsafe_storage());
  } else if (storage.device_type() != kOpenreg) {
    move_storage(impl->unsafe_storage().unsafeGetStorageImpl());
  }
  move_to_device(*impl, device_);
  if (host == nullptr && (hold_.has_value() || attempt_.has_value())) {
    sanitizer::operator_makes(result);
  }
  return std::move(result);
}

}  // namespace torch_openreg
