#include "python/csrc/sanitizer/session.h"

#include <ATen/core/CachingHostAllocator.h>
#include <c10/core/ScalarType.h>

#include <algorithm>
#include <mutex>

namespace torch_openreg::sanitizer {
namespace {

struct Works {
  std::mutex mutex;
  std::vector<WorkPtr> works;
};

Works& works() {
  static auto* const instance = new Works;  // leaked: used at exit
  return *instance;
}

// Works that have been waited for are dropped when their number has doubled.
constexpr std::size_t kMinWorks = 1024;

}  // namespace

Engine& engine() {
  static auto* const instance = new Engine;
  return *instance;
}

bool describe_access(const at::Tensor& tensor, Access* access) {
  const c10::TensorImpl* impl = tensor.unsafeGetTensorImpl();
  if (!tensor.defined() || !impl->has_storage() || impl->numel() == 0) {
    return false;
  }
  c10::StorageImpl* storage = impl->unsafe_storage().unsafeGetStorageImpl();
  const Address low = address(storage->_mutable_data_ptr_no_checks().get());
  if (low == 0 && storage->nbytes() == 0 && impl->device_type() == c10::DeviceType::CPU) {
    return false;
  }
  const std::size_t item = impl->itemsize();
  const Address data = low + static_cast<Address>(impl->storage_offset()) * item;
  const auto sizes = impl->sizes();
  access->region =
      impl->is_contiguous()
          ? Region(data, data + static_cast<std::size_t>(impl->numel()) * item)
          : Region::strided(data, sizes.data(), impl->strides().data(), sizes.size(), item);
  TensorInfo& info = access->tensor;
  info.dims = static_cast<std::uint8_t>(std::min<std::size_t>(sizes.size(), 255));
  std::copy_n(sizes.begin(), std::min(sizes.size(), TensorInfo::kMaxDims), info.sizes.begin());
  info.dtype = c10::toString(c10::typeMetaToScalarType(impl->dtype()));
  info.storage_low = low;
  info.storage_bytes = storage->nbytes();
  return true;
}

void remember(const WorkPtr& work) {
  Works& all = works();
  const std::lock_guard<std::mutex> lock(all.mutex);
  if (all.works.size() >= kMinWorks && all.works.size() == all.works.capacity()) {
    std::erase_if(all.works, [](const WorkPtr& old) {
      return old->ended && (old->awaited || !old->asynchronous);
    });
  }
  all.works.push_back(work);
}

std::vector<Finding> remaining_works(const std::string& group) {
  std::vector<Finding> findings;
  Works& all = works();
  const std::lock_guard<std::mutex> lock(all.mutex);
  for (const WorkPtr& work : all.works) {
    if (work->operation->group != group) {
      continue;
    }
    Finding finding;
    finding.first = work->tensor;
    if (!work->ended) {
      finding.kind = Finding::Kind::kInFlight;
      findings.push_back(std::move(finding));
    } else if (work->asynchronous && !work->awaited) {
      finding.kind = Finding::Kind::kUnawaited;
      findings.push_back(std::move(finding));
    }
  }
  std::erase_if(all.works,
                [&group](const WorkPtr& work) { return work->operation->group == group; });
  return findings;
}

}  // namespace torch_openreg::sanitizer
