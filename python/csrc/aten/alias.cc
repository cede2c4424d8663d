#include "python/csrc/aten/alias.h"

#include <vector>

#include "python/csrc/aten/allocation_switch.h"
#include "python/csrc/runtime/memory.h"

namespace torch_openreg {
namespace {

using c10::DispatchKey;
using c10::DispatchKeySet;

const c10::Device kCpu(c10::DeviceType::CPU);

// Without AutocastCPU: the rules of the CPU's autocast are not the device's.
const DispatchKeySet kAliasKeys =
    DispatchKeySet(DispatchKey::CPU) |
    c10::getAutogradRelatedKeySetFromBackend(c10::BackendComponent::CPUBit);

c10::intrusive_ptr<c10::StorageImpl> make_storage() {
  return c10::make_intrusive<c10::StorageImpl>(c10::StorageImpl::use_byte_size_t(), 0,
                                               c10::DataPtr(nullptr, kCpu), switching_allocator(),
                                               /*resizable=*/true);
}

}  // namespace

Alias::Alias()
    : c10::TensorImpl(make_storage(), DispatchKeySet(DispatchKey::CPU),
                      caffe2::TypeMeta::Make<float>()),
      own_(storage_.getWeakStorageImpl().lock()) {}

// Whether it is contiguous and so on follows from sizes and strides.
bool Alias::has_metadata_of(const c10::TensorImpl& source) const {
  constexpr auto kPlain = static_cast<uint8_t>(SizesStridesPolicy::Default);
  const bool plain = extra_meta_ == nullptr && sizes_strides_policy_ == kPlain && !device_policy_ &&
                     !layout_policy_ && !has_symbolic_sizes_strides_;
  const auto& theirs = source.*(&Alias::sizes_and_strides_);
  return plain && source.*(&Alias::extra_meta_) == nullptr &&
         storage_offset_ == source.*(&Alias::storage_offset_) &&
         data_type_ == source.*(&Alias::data_type_) &&
         is_wrapped_number_ == source.is_wrapped_number() &&
         sizes_and_strides_.sizes_arrayref() == theirs.sizes_arrayref() &&
         sizes_and_strides_.strides_arrayref() == theirs.strides_arrayref();
}

void Alias::assign(const c10::TensorImpl& source, const Alias* shared) {
  if (!has_metadata_of(source)) {
    extra_meta_.reset();
    copy_generic_tensor_metadata(&source, this);
    device_opt_ = kCpu;
  }
  key_set_ = kAliasKeys | (source.key_set() & kLazyKeys);
  if (shared != nullptr) {
    storage_ = shared->storage_;
    expected_ = shared->expected_;
    address_ = shared->address_;
    nbytes_ = shared->nbytes_;
    return;
  }
  if (storage_.unsafeGetStorageImpl() != own_.get()) {
    storage_ = c10::Storage(own_);
  }
  expected_ = own_.get();
  c10::StorageImpl* original = source.unsafe_storage().unsafeGetStorageImpl();
  address_ =
      original == nullptr ? nullptr : kernel_ptr(original->_mutable_data_ptr_no_checks().get());
  nbytes_ = original == nullptr ? 0 : original->nbytes();
  own_->set_data_ptr_noswap(c10::DataPtr(address_, kCpu));
  own_->set_nbytes(nbytes_);
  own_->set_resizable(original == nullptr || original->resizable());
}

bool Alias::storage_was_resized() const {
  return expected_->_mutable_data_ptr_no_checks().get() != address_ ||
         expected_->nbytes() != nbytes_;
}

bool Alias::geometry_differs(const c10::TensorImpl& source) const {
  return source.sizes() != sizes() || source.strides() != strides() ||
         source.storage_offset() != storage_offset();
}

bool Alias::is_reusable() const {
  return own_.use_count() == 2 && storage_.unsafeGetStorageImpl() == own_.get() &&
         pyobj_slot()->load_pyobj() == nullptr;
}

namespace {

// Reaches the protected device of a tensor that is not an Alias.
struct DeviceField : c10::TensorImpl {
  static void set(c10::TensorImpl& tensor, c10::Device device) {
    tensor.*(&DeviceField::device_opt_) = device;
  }
};

// Plain data, so that reaching it costs no initialisation check; emptied by ~PoolOwner.
struct Pool {
  std::vector<c10::intrusive_ptr<Alias>>* stock = nullptr;
};
constinit thread_local Pool pool;

constexpr size_t kMaxStock = 256;

struct PoolOwner {
  PoolOwner() { pool.stock = &stock; }
  ~PoolOwner() { pool.stock = nullptr; }
  std::vector<c10::intrusive_ptr<Alias>> stock;
};

std::vector<c10::intrusive_ptr<Alias>>* make_stock() {
  static thread_local PoolOwner owner;
  return pool.stock;
}

}  // namespace

void move_to_device(c10::TensorImpl& tensor, c10::Device device) {
  tensor._change_backend_component_keys(device);
  DeviceField::set(tensor, device);
}

c10::intrusive_ptr<Alias> AliasPool::take() {
  auto* stock = pool.stock;
  if (stock == nullptr || stock->empty()) {
    return c10::make_intrusive<Alias>();
  }
  c10::intrusive_ptr<Alias> alias = std::move(stock->back());
  stock->pop_back();
  return alias;
}

void AliasPool::give_back(c10::intrusive_ptr<Alias>&& alias) {
  auto* stock = pool.stock != nullptr ? pool.stock : make_stock();
  if (stock != nullptr && stock->size() < kMaxStock && alias.use_count() == 1 &&
      alias.weak_use_count() == 1 && alias->is_reusable()) {
    stock->push_back(std::move(alias));
  }
}

}  // namespace torch_openreg
